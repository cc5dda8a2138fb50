"""The repair example: the test cases of the requirement, and two attempts instead of twenty-seven."""

from __future__ import annotations

import pytest

from tests.examples.playing import chapter, first_halts, scanned, turn_of

NAME = "repair"
STUCK = ["test-2/stuck", "test-3/several-nodes", "risks/minor-variation", "risks/only-the-tail-differs"]
GOES_ON = ["test-1/makes-progress", "test-3/one-of-several-fixed", "risks/rate-limited"]


def test_every_run_is_either_stuck_or_continues() -> None:
    assert sorted(scanned(NAME)) == sorted(STUCK + GOES_ON)


@pytest.mark.parametrize("run_id", STUCK)
def test_the_same_error_after_a_repair_is_the_last(run_id: str) -> None:
    halt = first_halts(NAME)[run_id]
    assert (halt.code, halt.halt_reason, turn_of(halt), halt.onset) == ("ERROR001", "repeated_error", 2, 0)
    assert (halt.action, halt.terminal_status) == ("halt", "aborted_stuck")
    lines = chapter(NAME, run_id)
    assert [line for line in lines if line.startswith("  attempt")] == lines[0:3:2]
    assert lines[3].startswith("  Same error after repair attempt, stopping: ")


@pytest.mark.parametrize("run_id", GOES_ON)
def test_another_error_is_progress(run_id: str) -> None:
    assert scanned(NAME)[run_id] == []
    assert chapter(NAME, run_id)[-1].endswith(": success")


def test_two_attempts_instead_of_twenty_seven() -> None:
    assert chapter(NAME, "test-2/stuck")[-1] == "  2 attempts instead of 27, 1.04 USD spared"


def test_the_first_repair_is_never_prevented() -> None:
    assert all(line.startswith("  repair") for line in (chapter(NAME, run_id)[1] for run_id in STUCK))
