"""Commands from the terminal: what a dialog asks for, what it refuses, and how a command is followed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from textual.widgets import Button, Input, Static

from streamproc.fleet.commands import Command, progress_line
from streamproc.fleet.issuing import StoredAt
from streamproc.read_model.command_progress import command_progress
from streamproc.read_model.rows import CommandRow, LiveRun
from streamproc.tui.app import FleetApp
from streamproc.tui.command_dialog import CommandDialog
from streamproc.tui.host import TerminalCommands
from streamproc.tui.run_list import RunList
from streamproc.tui.run_screen import RunScreen
from tests.tui.rows import HandMade, decision, fleet, watching
from tests.waiting import until

SIZE = (120, 50)
WORKING = "nightly-009"
PLACE = StoredAt("streamproc.commands", 0, 17, 1)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """The commands that the dialogs hand over; here, they go no further."""
    given: list[Command] = []

    async def keep(self: TerminalCommands, command: Command) -> None:
        command.sent, command.place = True, PLACE
        given.append(command)

    monkeypatch.setattr(TerminalCommands, "send", keep)
    return given


def said(command: Command) -> tuple[object, ...]:
    assert command.by == "ada"
    return command.verb, command.scope, command.why, command.grant, command.counted


def choose(app: FleetApp, run_id: str) -> None:
    app.screen.query_one(RunList).choose(run_id)


def problem(app: FleetApp) -> str:
    return str(app.screen.query_one("#problem", Static).render())


def notices(app: FleetApp) -> list[str]:
    return [one.message for one in app._notifications]


async def test_a_halt_asks_for_a_reason_of_three_characters(sent: list[Command]) -> None:
    async with watching(HandMade(fleet())).run_test(size=SIZE) as pilot:
        app = pilot.app
        choose(app, WORKING)
        await pilot.press("h")
        await until(lambda: isinstance(app.screen, CommandDialog))
        assert WORKING in str(app.screen.query_one("#about", Static).render())
        await pilot.press(*"no", "enter")
        assert "3 to 500 characters" in problem(app)
        assert not sent

        await pilot.press(*" way", "enter")
        await until(lambda: sent)
        assert [said(one) for one in sent] == [("halt", f"run:{WORKING}", "no way", {}, 1)]


@pytest.mark.long
async def test_an_command_to_the_fleet_needs_the_number_of_runs_that_it_hits(sent: list[Command]) -> None:
    model = HandMade(fleet())
    hit = model.runs_in_scope("fleet")
    assert hit == 35
    async with watching(model).run_test(size=SIZE) as pilot:
        app = pilot.app
        for key, verb in (("S", "stop"), ("P", "pause"), ("C", "clear")):
            await pilot.press(key)
            await until(lambda: isinstance(app.screen, CommandDialog))
            await pilot.press(*"the deployment is broken", "enter", *"34", "enter")
            assert "35" in problem(app)
            app.screen.query_one("#hit", Input).value = ""
            await pilot.press(*"35", "enter")
            await until(lambda: not isinstance(app.screen, CommandDialog))
            assert said(sent.pop()) == (verb, "fleet", "the deployment is broken", {}, 35)


async def test_a_session_is_halted_by_the_number_of_its_runs(sent: list[Command]) -> None:
    rows = [replace(row, session="night") if row.run_id == WORKING else row for row in fleet()]
    model = HandMade(rows)
    model.runs_in_scope = {"session:night": 3}.__getitem__  # type: ignore[method-assign]
    async with watching(model).run_test(size=SIZE) as pilot:
        app = pilot.app
        choose(app, WORKING)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RunScreen))
        await pilot.press("s")
        await until(lambda: isinstance(app.screen, CommandDialog))
        assert "night: 3 working runs now" in str(app.screen.query_one("#about", Static).render())
        await pilot.press(*"it spawns without end", "enter", *"3", "enter")
        await until(lambda: sent)
        assert [said(one) for one in sent] == [("kill", "session:night", "it spawns without end", {}, 3)]


async def test_a_resume_has_a_grant_and_refuses_one_that_is_no_number(sent: list[Command]) -> None:
    model = HandMade(fleet())
    async with watching(model).run_test(size=SIZE) as pilot:
        app = pilot.app
        choose(app, "nightly-001")
        await pilot.press("r")
        await until(lambda: isinstance(app.screen, CommandDialog))
        app.screen.query_one("#reason", Input).value = "one more try"
        app.screen.query_one("#turns", Input).value = "-5"
        app.screen.query_one("#send", Button).press()
        await until(lambda: "positive" in problem(app))
        app.screen.query_one("#turns", Input).value = "10"
        app.screen.query_one("#cost", Input).value = "0.50"
        app.screen.query_one("#send", Button).press()
        await until(lambda: sent)
        grant = {"turns": 10, "cost": "0.50"}
        assert [said(one) for one in sent] == [("resume", "run:nightly-001", "one more try", grant, 1)]


async def test_escape_sends_nothing(sent: list[Command]) -> None:
    async with watching(HandMade(fleet())).run_test(size=SIZE) as pilot:
        choose(pilot.app, WORKING)
        await pilot.press("h", *"a good reason", "escape")
        await until(lambda: not isinstance(pilot.app.screen, CommandDialog))
        assert not sent
        assert not pilot.app.followed


@pytest.mark.parametrize(("key", "verb"), [("v", "right"), ("f", "false-alarm")])
async def test_one_key_says_what_a_halt_was(sent: list[Command], key: str, verb: str) -> None:
    async with watching(HandMade(fleet())).run_test(size=SIZE) as pilot:
        choose(pilot.app, "nightly-001")
        await pilot.press(key)
        await until(lambda: sent)
        assert [said(one) for one in sent] == [(verb, "run:nightly-001", "", {}, 1)]


async def test_an_command_is_for_all_selected_runs_that_it_fits(sent: list[Command]) -> None:
    async with watching(HandMade(fleet())).run_test(size=SIZE) as pilot:
        for run_id in ("nightly-001", WORKING, "nightly-011"):
            choose(pilot.app, run_id)
            await pilot.press("x")
        runs = pilot.app.screen.query_one(RunList)
        assert runs.marked == {"nightly-001", WORKING, "nightly-011"}
        await pilot.press("h", *"all of these", "enter")
        assert "2 runs" in str(pilot.app.screen.query_one("#about", Static).render())
        await pilot.press("2", "enter")
        await until(lambda: len(sent) == 2)
        assert {said(one)[:3] for one in sent} == {
            ("halt", f"run:{one}", "all of these") for one in (WORKING, "nightly-011")
        }
        assert not runs.marked


@pytest.mark.parametrize(("key", "run_id", "word"), [
    ("f", WORKING, "running"), ("r", WORKING, "running"), ("a", WORKING, "running"), ("h", "nightly-001", "halted"),
    ("h", "nightly-021", "finished"),
])  # fmt: skip
async def test_an_command_that_cannot_be_right_is_refused_with_the_reason(
    sent: list[Command], key: str, run_id: str, word: str
) -> None:
    async with watching(HandMade(fleet())).run_test(size=SIZE) as pilot:
        choose(pilot.app, run_id)
        await pilot.press(key)
        await until(lambda: notices(pilot.app))
        assert word in notices(pilot.app)[0]
        assert not isinstance(pilot.app.screen, CommandDialog)


async def test_only_what_stops_work_can_be_issued_before_everything_is_read(sent: list[Command]) -> None:
    model = HandMade(fleet())
    model.caught_up = False
    async with watching(model).run_test(size=SIZE) as pilot:
        choose(pilot.app, "nightly-001")
        await pilot.press("r", "C")
        await until(lambda: len(notices(pilot.app)) == 2)
        assert all("not up to date" in one for one in notices(pilot.app))
        choose(pilot.app, WORKING)
        await pilot.press("h")
        await until(lambda: isinstance(pilot.app.screen, CommandDialog))


@pytest.mark.parametrize("key", ["", "ops:ed25519-public:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="])
async def test_without_a_key_that_signs_it_is_read_only_and_says_so(sent: list[Command], key: str) -> None:
    async with watching(HandMade(fleet()), key=key).run_test(size=SIZE) as pilot:
        app = pilot.app
        await until(lambda: "read-only" in str(app.screen.query_one("#place", Static).render()))
        for press in "hraPSC":
            await pilot.press(press)
        await until(lambda: len(notices(app)) == 6)
        assert all("STREAMPROC_COMMAND_KEY" in one for one in notices(app))
        assert not isinstance(app.screen, CommandDialog)
        await pilot.press("?")
        await pilot.pause()
        shown = "".join(segment.text for strip in app.screen._compositor.render_strips() for segment in strip)
        assert "Read-only" in shown


async def test_a_broker_that_is_away_leaves_an_command_failed_with_the_reason() -> None:
    model = HandMade(fleet())
    async with watching(model).run_test(size=SIZE) as pilot:
        app = pilot.app
        choose(app, WORKING)
        await pilot.press("h", *"wrong branch", "enter")
        await until(lambda: app.followed and app.followed[0].sent is False, 60)
        assert "127.0.0.1:1" in app.followed[0].problem
        await until(lambda: "not sent" in str(app.screen.query_one("#news", Static).render()))
        assert notices(app)


async def test_the_news_of_an_command_are_on_the_screen(sent: list[Command]) -> None:
    model = HandMade(fleet())
    async with watching(model).run_test(size=SIZE) as pilot:
        app = pilot.app
        choose(app, WORKING)
        await pilot.press("h", *"wrong branch", "enter")
        await until(lambda: "sent" in str(app.screen.query_one("#news", Static).render()))

        [command] = app.followed
        model.issued = [standing(id=command.id)]
        model.put()
        await until(lambda: "active" in str(app.screen.query_one("#news", Static).render()))

        model.put(LiveRun(run_id=WORKING, status="halted", severity="halt"))
        await until(lambda: "done: the run is halted" in str(app.screen.query_one("#news", Static).render()))


def standing(**fields: Any) -> CommandRow:
    given = {"id": "c1", "scope": f"run:{WORKING}", "status": "STOP", "by": "ada", "why": "x", "at_ms": 1}
    return CommandRow(**{"state": "standing", **given, **fields})


def stage(command: Command, row: CommandRow | None, *runs: LiveRun) -> str:
    model = HandMade(runs)
    model.issued = [row] if row is not None else []
    return progress_line(command, command_progress(command, model))


def test_an_command_is_followed_as_on_the_page() -> None:
    at_work = LiveRun(run_id=WORKING, status="running", severity="info")
    halt = Command(id="c1", verb="halt", scope=f"run:{WORKING}", by="ada", sent=True, place=PLACE)
    assert stage(halt, None, at_work) == f"halt run {WORKING}: sent: the broker has stored it"
    assert "active: guards and workers" in stage(halt, standing(), at_work)
    assert "done: the run is halted" in stage(halt, standing(obeyed_runs=1), at_work)
    refused = standing(state="refused", reason="not signed")
    assert stage(halt, refused, at_work) == f"halt run {WORKING}: refused: not signed"
    stop = Command(id="c1", verb="stop", scope="fleet", by="ada", sent=True, place=PLACE, counted=2)
    assert stage(stop, standing(scope="fleet"), at_work) == ("stop the fleet: active: guards act on it: stopped 0 of 0")


def test_a_resume_is_obeyed_when_a_decision_names_its_event() -> None:
    model = HandMade([LiveRun(run_id=WORKING, status="halted", severity="halt")])
    command = Command(id="e1", verb="resume", scope=f"run:{WORKING}", by="ada", sent=True, place=PLACE)
    model.decided = [decision(WORKING, body=b"[]"), decision(WORKING, body=b"{"), decision(WORKING)]
    assert command_progress(command, model).stage == "sent"
    model.decided.append(decision(WORKING, body=json.dumps({"trigger": {"event_id": "e1"}}).encode()))
    assert command_progress(command, model).stage == "obeyed"
