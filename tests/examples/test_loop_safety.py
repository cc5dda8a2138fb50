"""The loop-safety example: which runs are halted, when and why, and the report that a person gets."""

from __future__ import annotations

import pytest

from tests.examples.playing import chapter, first_halts, printed, scanned, turn_of

NAME = "loop_safety"
STUCK = {
    "bugfix/same-tests": ("STALL002", 9, "stalled", "switch_to_interactive"),
    "bugfix/same-diff": ("STALL001", 10, "stalled", "switch_to_interactive"),
    "bugfix/other-tests": ("STALL003", 11, "stalled", "switch_to_interactive"),
    "bugfix/stopped": ("OPERATOR001", 1, "user_stop", "halt"),
    "planning/two-plans": ("LOOP002", 6, "oscillating", "spawn_reviewer"),
    "planning/same-answer": ("LOOP001", 2, "stalled", "spawn_reviewer"),
    "planning/same-structure": ("LOOP001", 2, "stalled", "spawn_reviewer"),
    "planning/seven-plans": ("BUDGET002", 12, "budget_exceeded", "force_synthesis"),
    "planning/no-end": ("BUDGET003", 18, "budget_exceeded", "force_synthesis"),
    "docs/same-page": ("STALL001", 4, "stalled", "pause"),
    "docs/flat-score": ("STALL004", 9, "stalled", "pause"),
    "migration/same-error": ("ERROR001", 2, "repeated_error", "retry_with_new_provider"),
    "budgets/turn-timeout": ("BUDGET001", 1, "budget_exceeded", "force_synthesis"),
    "budgets/turn-tokens": ("BUDGET001", 2, "budget_exceeded", "force_synthesis"),
    "budgets/node-runtime": ("BUDGET002", 4, "budget_exceeded", "force_synthesis"),
    "budgets/cycle-runtime": ("BUDGET003", 5, "budget_exceeded", "force_synthesis"),
    "budgets/cycle-cost": ("BUDGET003", 4, "budget_exceeded", "force_synthesis"),
}


def test_a_loop_that_converges_is_left_alone() -> None:
    assert scanned(NAME)["bugfix/converges"] == []
    assert chapter(NAME, "bugfix/converges")[-1] == "  ended by itself"


def test_every_other_run_is_halted() -> None:
    assert {run_id for run_id, halt in first_halts(NAME).items() if halt is not None} == STUCK.keys()


@pytest.mark.parametrize("run_id", STUCK)
def test_a_run_is_halted_at_its_turn_for_its_reason(run_id: str) -> None:
    halt = first_halts(NAME)[run_id]
    assert (halt.code, turn_of(halt), halt.halt_reason, halt.action) == STUCK[run_id]
    assert halt.type == "loop.halted"
    assert halt.suggested_actions[0] == halt.action
    assert f"  HALTED at turn {STUCK[run_id][1]}, " in "\n".join(chapter(NAME, run_id))


def test_every_halt_reason_and_every_on_stall_action_has_a_story() -> None:
    assert {reason for _, _, reason, _ in STUCK.values()} == {
        "budget_exceeded", "stalled", "oscillating", "repeated_error", "user_stop",
    }  # fmt: skip
    assert {action for _, _, _, action in STUCK.values()} > {
        "pause", "switch_to_interactive", "spawn_reviewer", "retry_with_new_provider",
    }  # fmt: skip


@pytest.mark.parametrize("run_id", ["bugfix/converges", "bugfix/same-tests"])
def test_the_badge_and_the_trend_are_shown_for_a_loop(run_id: str) -> None:
    assert "  coder         Loop 3/8  failing tests 7 → 4 → 2" in chapter(NAME, run_id)


def test_a_stall_in_a_cycle_has_its_evidence() -> None:
    halt = first_halts(NAME)["bugfix/same-tests"]
    assert halt.cycle_id is not None
    assert len(halt.cycle_id) == 16
    assert halt.onset == 5
    assert halt.evidence.failing_trend == [7, 4, 2, 2, 2]
    assert halt.evidence.failing_tests == ["test_sort.py::test_large", "test_sort.py::test_reverse"]
    signatures = halt.evidence.failing_signatures
    assert len(set(signatures[-3:])) == 1
    assert len(set(halt.evidence.artifact_hashes or ())) == 5
    assert len(set(halt.evidence.output_hashes or ())) == 5


def test_the_same_cycle_has_the_same_id_in_every_run() -> None:
    halts = first_halts(NAME)
    ids = {run_id: halt.cycle_id for run_id, halt in halts.items() if halt is not None and halt.cycle_id}
    assert len({cycle_id for run_id, cycle_id in ids.items() if run_id.startswith("bugfix/")}) == 1
    assert len({cycle_id for run_id, cycle_id in ids.items() if run_id.startswith("planning/")}) == 1
    assert len(set(ids.values())) == 4


def test_time_stamps_and_the_order_of_keys_hide_no_repeat() -> None:
    halts = first_halts(NAME)
    for run_id in ("planning/same-answer", "planning/same-structure"):
        halt = halts[run_id]
        assert halt.evidence is not None
        assert len(halt.evidence.output_hashes or ()) == 3
        assert len(set(halt.evidence.output_hashes or ())) == 1


def test_a_metric_is_compared_with_its_best_value() -> None:
    halt = first_halts(NAME)["docs/flat-score"]
    assert (halt.evidence.reason, halt.evidence.best) == ("docs_score", 0.6)
    warned = next(one for one in scanned(NAME)["docs/flat-score"] if one.severity == "warn")
    assert warned.evidence.best == 0.6  # it is at 0.5 there


def test_the_actions_use_the_names_of_the_requirement() -> None:
    lines = printed(NAME)
    for words in ("switch to interactive", "spawn reconciliation node", "tighten context pack", "update docs contract"):
        assert words in lines
