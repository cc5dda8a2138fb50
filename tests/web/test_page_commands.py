"""Commands from the page: by which person, from which form, with which right, and how often."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given, strategies as st
from pydantic import SecretStr

from streamproc.errors import InvalidSettings
from streamproc.fleet.commands import signing_first
from streamproc.read_model.model import ReadModel
from streamproc.read_model.rows import LiveRun
from streamproc.settings import Settings
from streamproc.web.access import AccessOptions
from streamproc.web.access.rights import rights_up_to
from streamproc.web.access.session import Sessions
from streamproc.web.commands import CommandRefused, PageCommands
from tests.web.access_app import KEY, Answer, Browser, FewRuns, Served, serving

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from streamproc.fleet.commands import Command

RUN = "team/a\"b'c&<d>\u202e%2F 7"
REASON = "it goes round"


class Sent(PageCommands):
    """Commands that are checked and not sent: tests/web sends them to Kafka."""

    def __init__(self, settings: Settings, model: ReadModel, *more: Any, **options: Any) -> None:
        super().__init__(settings, model, *more, **options)
        self.commands: list[Command] = []

    async def _send(self, command: Command) -> None:
        self.commands.append(command)
        command.sent = True


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.web.access_app.PageCommands", Sent)


@asynccontextmanager
async def page(right: str = "fleet", *, commands: bool = True, **more: Any) -> AsyncIterator[tuple[Served, Browser]]:
    """A page that a person with one right has logged in to, by a proxy."""
    options = AccessOptions(trust_header="X-User", trusted_proxies=("127.0.0.0/8",), groups=(f"*={right}",))
    async with serving(options, commands=commands, **more) as served, Signed(served) as browser:
        await browser.log_in()
        yield served, browser


class Signed(Browser):
    """A browser behind a proxy that says who it is."""

    user = "ada"

    async def request(self, method: str, path: str, headers: dict[str, str | None], data: Any = None) -> Answer:
        return await super().request(method, path, {"X-User": self.user} | headers, data)

    async def log_in(self) -> None:
        await self.post("/login/header", {"next": "/"})

    async def form(self, verb: str = "halt", run: str = RUN) -> dict[str, str]:
        """The form of a command on a run's page, filled in."""
        return (await self.get(f"/runs/{quote(run, safe='')}")).fields(verb) | {"reason": REASON}

    async def new(self, verb: str, scope: str) -> Answer:
        """The page with the form of a command to many runs."""
        return await self.get(f"/commands/new?verb={verb}&scope={quote(quote(scope, safe=''), safe='')}")


def sent(served: Served) -> list[Command]:
    assert isinstance(served.commands, Sent)
    return served.commands.commands


async def test_a_halt_is_issued_by_who_is_logged_in_and_has_a_page_of_its_own() -> None:
    async with page("halt") as (served, browser):
        answer = await browser.post("/commands", await browser.form() | {"by": "root", "reason": f"  {REASON}\n "})
        assert answer.status == 303
        [command] = sent(served)
        assert answer.location == f"/commands/{command.id}"
        assert (command.verb, command.scope, command.by, command.why) == ("halt", f"run:{RUN}", "ada (header)", REASON)
        shown = await browser.get(answer.location)
        assert shown.status == 200
        assert 'data-stage="sent"' in shown.text
        assert REASON in shown.text
        assert (await browser.get(f"/commands/{uuid.uuid4()}")).status == 404


@pytest.mark.parametrize(
    ("right", "forms"), [("view", []), ("halt", ["halt", "resume"]), ("fleet", ["halt", "resume"])]
)
async def test_forms_are_shown_to_those_who_may(right: str, forms: list[str]) -> None:
    async with page(right) as (_, browser):
        assert [form["verb"] for form in (await browser.get("/runs/a")).forms()] == forms
        for verb, scope in (("stop", "fleet"), ("clear", "fleet"), ("kill", "user:eve"), ("halt", "run:a")):
            allowed = right == "fleet" or (right == "halt" and verb == "halt")
            assert (await browser.new(verb, scope)).status == (200 if allowed else 403)
        assert ("Give a command" in (await browser.get("/commands")).text) == (right == "fleet")


async def test_without_the_right_a_form_of_another_is_refused() -> None:
    """The form is that of a session with the right, which was taken away since."""
    async with page("fleet", model=FewRuns({"fleet": 1})) as (served, browser):
        stop = (await browser.new("stop", "fleet")).fields() | {"reason": REASON}
        halt = await browser.form()
        [session] = served.access.sessions._sessions.values()
        served.access._methods["header"]._granted = {"*": frozenset({"view", "halt"})}  # type: ignore[attr-defined]
        refused = await browser.post("/commands", stop)
        assert refused.status == 403
        assert "needs the right fleet" in refused.text
        served.access._methods["header"]._granted = {"*": frozenset({"view"})}  # type: ignore[attr-defined]
        assert (await browser.post("/commands", halt)).status == 403
        assert session.rights == {"view"}
        assert sent(served) == []


async def test_a_page_without_the_option_is_read_only() -> None:
    async with page("fleet", commands=False) as (served, browser):
        assert (await browser.get("/runs/a")).forms() == []
        assert "read-only" in (await browser.get("/commands")).text
        assert (await browser.new("stop", "fleet")).status == 403
        [session] = served.access.sessions._sessions.values()
        draft = served.commands.draft(session, "halt", "run:a")
        form = {
            "csrf": session.csrf, "command": draft.id, "verb": "halt", "scope": "run%3Aa", "counted": "1",
            "seal": draft.seal, "reason": REASON,
        }  # fmt: skip
        assert (await browser.post("/commands", form)).status == 403
        assert sent(served) == []
        served.commands.enabled = True
        assert (await browser.post("/commands", form)).status == 303  # so nothing else was wrong with it


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}, {"Host": "evil.example"}]
)
async def test_another_site_cannot_command(headers: dict[str, str | None]) -> None:
    async with page() as (served, browser):
        form = await browser.form()
        assert (await browser.post("/commands", form, **headers)).status in (403, 421)
        assert (await browser.post("/commands", form | {"csrf": "x"})).status == 403
        kept, browser.cookies = browser.cookies, {}
        assert (await browser.post("/commands", form)).status == 401
        browser.cookies = kept
        query = "&".join(f"{name}={quote(value)}" for name, value in form.items())
        assert (await browser.get(f"/commands?{query}")).status == 200  # the list: a GET commands nothing
        assert sent(served) == []


async def test_a_form_that_is_sent_again_is_the_same_command() -> None:
    async with page() as (served, browser):
        form = await browser.form()
        first = await browser.post("/commands", form)
        again = await browser.post("/commands", form | {"reason": "another reason"})
        assert first.location == again.location
        [command] = sent(served)
        assert command.why == REASON
        assert (await browser.post("/commands", await browser.form())).location != first.location
        # Not by another person either, who has recorded it.
        async with Signed(served) as thief:
            thief.user = "eve"
            await thief.log_in()
            assert (await thief.post("/commands", form)).status == 403
            assert (await thief.post("/commands", form | {"csrf": await thief.csrf()})).status == 403
        assert len(sent(served)) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"verb": "resume"}, {"verb": "stop"}, {"verb": "nothing"}, {"verb": ""}, {"scope": "run%3Aother"},
        {"scope": "fleet"}, {"scope": "user%3Aeve"}, {"scope": "%FF"}, {"scope": ""}, {"counted": "0"},
        {"counted": "x"}, {"counted": "9" * 5_000}, {"command": str(uuid.UUID(int=1))}, {"command": "1"},
        {"command": ""}, {"seal": ""}, {"seal": "0" * 64}, {"seal": "\u00fc"},
    ],
    ids=lambda changed: str(changed)[:40],
)  # fmt: skip
async def test_a_form_cannot_be_changed(changed: dict[str, str]) -> None:
    async with page() as (served, browser):
        form = await browser.form()
        assert (await browser.post("/commands", form | changed)).status in (400, 403)
        assert sent(served) == []
        assert (await browser.post("/commands", form)).status == 303


@pytest.mark.parametrize("reason", ["", "  ", "ab", " a b"[:3], "\n\t x", "x" * 501])
async def test_an_command_needs_a_reason(reason: str) -> None:
    async with page() as (served, browser):
        refused = await browser.post("/commands", await browser.form() | {"reason": reason})
        assert refused.status == 400
        assert "reason: give one of 3 to 500 characters" in refused.text
        assert refused.fields("halt")["scope"] == quote(f"run:{RUN}", safe="")
        assert sent(served) == []


@pytest.mark.parametrize(("verb", "scope"), [("stop", "fleet"), ("kill", "user:eve"), ("kill", "member:acme/eve")])
async def test_the_number_of_runs_is_typed_in(verb: str, scope: str) -> None:
    model = FewRuns({scope: 12})
    async with page(model=model) as (served, browser):
        shown = await browser.new(verb, scope)
        assert "This hits 12 working runs" in shown.text
        form = shown.fields() | {"reason": REASON}
        for typed in ("", "11", "twelve", "12.0", "-12"):
            refused = await browser.post("/commands", form | {"typed": typed})
            assert refused.status == 400
            assert "type the number of runs that this hits, 12" in refused.text
        model.counts[scope] = 25
        refused = await browser.post("/commands", form | {"typed": "12"})
        assert refused.status == 409
        assert "25 runs by now" in refused.text
        assert "This hits 25 working runs" in refused.text  # a fresh form, with what was typed
        assert refused.fields()["reason"] == REASON
        assert sent(served) == []
        model.counts[scope] = 13
        assert (await browser.post("/commands", form | {"typed": " 12 "})).status == 303
        [command] = sent(served)
        assert (command.scope, command.counted) == (scope, 12)


async def test_one_run_needs_no_number_but_a_number_that_may_be_too_low_does() -> None:
    model = FewRuns({"fleet": 1})
    async with page(model=model) as (served, browser):
        form = (await browser.new("stop", "fleet")).fields()
        assert "typed" not in form
        assert (await browser.post("/commands", form | {"reason": REASON})).status == 303
        model.caught_up = False
        shown = await browser.new("stop", "fleet")
        assert "at least 1 working run" in shown.text
        assert (await browser.post("/commands", shown.fields() | {"reason": REASON, "typed": "1"})).status == 303
        pause = (await browser.new("pause", "fleet")).fields()
        assert (await browser.post("/commands", pause | {"reason": REASON})).status == 303
        assert [command.verb for command in sent(served)] == ["stop", "stop", "pause"]


async def test_while_the_page_reads_it_stops_and_does_not_release() -> None:
    model = FewRuns(caught_up=False)
    async with page(model=model) as (served, browser):
        assert (await browser.post("/commands", await browser.form("halt"))).status == 303
        resume = await browser.form("resume")
        clears = [(await browser.new("clear", scope)).fields() | {"reason": REASON} for scope in ("fleet", "user:eve")]
        for form in (resume, *clears):
            refused = await browser.post("/commands", form)
            assert refused.status == 409
            assert "still reading" in refused.text
        model.caught_up = True
        for form in (resume, *clears):
            assert (await browser.post("/commands", form)).status == 303
        assert [command.verb for command in sent(served)] == ["halt", "resume", "clear", "clear"]


async def test_a_grant_has_numbers() -> None:
    async with page("halt") as (served, browser):
        form = await browser.form("resume")
        for bad in (
            {"turns": "many"},
            {"turns": "-1"},
            {"turns": "1.5"},
            {"cost": "1e9"},
            {"cost": "."},
            {"cost": "1,5"},
        ):
            assert (await browser.post("/commands", form | bad)).status == 400
        assert (await browser.post("/commands", form | {"turns": "10", "cost": "0.50", "iterations": ""})).status == 303
        [command] = sent(served)
        assert command.grant == {"turns": 10, "cost": "0.50"}


@pytest.mark.parametrize(
    ("query", "scope"),
    [
        ("user=eve", "user:eve"), ("tenant=acme", "tenant:acme"), ("user=eve&tenant=a%2Fb", "member:a%2Fb/eve"),
        ("user=", ""), ("", ""), ("scope=run%253Aa", ""), ("scope=fleet", ""), ("scope=everything", ""),
    ],
)  # fmt: skip
async def test_a_kill_names_a_user_or_a_tenant(query: str, scope: str) -> None:
    async with page() as (_, browser):
        answer = await browser.get(f"/commands/new?verb=kill&{query}")
        assert answer.status == (200 if scope else 400)
        if scope:
            assert answer.fields("kill")["scope"] == quote(scope, safe="")


@pytest.mark.parametrize(
    "run", [RUN, "a/b", "%2F", "a%252Fb", "ü" * 128, "a?b#c", "a\nb", '"><script>alert(1)</script>']
)
async def test_any_run_can_be_halted_whatever_its_name(run: str) -> None:
    async with page("halt") as (served, browser):
        answer = await browser.get(f"/runs/{quote(run, safe='')}")
        assert "<script>alert" not in answer.text
        posted = await browser.post("/commands", answer.fields("halt") | {"reason": "<b>why</b>"})
        [command] = sent(served)
        assert command.scope == f"run:{run}"
        shown = (await browser.get(posted.location)).text
        assert "<b>" not in shown
        assert "<script>alert" not in shown


def test_commands_need_a_key_that_signs() -> None:
    for settings in (Settings(command_auth="signed"), Settings(brokers="kafka.example.com:9092")):
        with pytest.raises(InvalidSettings, match="STREAMPROC_COMMAND_KEY"):
            PageCommands(settings, FewRuns(), lambda: True, enabled=True)
        PageCommands(settings, FewRuns(), lambda: True)  # read-only
    PageCommands(Settings(command_auth="channel"), FewRuns(), lambda: True, enabled=True)


def test_the_key_of_the_page_signs_before_others() -> None:
    keys = f"ops:{'o' * 32},{KEY},bob:{'b' * 32}"
    first = signing_first(Settings(command_key=SecretStr(keys)), "page").command_keys()
    assert [key.name for key in first] == ["page", "ops", "bob"]
    assert {key.line() for key in first} == set(keys.split(","))
    assert signing_first(Settings(), "page").command_keys() == ()


def runs(**statuses: str) -> FewRuns:
    """Runs with these statuses."""
    return FewRuns(runs={one: LiveRun(run_id=one, status=status, severity="info") for one, status in statuses.items()})


async def several(browser: Signed, verb: str, *run_ids: str, **fields: str) -> Answer:
    """Send the form of the selected runs."""
    csrf = await browser.csrf()
    given = {"csrf": csrf, "verb": verb, "run": " ".join(quote(one, safe="") for one in run_ids), "reason": REASON}
    return await browser.post("/commands/runs", given | fields)


async def test_several_runs_are_halted_by_their_number_and_only_those_that_were_shown() -> None:
    model = runs(a="running", b="running", c="halted")
    async with page("halt", model=model) as (served, browser):
        shown = await several(browser, "halt", "a", "b", "c", back="/?user=ada&command=old")
        assert "1 selected run left out: not running" in shown.text
        form = shown.fields("halt")
        assert (form["run"], form["reason"]) == ("a b", REASON)
        assert (await browser.post("/commands", form)).status == 400
        for bad in ({"run": "a b c"}, {"run": "a"}, {"verb": "acknowledge"}, {"counted": "1"}):
            assert (await browser.post("/commands", form | {"typed": "2"} | bad)).status in (400, 403)
        assert sent(served) == []
        answer = await browser.post("/commands", form | {"typed": "2"})
        assert answer.location == f"/?user=ada&command={form['command']}"
        assert [one.scope for one in sent(served)] == ["run:a", "run:b"]
        assert len({one.id for one in sent(served)}) == 2
        await browser.post("/commands", form | {"typed": "2"})  # the same form again is the same command
        assert len(sent(served)) == 2


async def test_feedback_needs_no_reason_and_goes_at_once() -> None:
    async with page("halt", model=runs(a="halted", b="halted")) as (served, browser):
        assert (await several(browser, "false-alarm", "a", "b", reason="", back="/")).status == 303
        assert (await several(browser, "acknowledge", "a", reason="", back="/")).status == 400
        assert [(one.verb, one.scope, one.why) for one in sent(served)] == [
            ("false-alarm", "run:a", ""), ("false-alarm", "run:b", ""),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "ids", "said"),
    [
        ("halt", ("c",), "none of them is running"), ("resume", ("a",), "none of them is halted"),
        ("halt", (), "no run is selected"), ("stop", ("a",), "no such command"), ("", ("a",), "no such command"),
        ("halt", tuple(map(str, range(101))), "At most 100 runs"),
    ],
)  # fmt: skip
async def test_a_command_that_does_not_fit_several_runs_is_refused(verb: str, ids: tuple[str, ...], said: str) -> None:
    async with page("fleet", model=runs(a="running", c="halted")) as (served, browser):
        refused = await several(browser, verb, *ids, back="/?user=ada")
        assert refused.status == 400
        assert said in refused.text
        assert 'href="/?user=ada"' in refused.text
        assert sent(served) == []


@pytest.mark.parametrize(("right", "commands"), [("view", True), ("halt", False)])
async def test_several_runs_need_the_right_and_the_option(right: str, commands: bool) -> None:
    async with page(right, commands=commands, model=runs(a="halted")) as (served, browser):
        assert (await several(browser, "right", "a")).status == 403
        assert sent(served) == []


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil.example", "/login?next=/", "/a\nb"]
)
async def test_an_command_returns_to_no_other_site(back: str) -> None:
    async with page("halt") as (_, browser):
        answer = await browser.post("/commands", await browser.form() | {"back": back})
        assert answer.location.startswith("/?command=")


@pytest.mark.parametrize("caught_up", [False, True])
async def test_no_command_is_denied_before_all_are_read(caught_up: bool) -> None:
    async with serving(model=FewRuns(caught_up=caught_up)) as served, Browser(served) as browser:
        await browser.log_in_with_token()
        assert ("No command stands" in (await browser.get("/commands")).text) is caught_up


IDS = st.lists(st.text("a\0',\ud800", min_size=1, max_size=3), min_size=2, max_size=2, unique=True)


@given(IDS, IDS)
@example(["a", "a\0a"], ["a\0a", "a"])
def test_a_seal_is_of_these_runs_only(offered: list[str], changed: list[str]) -> None:
    assume(offered != changed)

    async def issue() -> None:
        commands = PageCommands(Settings(command_key=KEY), ReadModel(), lambda: True, enabled=True)
        session = Sessions().begin("loopback", rights_up_to("fleet"))
        draft = commands.draft(session, "halt", "run:a", tuple(offered))
        await commands.issue(session, replace(draft, runs=tuple(changed)), REASON, "2", {})

    with pytest.raises(CommandRefused, match="The form was changed"):
        asyncio.run(issue())
