"""The planner example: which loop ends as aborted_stuck, when, and the content of the report."""

from __future__ import annotations

import pytest

from tests.examples.playing import chapter, first_halts, scanned, turn_of

NAME = "planner_loop"
LOOPS = {
    "assess/already-done": (14, "researcher", 6, 5),
    "code/no-new-files": (10, "coder", 6, 5),
    "verify/nothing-changed": (12, "verifier", 4, 3),
}
HONEST = ["assess/slow-progress", "assess/found-in-time", "verify/gets-better"]


@pytest.mark.parametrize("run_id", LOOPS)
def test_a_fruitless_edge_ends_as_aborted_stuck(run_id: str) -> None:
    turn, target, hops, limit = LOOPS[run_id]
    halt = first_halts(NAME)[run_id]
    assert (halt.code, turn_of(halt), halt.terminal_status) == ("LOOP005", turn, "aborted_stuck")
    assert halt.suggested_actions == ["snitch", "ask_human", "done_partial"]
    assert (halt.evidence.edge, halt.evidence.count, halt.evidence.limit) == (["planner", target], hops, limit)
    assert halt.message == f"planner handed over to {target} {hops} times in a row without progress."


@pytest.mark.parametrize("run_id", HONEST)
def test_progress_restarts_the_count(run_id: str) -> None:
    assert first_halts(NAME)[run_id] is None
    assert chapter(NAME, run_id)[-1].startswith("  ended by itself, after planner_to_")


def test_a_repeated_query_is_reported_once_and_not_researched_again() -> None:
    reported = [one for one in scanned(NAME)["assess/already-done"] if one.severity != "halt"]
    assert [(one.type, one.code, turn_of(one), one.node) for one in reported] == [
        ("information.none", "LOOP007", 3, "researcher")
    ]
    first = chapter(NAME, "assess/already-done")[0]
    assert first.startswith("  researcher returned its existing results 6 times: No new information found; ")


def test_a_planner_that_changes_nothing_has_the_limit_of_its_edge() -> None:
    halt = first_halts(NAME)["assess/word-for-word"]
    assert (halt.code, turn_of(halt), halt.action, halt.terminal_status) == ("LOOP005", 12, "snitch", "aborted_stuck")


def test_steps_have_a_limit_of_their_own() -> None:
    halt = first_halts(NAME)["steps/too-many"]
    assert (halt.code, turn_of(halt), halt.terminal_status) == ("BUDGET004", 55, "budget_exceeded")


def test_the_report_names_the_loop_and_the_reason() -> None:
    assert chapter(NAME, "verify/nothing-changed") == [
        "  the planner routes to snitch; run report:",
        "    terminalStatus  aborted_stuck",
        "    stopReason      planner handed over to verifier 4 times in a row without progress.",
        "    loop            planner_to_verifier: 6 hops, the last 4 without progress",
        "    limit           3",
        "    detected        LOOP005 at turn 12, 9 turns spared",
        "    next            snitch, or ask_human, or done_partial",
    ]
