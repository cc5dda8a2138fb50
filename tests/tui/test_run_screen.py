"""The screen of one run, on the replay of real events: what it says, and how it folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.content import Content

from streamproc.errors import Unavailable
from streamproc.read_model.rows import DecisionRow, LiveRun
from streamproc.report.building import ReportBuilder
from streamproc.report.model import RunReport
from streamproc.tui.app import FleetApp
from streamproc.tui.folded_lines import HangingLine, HangingLines
from streamproc.tui.run_screen import RunScreen
from tests.report.runs import HOSTILE, call, looping, recorded, turn, written
from tests.tui.rows import HandMade, watching
from tests.tui.test_fleet_screen import screen_lines
from tests.waiting import until


def replayed(path: Path, run_id: str = "loop") -> tuple[HandMade, RunReport]:
    """Return a model with the run of a log and its decisions, and its report."""
    recording = recorded(path)
    history = recording.histories[run_id]
    main = history.halt or history.decisions[0]
    run = LiveRun(
        run_id=run_id, status="halted" if history.halt else "running", severity=main.severity, workflow="nightly",
        user="ada", code=main.code, message=main.message, badge=main.badge or "", turns=history.turns,
        failing_trend=tuple(failing for _, failing in history.trend), at_ms=history.at[-1],
        halted_at_ms=history.at[-1] if history.halt else 0,
    )  # fmt: skip
    model = HandMade([run])
    model.decided = [
        DecisionRow(
            id=one.id, run_id=run_id, at_ms=history.at[-1], code=one.code, severity=one.severity,
            action=one.action or "", message=one.message, turn=one.trigger.turn, body=msgspec.json.encode(one),
        )
        for one in reversed(history.decisions) if one.trigger is not None
    ]  # fmt: skip
    return model, ReportBuilder(recording).run(history)


def opened(model: HandMade, report: RunReport | None) -> FleetApp:
    async def read(run_id: str) -> RunReport | None:
        return report

    return watching(model, report=read)


async def sections(app: FleetApp) -> str:
    """Return what the screen of a run shows, once its log is read."""
    await until(lambda: isinstance(app.screen, RunScreen) and app.screen.report is not None)
    await until(lambda: "something new" in "\n".join(screen_lines(app)))
    return "\n".join(screen_lines(app))


async def test_it_says_why_and_what_to_do_and_shows_the_turns(tmp_path: Path) -> None:
    model, report = replayed(written(tmp_path, looping(budget=40)))
    async with opened(model, report).run_test(size=(140, 70)) as pilot:
        await pilot.press("enter")
        shown = await sections(pilot.app)
    assert "LOOP003" in shown
    assert "→ " in shown
    assert "maxSteps" in shown
    assert "8 of 40 turns" in shown
    assert shown.count("the same") >= 2
    assert "git status" in shown
    assert "nothing to commit" in shown
    assert "workflow nightly" in shown
    assert "▌    7" in shown  # a turn in the loop
    assert shown.index("   11  ") < shown.index("    0  ")  # the latest turn is first


async def test_the_trend_of_failing_tests_is_drawn(tmp_path: Path) -> None:
    results = [{"failed": [f"test_{n}" for n in range(failing)], "total": 9} for failing in (7, 4, 3, 3, 3, 3, 3)]
    events = [turn(number, tests=tests, output=f"step {number}") for number, tests in enumerate(results)]
    model, report = replayed(written(tmp_path, events))
    async with opened(model, report).run_test(size=(140, 60)) as pilot:
        await pilot.press("enter")
        shown = await sections(pilot.app)
    assert "failing tests  █▅▄▄▄▄▄" in shown
    assert "7 → 3, fewest 3" in shown


async def test_texts_of_agents_are_neither_markup_nor_control_sequences(tmp_path: Path) -> None:
    text = f"[bold]{HOSTILE}[@click=app.quit]x[/]"
    events = [call(number, text, text, node=text[:40], errors=[text]) for number in range(4)]
    model, report = replayed(written(tmp_path, events))
    async with opened(model, report).run_test(size=(140, 80)) as pilot:
        await pilot.press("enter")
        shown = await sections(pilot.app)
        metas = [segment.style.meta for strip in pilot.app.screen._compositor.render_strips() for segment in strip
                 if segment.style is not None]  # fmt: skip
    assert "[bold]</script>" in shown
    assert "\\u202e" in shown
    assert not set(shown) & set("\x1b\u202e\u200b")
    assert not any("@click" in meta and "quit" in str(meta["@click"]) for meta in metas)


@pytest.mark.parametrize("width", [30, 60, 109, 110, 200])
async def test_it_fits_the_terminal_and_keeps_the_id_whole(tmp_path: Path, width: int) -> None:
    run_id = "release/2026-11-23/build-7/agent-" + "x" * 40
    model, report = replayed(written(tmp_path, looping(run_id)), run_id)
    async with opened(model, report).run_test(size=(140, 200)) as pilot:
        await pilot.press("enter")
        await sections(pilot.app)
        await pilot.resize_terminal(width, 200)
        await until(lambda: pilot.app.screen.size.width == width)
        await pilot.pause()
        lines = screen_lines(pilot.app)
    assert {len(line) for line in lines} == {width}
    assert run_id in "".join(line.strip() for line in lines[1:10])


async def test_a_log_that_cannot_be_read_leaves_the_rest_of_the_screen(tmp_path: Path) -> None:
    model, _ = replayed(written(tmp_path, looping()))

    async def read(run_id: str) -> Any:
        raise Unavailable("no broker at kafka-1:9092")

    async with watching(model, report=read).run_test(size=(140, 50)) as pilot:
        await pilot.press("enter")
        await until(lambda: "cannot be read now: no broker at kafka-1" in "\n".join(screen_lines(pilot.app)))
        assert "LOOP003" in "\n".join(screen_lines(pilot.app))


async def test_a_run_with_news_is_shown_again_and_its_log_read_again(tmp_path: Path) -> None:
    model, report = replayed(written(tmp_path, looping()))
    async with opened(model, report).run_test(size=(140, 50)) as pilot:
        await pilot.press("enter")
        await sections(pilot.app)
        model.put(LiveRun(run_id="loop", status="running", severity="info", turns=99))
        await until(lambda: "99 turns" in "\n".join(screen_lines(pilot.app)))
        assert "RUNNING" in "\n".join(screen_lines(pilot.app))


@pytest.mark.parametrize(("width", "indent"), [(12, 0), (19, 0), (20, 4), (40, 4), (79, 4)])
def test_a_folded_line_keeps_every_word_and_its_indent(width: int, indent: int) -> None:
    words = [f"word{number}" for number in range(30)] + ["x" * 50]
    folded = HangingLines([HangingLine(Content(f"at 1  {' '.join(words)}"), 4)])._folded(width)
    assert all(line.cell_length <= width for line in folded)
    assert {len(line.plain) - len(line.plain.lstrip()) for line in folded[1:]} == {indent}
    assert "".join("".join(line.plain.split()) for line in folded) == "at1" + "".join(words)
