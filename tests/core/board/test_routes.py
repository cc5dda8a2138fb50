"""Which state a move starts from: parked states, and those of a to-do list."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.core.board.board_events import created, cycle, move, moves
from tests.feeding import Raw, decisions

PARKED = ("BLOCKED", "blocked", " Blocked ", "FAILED", "escalated", "STALLED", "stalled")


def steps(*states: str, **more: object) -> list[Raw]:
    """Return moves of T1 that do not name the state that they leave."""
    return [{"type": "task.transition", "task_id": "T1", "to": state, **more} for state in states]


def codes(raws: list[Raw]) -> list[str]:
    """Return the codes of all decisions but the notice that a team has stalled a task itself."""
    return [one.code for one in decisions(raws) if one.code != "STALL005"]


@pytest.mark.parametrize("parked", PARKED)
@pytest.mark.parametrize("start", ["pending", "todo", "To Do", "open", "Backlog", "READY", "ready"])
@pytest.mark.parametrize("resumes", [True, False])
def test_a_task_that_was_parked_before_it_starts_is_done_like_any_other(start: str, parked: str, resumes: bool) -> None:
    on = [parked, start, "in_progress", "completed"] if resumes else [parked, "in_progress", "completed"]
    told = [created("T1", state=start), created("T2", state=start), *steps(*on), cycle(["T1"])]
    assert codes(told) == []
    named = [created("T2"), *(move("T1", source, to) for source, to in pairwise([start, *on])), cycle(["T1"])]
    assert codes(named) == []


@pytest.mark.parametrize("parked", PARKED)
def test_a_task_that_the_board_first_sees_parked_may_have_come_from_any_state(parked: str) -> None:
    """Missing data is no evidence."""
    assert codes([created("T1", state=parked), *steps("pending", "in_progress", "completed")]) == []
    assert codes([*steps(parked, "CI_REVIEW", "COMMIT", "DONE")]) == []
    start = [created("T1", state=parked, module="billing"), *steps("IMPLEMENTING")]
    assert codes(start) == ["TASK006"]


@pytest.mark.parametrize("parked", PARKED)
def test_a_parked_task_may_do_what_its_previous_state_allowed(parked: str) -> None:
    assert codes(moves("T1", "in_progress", parked, "completed")) == []
    assert codes(moves("T1", "in_progress", parked, "in_progress", parked, "pending")) == []
    assert codes(moves("T1", "LOCKED", parked, "IMPLEMENTING", parked, "QA_REVIEW", parked, "REWORK")) == []
    assert codes(moves("T1", "CI_REVIEW", parked, "STALLED", parked, "REWORK")) == []


@pytest.mark.parametrize("parked", ["BLOCKED", "FAILED", "STALLED"])
def test_the_guards_of_the_previous_state_hold_for_a_parked_task(parked: str) -> None:
    passed = {"verdict": "APPROVED", "items": [{"name": "tests", "status": True}]}
    on = moves("T1", "QA_REVIEW", parked, "VALIDATION")
    assert codes(on) == ["TASK005"]
    assert codes([on[0], on[1] | {"dod": passed}]) == []
    swings = moves("T1", "QA_REVIEW", *("REWORK", "IMPLEMENTING", "QA_REVIEW") * 3)
    assert codes([*swings, *steps("VALIDATION", root_cause="a shared fixture")]) == ["TASK001", "TASK005"]
    assert codes([*swings, *steps("VALIDATION", root_cause="a shared fixture", dod=passed)]) == ["TASK001"]


def test_an_escalated_task_does_not_pass_its_review_before_a_person_decides() -> None:
    assert codes(moves("T1", "QA_REVIEW", "ESCALATED", "VALIDATION", dod="approved")) == ["TASK004"]


def test_a_cancelled_task_stays_cancelled() -> None:
    for target in ("IMPLEMENTING", "QA_REVIEW", "READY", "pending", "DONE", "BLOCKED"):
        assert codes(moves("T1", "IMPLEMENTING", "CANCELLED", target)) == ["TASK004"]


# The 9-state machine (seed 004): "Agent attempts to advance a ticket past a state … without satisfying the guard
# condition for the transition (e.g., skipping QA_REVIEW to reach VALIDATION, or bypassing the post-execution chain)"


@pytest.mark.parametrize("start", [[created("T1")], [created("T1", state="READY")], [created("T1", state="pending")]])
@pytest.mark.parametrize("target", ["VALIDATION", "DOCUMENTATION", "CI_REVIEW", "COMMIT"])
@pytest.mark.parametrize("by", [["IN_PROGRESS"], ["in progress", "BLOCKED"], ["in-progress", "pending", "in_progress"]])
def test_a_ticket_that_is_in_progress_skips_no_check(start: list[Raw], by: list[str], target: str) -> None:
    for dod in ({}, {"dod": "approved"}):
        assert codes([*start, *steps(*by), *steps(target, **dod)]) == ["TASK004"]
    assert codes([*start, *steps(*by, "QA_REVIEW"), *steps("VALIDATION")]) == ["TASK005"]
    assert codes([*start, *steps(*by, "QA_REVIEW"), *steps("VALIDATION", dod="approved")]) == []


def test_a_ticket_whose_skips_were_refused_is_not_done_as_a_to_do_is() -> None:
    skips = [created("T1"), *steps("IN_PROGRESS", "VALIDATION", "COMMIT")]
    assert codes([*skips, *steps("DONE", "DONE", "BLOCKED", "DONE")]) == ["TASK004"] * 5
    assert codes([*skips, *steps("QA_REVIEW"), *steps("VALIDATION", "DOCUMENTATION", dod=True)]) == ["TASK004"] * 2
    failed = steps("DONE", evidence={"ci": {"passed": False}})
    assert codes([created("T1"), *steps("IN_PROGRESS"), *failed, *steps("DONE")]) == ["TASK004"]


def test_a_to_do_list_needs_no_check() -> None:
    for done in ("DONE", "completed"):
        assert codes([created("T1"), *steps("READY", "IN_PROGRESS", done)]) == []
        assert codes([*steps("in_progress", "blocked", "in_progress", done)]) == []
        assert codes([*steps("pending", "in_progress", "in review", "in_progress", done)]) == []
    assert codes(steps("in_progress", "completed", "in_progress", "completed")) == []


def test_the_gates_of_implementing_hold_for_a_ticket_that_is_in_progress() -> None:
    # "Agent enters IMPLEMENTING state for a ticket modifying a module that has no passing initialization checklist"
    start = [created("T1", module="billing"), *steps("IN_PROGRESS")]
    assert codes([*start, *steps("IMPLEMENTING")]) == ["TASK006"]
    assert codes([*start, *steps("IMPLEMENTING", init={"allPassed": True})]) == []
    assert codes([created("T1", ui_touching="yes"), *steps("IN_PROGRESS", "IMPLEMENTING")]) == ["TASK007"]


@pytest.mark.parametrize("parked", PARKED)
@pytest.mark.parametrize("start", [[created("T1")], [created("T1", state="READY")], moves("T1", "READY", "READY")])
def test_a_parked_ticket_skips_no_state(start: list[Raw], parked: str) -> None:
    for target in ("IMPLEMENTING", "REWORK", "QA_REVIEW", "VALIDATION", "DONE"):
        assert codes([*start, *steps(parked, target)]) == ["TASK004"]
        assert codes([*start, *steps(parked, "STALLED", target)]) == ["TASK004"]
    assert codes([*start, *steps(parked, "LOCKED", "IMPLEMENTING")]) == []
    assert codes([*start, *steps(parked, "READY", "LOCKED", parked, "IMPLEMENTING", parked, "IMPLEMENTING")]) == []
    assert codes([*start, *steps("LOCKED", parked, "REWORK", "IMPLEMENTING", parked, "READY", "LOCKED")]) == []


@pytest.mark.parametrize("state", ["QA_REVIEW", "VALIDATION", "CI_REVIEW", "COMMIT", "REWORK", "IN_PROGRESS"])
@pytest.mark.parametrize("target", ["READY", "REWORK", "IMPLEMENTING"])
def test_work_may_be_taken_up_again_from_a_parked_state(state: str, target: str) -> None:
    assert codes(moves("T1", state, "BLOCKED", target)) == []


def test_a_task_of_which_the_board_has_seen_no_move_may_be_in_work_when_it_is_blocked() -> None:
    fails = [{"node": "n", "task_id": "T1", "errors": [{"message": f"{n}", "class": "E"}]} for n in "abc"]
    blocked = [created("T1"), *fails]
    assert codes([*blocked, *steps("IMPLEMENTING", root_cause="a shared fixture")]) == ["ERROR002"]
    assert codes([*blocked, *steps("VALIDATION", root_cause="a shared fixture")]) == ["ERROR002", "TASK004"]
