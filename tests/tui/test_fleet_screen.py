"""The screen of all runs, on rows made by hand: what it shows, and what the keys do."""

from __future__ import annotations

import time

import pytest
from textual.color import Color
from textual.widgets import Static

from streamproc.read_model.rows import LiveRun
from streamproc.tui.app import FleetApp
from streamproc.tui.fleet_screen import parse_filter
from streamproc.tui.run_list import RunList
from tests.fleet.heartbeats import as_record, heartbeat
from tests.tui.rows import HandMade, fleet, watching
from tests.waiting import until

SIZE = (150, 60)


def ids(app: FleetApp) -> list[str]:
    return app.screen.query_one(RunList).shown_ids


def text_of(app: FleetApp, name: str) -> str:
    return str(app.screen.query_one(f"#{name}", Static).render())


def screen_lines(app: FleetApp) -> list[str]:
    """Return the lines that the terminal shows."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


async def test_runs_are_in_three_groups_with_the_halted_ones_first() -> None:
    model = HandMade(fleet(40))
    async with watching(model).run_test(size=SIZE) as pilot:
        lines = screen_lines(pilot.app)

        heads = [line.split()[:2] for line in lines if line.strip().startswith(("HALTED", "WARNED", "OTHERS"))]
        assert heads == [["HALTED", "3"], ["WARNED", "5"], ["OTHERS", "32"]]
        assert len(ids(pilot.app)) == 40
        assert [model.all[run_id].group for run_id in ids(pilot.app)[:8]] == ["halted"] * 3 + ["warned"] * 5
        others = [model.all[run_id].cost_usd_micro for run_id in ids(pilot.app)[8:]]
        assert others == sorted(others, reverse=True)
        assert "3 halted  5 warned  30 working" in text_of(pilot.app, "strip")


async def test_a_run_that_is_halted_moves_up_and_stays_chosen() -> None:
    model = HandMade(fleet(40))
    async with watching(model).run_test(size=SIZE) as pilot:
        app = pilot.app
        await pilot.press("G")
        chosen = app.screen.query_one(RunList).chosen
        assert chosen.run_id == ids(app)[-1]

        model.put(LiveRun(run_id=chosen.run_id, status="halted", severity="halt", code="LOOP001", message="Again.",
                          halted_at_ms=2**52))  # fmt: skip

        await until(lambda: ids(app)[0] == chosen.run_id)
        assert app.screen.run_id == chosen.run_id
        assert chosen.run_id in text_of(app, "chosen")
        assert "LOOP001  Again." in text_of(app, "chosen")


async def test_the_filter_shows_what_matches_while_it_is_typed() -> None:
    model = HandMade(fleet(40))
    async with watching(model).run_test(size=SIZE) as pilot:
        await pilot.press("/", *"workflow:docs same result")
        await until(lambda: len(ids(pilot.app)) < 40)
        wanted = {run.run_id for run in model.all.values() if run.workflow == "docs" and run.message}
        assert set(ids(pilot.app)) == wanted

        await pilot.press("enter", "s")  # the keyboard is on the list again
        assert set(ids(pilot.app)) == wanted
        assert "workflow:docs same result" in text_of(pilot.app, "place")

        await pilot.press("escape")
        await until(lambda: len(ids(pilot.app)) == 40)


async def test_a_filter_without_a_match_says_how_to_see_all() -> None:
    async with watching(HandMade(fleet(5))).run_test(size=SIZE) as pilot:
        await pilot.press("/", *"zzz")
        await until(lambda: not ids(pilot.app))
        await until(lambda: "Esc shows all" in text_of(pilot.app, "chosen"))


@pytest.mark.parametrize(("line", "fields"), [
    ("code:LOOP003 user:ada", {"code": "LOOP003", "user": "ada"}), ("a:b and more", {"text": "a:b and more"}),
    ('workflow:"a b"', {"workflow": "a b"}), ("it's \"open", {"text": "it's \"open"}), ("status:", {"text": "status:"}),
])  # fmt: skip
def test_a_filter_line_is_parsed(line: str, fields: dict[str, str]) -> None:
    found = parse_filter(line)
    assert {name: getattr(found, name) for name in fields} == fields


async def test_the_runs_of_a_group_are_sorted_by_the_chosen_property() -> None:
    model = HandMade(fleet(40))
    async with watching(model).run_test(size=SIZE) as pilot:
        await pilot.press("s", "s")
        assert "by turns" in "".join(screen_lines(pilot.app))
        turns = [model.all[run_id].turns for run_id in ids(pilot.app)[8:]]
        assert turns == sorted(turns, reverse=True)

        await pilot.press("s", "s")
        assert ids(pilot.app)[8:] == sorted(ids(pilot.app)[8:])


async def test_the_keyboard_never_rests_on_a_heading() -> None:
    async with watching(HandMade(fleet(12))).run_test(size=SIZE) as pilot:
        seen = []
        for _ in range(14):
            seen.append(pilot.app.screen.run_id)
            await pilot.press("down")
        assert seen[:12] == ids(pilot.app)
        assert seen[12:] == [ids(pilot.app)[-1]] * 2
        await pilot.press("tab")
        assert pilot.app.screen.run_id == ids(pilot.app)[0]
        await pilot.press("tab")
        assert pilot.app.screen.run_id == ids(pilot.app)[3]


HOSTILE = "[bold red]run[/]\x1b[2J\u202eevil\nline"


async def test_markup_and_control_characters_of_runs_are_shown_and_not_obeyed() -> None:
    run = LiveRun(run_id=HOSTILE, status="halted", severity="halt", workflow="[@click=app.quit]x[/]", tenant=HOSTILE,
                  code="[link=http://evil]", message=f"$halt {HOSTILE}", badge="[reverse]9/9[/]")  # fmt: skip
    model = HandMade([run])
    async with watching(model).run_test(size=(240, 40)) as pilot:
        await pilot.pause()
        for key in ("", "enter", "h"):
            await pilot.press(*([key] if key else []))
            await pilot.pause()
            lines = screen_lines(pilot.app)
            shown = "\n".join(lines)
            assert "[bold red]run[/]\\x1b[2J\\u202eevil\\nline" in shown
            assert not set(shown) & set("\x1b\u202e")
        for strip in pilot.app.screen._compositor.render_strips():
            for segment in strip:
                assert segment.style is None or not segment.style.link
                assert segment.style is None or "@click" not in segment.style.meta


@pytest.mark.parametrize("width", [20, 40, 60, 80, 110, 150, 240])
async def test_no_line_is_wider_than_the_terminal_and_every_run_is_there(width: int) -> None:
    model = HandMade(fleet(40))
    async with watching(model).run_test(size=(150, 70)) as pilot:
        await pilot.resize_terminal(width, 70)
        await pilot.pause()
        lines = screen_lines(pilot.app)

        assert {len(line) for line in lines} == {width}
        assert sum(" H " in line for line in lines) == 3
        assert sum(" W " in line for line in lines) == 5
        assert (
            sum(line.lstrip("▶ ").startswith(("nightly", "release"), 4) or "nightly-" in line for line in lines) >= 32
        )
        assert model.all[ids(pilot.app)[0]].run_id.split("/")[0] in text_of(pilot.app, "chosen")


async def test_the_columns_that_do_not_fit_are_left_out() -> None:
    async with watching(HandMade(fleet(40))).run_test(size=(150, 40)) as pilot:
        await pilot.pause()
        assert text_of(pilot.app, "head").split() == [
            "RUN",
            "WORKFLOW",
            "BADGE",
            "CODE",
            "FAILING",
            "TURNS",
            "USD",
            "SEEN",
            "WHY",
        ]
        await pilot.resize_terminal(60, 40)
        await until(lambda: text_of(pilot.app, "head").split() == ["RUN", "CODE", "USD", "SEEN"])


async def test_a_broker_that_is_away_is_said_and_the_screen_goes_on_by_itself() -> None:
    model = HandMade(fleet(3))
    async with watching(model).run_test(size=SIZE) as pilot:
        app = pilot.app
        assert not app.screen.query_one("#lost").display
        model.trouble = OSError("no answer")
        await until(lambda: app.screen.query_one("#lost").display)
        assert "Not connected since" in text_of(app, "lost")
        assert "not connected" in text_of(app, "place")

        model.trouble = None
        model.put(*fleet(4))
        await until(lambda: len(ids(app)) == 4)
        await until(lambda: not app.screen.query_one("#lost").display)


async def test_a_fleet_without_workers_is_said_and_its_workers_are_listed() -> None:
    model = HandMade(fleet(3))
    async with watching(model).run_test(size=SIZE) as pilot:
        app = pilot.app
        assert not app.screen.query_one("#unwatched").display
        now_s, now_ms = time.monotonic(), int(time.time() * 1000)
        model.workers.contact(now_s)
        model.workers.apply(as_record(heartbeat("worker-[b]7", now_ms)), now_s)
        model.workers.contact(now_s)
        await until(lambda: "live" in text_of(app, "place"))
        assert not app.screen.query_one("#unwatched").display

        model.workers.apply(as_record(heartbeat("worker-[b]7", now_ms + 1, "stopped")), now_s)
        await until(lambda: app.screen.query_one("#unwatched").display)
        assert text_of(app, "unwatched").startswith(" No worker has decided since ")
        assert "unwatched" in text_of(app, "place")

        await pilot.press("w")
        await until(lambda: "worker-[b]7  stopped" in "\n".join(screen_lines(app)))
        await pilot.press("q")
        await until(lambda: app.screen.query_one(RunList).has_focus)


async def test_the_start_says_how_far_it_has_read() -> None:
    model = HandMade(fleet(3))
    model.caught_up, model.progress = False, 0.63
    async with watching(model).run_test(size=SIZE) as pilot:
        await until(lambda: "reading, 63%" in text_of(pilot.app, "place"))


async def test_no_state_is_told_by_colour_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with watching(HandMade(fleet(40))).run_test(size=SIZE) as pilot:
        await pilot.pause()
        strips = pilot.app.screen._compositor.render_strips()
        for one in pilot.app._filters:
            strips = [strip.apply_filter(one, Color(0, 0, 0)) for strip in strips]
        styles = [segment.style for strip in strips for segment in strip if segment.style is not None]
        assert styles
        assert all(colour is None or colour.is_default for style in styles for colour in (style.color, style.bgcolor))
        lines = screen_lines(pilot.app)
        assert sum(line.startswith("▶") for line in lines) == 1
        assert sum(" H " in line for line in lines) == 3


async def test_the_help_names_every_key_and_closes() -> None:
    async with watching(HandMade(fleet(3))).run_test(size=SIZE) as pilot:
        await pilot.press("?")
        await pilot.pause()
        shown = "\n".join(screen_lines(pilot.app))
        assert all(word in shown for word in ("choose a run", "filter: text", "halt it", "pause", "quit"))
        await pilot.press("q")
        await pilot.pause()
        assert pilot.app.is_running
        assert pilot.app.screen.query_one(RunList).has_focus
