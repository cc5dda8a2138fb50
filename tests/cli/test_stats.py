"""`streamproc stats` counts decisions by detector, and the runs that ended without a timeout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple

from streamproc.fleet.record_signing import read_decision, read_status
from streamproc.model.controls import ControlEvent, ControlTrigger, RunStatus
from streamproc.replay.stats import Tally
from tests.feeding import decisions
from tests.laws.traces import START_MS

LOOP: list[dict[str, Any]] = [{"node": "a", "tool_calls": [{"name": "run", "args": {}, "result": "no rule"}]}] * 3


@pytest.fixture
def counted(run, tmp_path: Path) -> Any:
    """Return a function that counts runs and returns the printed JSON."""

    def count(runs: dict[str, list[dict[str, Any]]], *options: str) -> Any:
        file = tmp_path / "runs.jsonl"
        raws = [{"run_id": run_id} | raw for run_id, raws in runs.items() for raw in raws]
        file.write_text("".join(json.dumps(raw) + "\n" for raw in raws))
        result = run("stats", file, "--json", *options)
        assert result.exit_code == 0
        return json.loads(result.stdout)

    return count


def test_decisions_are_counted_by_detector_and_runs_by_workflow(counted) -> None:
    found = counted({"x": [{"workflow": "w"} | raw for raw in LOOP], "y": [{"node": "a", "output": "hello"}]})
    assert found["detectors"] == [
        {"code": "LOOP003", "name": "repeated_call", "layer": None, "info": 0, "warn": 1, "halt": 1, "runs_halted": 1}
    ]
    assert [(end["workflow"], end["runs"], end["halted"]) for end in found["ends"]] == [
        ("*", 2, 1), ("", 1, 0), ("w", 1, 1),
    ]  # fmt: skip
    assert (found["ends"][0]["without_timeout"], found["met"]) == (1.0, True)


def test_a_run_that_was_halted_for_its_time_misses_the_objective(counted) -> None:
    late = [{"type": "run.started", "at": START_MS}, {"node": "a", "output": "x", "at": START_MS + 3_600_000}]
    found = counted({"x": late}, "--policy", "deliberation")
    assert (found["ends"][0]["timed_out"], found["ends"][0]["without_timeout"], found["met"]) == (1, 0.0, False)


def test_without_runs_nothing_is_claimed(counted, run, tmp_path: Path) -> None:
    found = counted({})
    assert (found["ends"][0]["without_timeout"], found["met"]) == (None, None)
    assert "no run has ended" in run("stats", tmp_path / "runs.jsonl").stdout


def test_a_name_from_a_log_cannot_control_the_terminal(run, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps({"run_id": "x", "workflow": "\x1b[2Jw", "node": "a", "output": "hello"}))
    assert "\x1b" not in run("stats", file).stdout


@pytest.mark.parametrize("options", [("--from", "yesterday"), ("--policy", "nowhere")])
def test_unusable_options_are_named(run, tmp_path: Path, options: tuple[str, str]) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps({"run_id": "x", "node": "a"}))
    result = run("stats", file, *options)
    assert result.exit_code == 2
    assert options[1] in result.stderr


def test_a_decision_that_a_crash_left_twice_counts_once() -> None:
    tally = Tally()
    for decision in decisions(LOOP) * 2:
        tally.add_decision(decision)
    [row] = tally.detectors()
    assert (row.warn, row.halt) == (1, 1)
    assert tally.statistics().stop_reasons == {"repeated_call": 1}


def test_a_resumed_run_has_not_ended_and_one_that_finished_has() -> None:
    tally, [_, halt] = Tally(), decisions(LOOP)
    tally.add_decision(halt)
    assert tally.ends()[0].ended == 1
    tally.add_status(RunStatus(run_id=halt.run_id, status="running", severity="info"))
    assert (tally.ends()[0].ended, tally.ends()[0].halted) == (0, 0)
    tally.add_status(RunStatus(run_id=halt.run_id, status="finished", severity="info"))
    assert (tally.ends()[0].ended, tally.ends()[0].without_timeout) == (1, 1.0)


def test_what_is_not_a_decision_or_a_status_is_not_read() -> None:
    for value in (None, b"", b"{", b"[]", b'{"run_id": 1}', b"\xff", b"[" * 100_000):
        assert read_decision(value) is None
        assert read_status(value) is None


def a_halt(run_id: str, *, turn: int, onset: int | None, at: str = "2026-01-31T12:00:00Z") -> ControlEvent:
    return ControlEvent(
        id=run_id, type="loop.halted", run_id=run_id, code="LOOP003", severity="halt", message="", workflow="nightly",
        trigger=ControlTrigger(turn=turn), onset=onset, at=at,
    )  # fmt: skip


def a_status(run_id: str, turns: int) -> RunStatus:
    return RunStatus(
        run_id=run_id, status="halted", severity="halt", workflow="nightly", turns=turns, total_tokens=turns * 100,
        cost_usd_micro=turns * 10,
    )  # fmt: skip


def test_what_a_loop_took_is_a_share_of_the_run_by_turns() -> None:
    tally = Tally()
    for one, turns in ((a_halt("a", turn=9, onset=5), 20), (a_halt("b", turn=3, onset=None), 4)):
        tally.add_decision(one)
        tally.add_status(a_status(one.run_id, turns))
    waste = tally.waste()
    amounts = [astuple(one) for one in (waste.used, waste.looping, waste.after_halt)]
    assert amounts == [(24, 2400, 240), (6, 600, 60), (10, 1000, 100)]
    assert [astuple(one) for one in tally.halts()] == [("LOOP003", "nightly", 2)]


def test_the_slowest_acknowledgements_come_first_after_halts_without_any() -> None:
    tally = Tally()
    for run_id in "abcd":
        tally.add_decision(a_halt(run_id, turn=3, onset=1))
    halted_ms = 1_769_860_800_000
    tally.add_acknowledgement("b", halted_ms + 1_500)
    tally.add_acknowledgement("c", halted_ms + 60_000)
    tally.add_acknowledgement("c", halted_ms + 90_000)
    tally.add_acknowledgement("d", halted_ms - 1)
    waits = [astuple(one) for one in tally.acknowledgements()]
    assert waits == [("a", "LOOP003", None), ("c", "LOOP003", 60.0), ("b", "LOOP003", 1.5)]
