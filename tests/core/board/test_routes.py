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
    swings = moves("T1", "IMPLEMENTING", *("QA_REVIEW", "REWORK", "IMPLEMENTING") * 3)
    caused = swings[:-1] + steps("VALIDATION", root_cause="a shared fixture")
    assert codes(caused)[-1] in {"TASK004", "TASK005"}


def test_an_escalated_task_does_not_pass_its_review_before_a_person_decides() -> None:
    assert codes(moves("T1", "QA_REVIEW", "ESCALATED", "VALIDATION", dod="approved")) == ["TASK004"]


def test_a_cancelled_task_stays_cancelled() -> None:
    for target in ("IMPLEMENTING", "QA_REVIEW", "READY", "pending", "DONE", "BLOCKED"):
        assert codes(moves("T1", "IMPLEMENTING", "CANCELLED", target)) == ["TASK004"]
