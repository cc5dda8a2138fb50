"""The forms of commands, and the pages that follow them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from aiohttp import web

from streamproc.errors import InvalidEvent, plural
from streamproc.fleet.commands import REASON_MIN, read_grant, read_scope
from streamproc.fleet.verbs import GRANTS, RULES, RUN
from streamproc.model.fleet_command import FLEET, WHY_MAX
from streamproc.model.redaction import NAME_MAX
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.access.gate import CSRF_FIELD, form_fields, session_of
from streamproc.web.access.login import Fields, Layout, hidden
from streamproc.web.access.own_address import own_path
from streamproc.web.access.session import Session
from streamproc.web.command_list import command_list
from streamproc.web.command_panel import command_panel, new_command_path
from streamproc.web.commands import CommandDraft, CommandRefused, PageCommands, right_of

NOTHING_SAID: Final[Mapping[str, str]] = {}
READ_ONLY: Final = "This page is read-only: start it with --commands to act from here."
SELECTED: Final = ("halt", "resume", "acknowledge", "right", "false-alarm")  # for several selected runs
KEYS: Final = {"halt": "h", "resume": "r", "acknowledge": "a", "right": "v", "false-alarm": "f"}
RUNS_MAX: Final = 100  # of one command to several runs


def command_form(
    session: Session | None, scope: str, verbs: Sequence[str], *, commands: PageCommands, back: str = ""
) -> Html:
    """Return the forms of these commands to a scope, such as ``run:ID`` or ``fleet``, as far as this session may send
    them; nothing if the page is read-only. `back` is the page that follows the command."""
    if session is None:
        return NOTHING
    allowed = [verb for verb in verbs if commands.allows(session, verb)]
    forms = [
        _draft_form(session, commands.draft(session, verb, scope), commands, {"back": back})
        for verb in allowed
        if RULES[verb].parts == RUN
    ]
    links = [
        tag("a", f"{title_of(verb)}…", href=new_command_path(verb, scope), class_="command")
        for verb in allowed
        if RULES[verb].parts != RUN
    ]
    return NOTHING.join(forms) + (tag("p", Html(" ").join(links)) if links else NOTHING)


def _draft_form(session: Session, draft: CommandDraft, commands: PageCommands, said: Mapping[str, str]) -> Html:
    rule = RULES[draft.verb]
    fields = {
        CSRF_FIELD: session.csrf,
        "command": draft.id,
        "verb": draft.verb,
        "scope": quote(draft.scope, safe=""),  # markup shows control characters as escapes; a field must keep them
        "counted": str(draft.counted),
        "seal": draft.seal,
    }
    fields |= {"run": quoted(draft.runs)} if draft.runs else {}
    fields |= {"back": said["back"]} if said.get("back") else {}
    number = NOTHING
    if commands.must_type(draft):
        exact = draft.runs or commands.caught_up()
        hits = f"{'' if exact else 'at least '}{plural(draft.counted, 'working run')}"
        number = _input("typed", f"This hits {hits}. Type the number", inputmode="numeric")
    grants = NOTHING
    if draft.verb == "resume":
        inputs = (
            _input(name, label.capitalize().replace("usd", "USD"), value=said.get(name), required=None)
            for name, label in GRANTS.items()
        )
        grants = tag("details", tag("summary", "Grant more of its budgets"), *inputs)
    return tag(
        "form",
        NOTHING.join(hidden(name, value) for name, value in fields.items()),
        _input("reason", "Reason", minlength=REASON_MIN, maxlength=WHY_MAX, value=said.get("reason"))
        if not rule.verdict
        else NOTHING,
        number,
        grants,
        tag("button", rule.short if draft.runs else rule.title, data_key=KEYS.get(draft.verb), title=rule.what,
            formnovalidate=bool(rule.verdict)),
        method="post",
        action="/commands",
        class_="command",
        data_verb=draft.verb,
    )  # fmt: skip


def selection_bar(session: Session | None, commands: PageCommands, back: str) -> Html:
    """Return the form that commands something of the selected runs of a list; nothing for those who may not."""
    verbs = [verb for verb in SELECTED if commands.allows(session, verb)]
    if session is None or not verbs:
        return NOTHING
    buttons = [
        tag("button", RULES[verb].short, name="verb", value=verb, title=f"{RULES[verb].what} Key: {KEYS[verb]}",
            data_key=KEYS[verb], formnovalidate=bool(RULES[verb].verdict), class_="danger" if verb == "halt" else None)
        for verb in verbs
    ]  # fmt: skip
    return tag(
        "form",
        hidden(CSRF_FIELD, session.csrf),
        hidden("back", back),
        tag("output", "Selected"),
        tag("input", name="reason", autocomplete="off", aria_label="Reason", placeholder="Reason, shown to everyone",
            required=True, minlength=REASON_MIN, maxlength=WHY_MAX),
        *buttons,
        tag("button", "Cancel", type="reset", class_="quiet"),
        id="selection",
        class_="selection",
        method="post",
        action="/commands/runs",
        aria_label="Selected runs",
    )  # fmt: skip


def quoted(runs: Sequence[str]) -> str:
    """Return ids of runs in one field."""
    return " ".join(quote(one, safe="", errors="replace") for one in runs)


def kill_form(session: Session, commands: PageCommands) -> Html:
    """Return the form that names whose runs to halt; its page then shows how many these are."""
    if not commands.allows(session, "kill"):
        return NOTHING
    return tag(
        "form",
        hidden("verb", "kill"),
        _input("user", "User", required=None, maxlength=NAME_MAX),
        _input("tenant", "Tenant", required=None, maxlength=NAME_MAX),
        _input("session", "Session", required=None, maxlength=NAME_MAX),
        tag("button", "Halt the runs of this user, tenant or session…"),
        method="get",
        action="/commands/new",
        class_="command",
        data_verb="kill",
    )


def _input(name: str, label: str, *, required: bool | None = True, **attributes: Any) -> Html:
    field = tag("input", name=name, autocomplete="off", required=required, **attributes)
    return tag("p", tag("label", f"{label} ", field))


def command_routes(commands: PageCommands, layout: Layout) -> list[web.RouteDef]:
    """Return the routes of commands: their forms, where they are posted to, and the page of each."""
    views = _CommandViews(commands, layout)
    return [
        web.get("/commands", views.all),
        web.get("/commands/new", views.new),
        web.post("/commands", views.issue),
        web.post("/commands/runs", views.issue_many),
        web.get("/commands/{command}", views.follow),
        web.get("/orders{rest:.*}", _renamed),
    ]


async def _renamed(request: web.Request) -> web.Response:
    raise web.HTTPFound(f"/commands{request.match_info['rest']}")


class _CommandViews:
    def __init__(self, commands: PageCommands, layout: Layout) -> None:
        self._commands = commands
        self._layout = layout

    async def all(self, request: web.Request) -> web.Response:
        """Show what stands, what was issued before, and the forms."""
        session = own_session(request)
        forms = command_form(session, FLEET, ("stop", "pause", "clear"), commands=self._commands) + kill_form(
            session, self._commands
        )
        return self._layout("Commands", command_list(session, self._commands, forms), request)

    async def new(self, request: web.Request) -> web.Response:
        """Show the form of a command, with the number of runs that it would hit."""
        verb, scope = request.query.get("verb", ""), unquote(request.query.get("scope", ""))
        session = own_session(request)
        try:
            if not scope:
                scope = read_scope(*(request.query.get(name, "") for name in ("user", "tenant", "session")))
            if verb not in RULES or scope.partition(":")[0] not in RULES[verb].parts:
                raise CommandRefused("There is no such command.")
            if not self._commands.allows(session, verb):
                raise CommandRefused(why_not(self._commands, verb), 403)
        except InvalidEvent as error:
            return self._refused(request, CommandRefused(str(error)))
        except CommandRefused as refused:
            return self._refused(request, refused)
        draft = self._commands.draft(session, verb, scope)
        return self._form(request, draft, {"back": request.query.get("back", "")}, NOTHING)

    async def issue(self, request: web.Request) -> web.StreamResponse:
        """Issue a command and go to its page; show what is wrong with it otherwise."""
        session = own_session(request)
        fields = await form_fields(request)
        draft: CommandDraft | None = None
        try:
            draft, grant = _posted(fields), read_grant({name: fields.get(name, "") for name in GRANTS})
            await self._commands.issue(session, draft, fields.get("reason", ""), fields.get("typed", ""), grant)
        except InvalidEvent as error:
            return self._refused(request, CommandRefused(str(error), again=True), draft, fields)
        except CommandRefused as refused:
            return self._refused(request, refused, draft, fields)
        return followed_at(draft, fields)

    async def issue_many(self, request: web.Request) -> web.StreamResponse:
        """Issue the same command to several runs: at once, or after a form that asks for what is missing."""
        session, fields = own_session(request), await form_fields(request)
        verb, reason = fields.get("verb", ""), fields.get("reason", "")
        rule, commands = RULES.get(verb), self._commands
        ids = list(dict.fromkeys(unquote(one) for one in fields.get("run", "").split()))
        try:
            if rule is None or rule.parts != RUN:
                raise CommandRefused("There is no such command.")
            if not commands.allows(session, verb):
                raise CommandRefused(why_not(commands, verb), 403)
            statuses = {one: run.status if (run := commands.model.run(one)) is not None else "" for one in ids}
            fit = tuple(one for one in ids if not rule.refusal(statuses[one]))
            if not fit:
                none = f"none of them is {rule.needs}" if ids else "no run is selected"
                raise CommandRefused(f"{rule.short} is for runs that are {rule.needs}, and {none}. Choose some.")
            if len(fit) > RUNS_MAX:
                raise CommandRefused(f"At most {RUNS_MAX} runs at a time: narrow the list, or halt a user or tenant.")
            draft = commands.draft(session, verb, f"run:{fit[0]}", fit if len(fit) > 1 else ())
            if commands.must_type(draft) or verb == "resume":
                return self._form(request, draft, fields, _left_out(len(ids) - len(fit), rule.needs))
            await commands.issue(session, draft, reason, "", {})
        except CommandRefused as refused:
            return self._refused(request, refused, draft if refused.again else None, fields)
        return followed_at(draft, fields)

    async def follow(self, request: web.Request) -> web.Response:
        """Show how far a command is."""
        issued = self._commands.issued.get(request.match_info["command"])
        if issued is None:
            raise web.HTTPNotFound(text="No such command was issued here: see /commands.\n")
        return self._layout("Command", command_panel(issued), request)

    def _form(self, request: web.Request, draft: CommandDraft, said: Mapping[str, str], problem: Html) -> web.Response:
        form = _draft_form(own_session(request), draft, self._commands, said)
        rule = RULES[draft.verb]
        title = f"{rule.short}: {plural(len(draft.runs), 'run')}" if draft.runs else rule.title
        listed = tag("ul", *(tag("li", foreign(one, code=True)) for one in draft.runs), class_="targets")
        to = listed if draft.runs else tag("p", "To ", foreign(draft.scope, code=True))
        cancel = tag("p", tag("a", "Cancel", href=back_of(said) or "/commands"))
        body = [tag("h1", title), tag("p", rule.what, class_="lead"), to, problem,
                tag("section", form, class_="commands"), cancel]  # fmt: skip
        return self._layout(title, NOTHING.join(body), request)

    def _refused(
        self,
        request: web.Request,
        refused: CommandRefused,
        draft: CommandDraft | None = None,
        said: Mapping[str, str] = NOTHING_SAID,
    ) -> web.Response:
        """Say why it is refused; where it helps, with a fresh form, and what was typed in it."""
        problem = tag("p", str(refused), role="alert", class_="note bad")
        if draft is not None and refused.again:
            fresh = self._commands.draft(own_session(request), draft.verb, draft.scope, draft.runs)
            response = self._form(request, fresh, said, problem)
        else:
            back = tag("p", tag("a", "Go back", href=back_of(said) or "/commands"))
            response = self._layout("Not sent", tag("h1", "Not sent") + problem + back, request)
        response.set_status(refused.status)
        return response


def own_session(request: web.Request) -> Session:
    """Return the session of a request to a route that needs one."""
    session = session_of(request)
    if session is None:
        raise web.HTTPUnauthorized(text="Log in first.\n")
    return session


def followed_at(draft: CommandDraft, fields: Fields) -> web.Response:
    """Return to the page where a command was given, which follows it; else go to a page of its own."""
    back = back_of(fields)
    joined = "&" if "?" in back else "?"
    path = f"{back}{joined}{urlencode({'command': draft.id})}" if back else f"/commands/{draft.id}"
    return web.Response(status=303, headers={"Location": path})


def back_of(fields: Fields) -> str:
    """Return the page that a form was on, without a command that it has followed; empty if it does not say."""
    path, _, query = own_path(fields["back"]).partition("?") if fields.get("back") else ("", "", "")
    kept = "&".join(one for one in query.split("&") if one and not one.startswith(("command=", "selected=")))
    return f"{path}?{kept}" if kept else path


def _left_out(count: int, needs: str) -> Html:
    return tag("p", f"{plural(count, 'selected run')} left out: not {needs}.", class_="note") if count else NOTHING


def title_of(verb: str) -> str:
    """Return what a button says that gives such a command."""
    return RULES[verb].title


def why_not(commands: PageCommands, verb: str) -> str:
    """Return what a person needs to give such commands here."""
    if not commands.enabled:
        return READ_ONLY
    return f"You have no right to do this: it needs the right {right_of(verb)}. Ask for a group that has it."


def _posted(fields: Fields) -> CommandDraft:
    try:
        return CommandDraft(
            id=str(uuid.UUID(fields.get("command", ""))),
            verb=fields.get("verb", ""),
            scope=unquote(fields.get("scope", ""), errors="strict"),
            counted=int(fields.get("counted", "")),
            seal=fields.get("seal", ""),
            runs=tuple(unquote(one, errors="strict") for one in fields.get("run", "").split()),
        )
    except ValueError:
        raise CommandRefused("The form is incomplete: open it again.") from None
