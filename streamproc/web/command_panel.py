"""How far a command is, on the page where it was given: live, until it is done or refused, with the way back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from streamproc.errors import plural
from streamproc.fleet.commands import WORDS
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.keys import COMMANDS, run_href
from streamproc.web.moments import moment

if TYPE_CHECKING:
    from aiohttp import web

    from streamproc.fleet.commands import Command, CommandProgress
    from streamproc.web.commands import IssuedCommands

    Found = list[tuple[Command, CommandProgress]]

STEPS: Final = {"sent": "sent", "standing": "active", "accepted": "accepted", "obeyed": "done"}
REACHED: Final = {"sent": 1, "refused": 1, "standing": 2, "replaced": 2, "accepted": 3, "obeyed": 4}
UNDONE_BY: Final = {"halt": "resume", "kill": "clear", "stop": "clear", "pause": "clear"}
LISTED: Final = 20  # of many commands, those that are not done


def new_command_path(verb: str, scope: str, back: str = "") -> str:
    """Return the address of the form of a command, which shows how many runs it would hit."""
    query = {"verb": verb, "scope": quote(scope, safe="", errors="replace")} | ({"back": back} if back else {})
    return f"/commands/new?{urlencode(query)}"


def followed_command(request: web.Request) -> tuple[str, IssuedCommands] | None:
    """Return the command that a page is about, or that was given from it, with its id."""
    id_ = request.match_info.get("command") or request.query.get("command", "")
    issued = request.app[COMMANDS].issued.get(id_) if id_ and COMMANDS in request.app else None
    return (id_, issued) if issued is not None else None


def command_panel(issued: IssuedCommands, back: str = "") -> Html:
    """Return how far a command is. `back` is the address of the page without it."""
    found = issued.progress()
    command, progress = found[0]
    parts = _one(command, progress, back) if len(found) == 1 else _many(found)
    away = tag("a", "Close" if back else "All commands", href=back or "/commands")
    return tag("section", *parts, tag("p", *_undone(command, progress, back) if len(found) == 1 else (), away,
               class_="command-links"), id="command", class_="command-panel", aria_label="Command")  # fmt: skip


def is_over(issued: IssuedCommands) -> bool:
    """Return whether nothing more is expected."""
    return all(progress.over for _, progress in issued.progress())


def _target(command: Command) -> Html:
    if command.run_id:
        return tag("a", foreign(command.run_id, code=True), href=run_href(command.run_id))
    return foreign(command.target)


def _about(command: Command, target: Html) -> Html:
    why = Html(": ") + foreign(command.why) if command.why else NOTHING
    return tag("p", target, ", by ", foreign(command.by), ", ", moment(command.at_ms), why, class_="muted")


def _one(command: Command, progress: CommandProgress, back: str) -> list[Html]:
    reached = REACHED.get(progress.stage, 0)
    steps = (
        tag("li", ("✓ " if number < reached else "… ") + name, data_done=number < reached)
        for number, name in enumerate(STEPS.values())
    )
    bad = progress.stage in ("unsent", "refused")
    said = tag("p", foreign(progress.sentence), id="command-state", data_stage=progress.stage,
               role="alert" if bad else "status", class_=f"note {'bad' if bad else 'fine'}")  # fmt: skip
    stages = NOTHING if bad or command.rule.verdict else tag("ol", *steps, class_="stages", aria_label="stages")
    outcome = tag("p", progress.outcome, id="command-outcome") if progress.outcome else NOTHING
    title = tag("h2" if back else "h1", command.rule.title)
    return [title, _about(command, _target(command)), said, stages, outcome]


def _many(found: Found) -> list[Html]:
    """Return how many of many commands are done, and which are not."""
    command = found[0][0]
    stages = Counter(progress.stage for _, progress in found)
    done = stages["obeyed"]
    over = all(progress.over for _, progress in found)
    stage = "obeyed" if done == len(found) else "refused" if over else "sent"
    rest = "".join(f", {stages[one]} {WORDS[one]}" for one in ("unsent", "refused", "replaced") if stages[one])
    said = tag("p", f"{done} of {plural(len(found), 'run')} done{rest}.", id="command-state", data_stage=stage,
               role="status", class_=f"note {'bad' if over and done < len(found) else 'fine'}")  # fmt: skip
    left = [one for one in found if one[1].stage != "obeyed"]
    rows = [
        tag("li", _target(one), ": ", tag("b", WORDS[progress.stage]), ", ", foreign(progress.note))
        for one, progress in left[:LISTED]
    ]
    more = tag("li", f"and {len(left) - LISTED} more") if len(left) > LISTED else NOTHING
    title = tag("h2", f"{command.rule.short}: {plural(len(found), 'run')}")
    listed = tag("ul", *rows, more, class_="not-done") if rows else NOTHING
    return [title, _about(command, tag("span", plural(len(found), "run"))), said, listed]


def _undone(command: Command, progress: CommandProgress, back: str) -> tuple[Html, ...]:
    """Return the link to the command that takes this one back."""
    verb = UNDONE_BY.get(command.verb)
    if verb is None or progress.stage in ("unsent", "refused", "replaced"):
        return ()
    words = "Undo: resume the run…" if verb == "resume" else "Undo: clear…"
    return (tag("a", words, href=new_command_path(verb, command.scope, back)), Html(" "))
