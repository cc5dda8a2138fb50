"""Cycles of a board: which of the tasks that they list they have completed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.board.board_events import created, cycle, given, move
from tests.feeding import Feed, Raw, decisions

# Seed 004: "A full BUILD→VALIDATE cycle completes with 0 tasks transitioning to `completed`"

DONE = move("T1", "COMMIT", "DONE")
WORK = move("T2", "LOCKED", "IMPLEMENTING")


def codes(raws: list[Raw]) -> list[str]:
    return [one.code for one in decisions(raws) if one.code != "STALL005"]


@pytest.mark.parametrize("listed", [["T1"], [{"id": "T1"}], {"T1": "DONE"}, ["T1", "T1"], [" T1"]])
def test_a_task_of_an_earlier_cycle_is_not_completed_again(listed: Any) -> None:
    assert codes([DONE, WORK, cycle(listed)]) == []
    if listed != [" T1"]:  # another task, which the board does not know
        assert codes([DONE, WORK, cycle(listed), cycle(listed)]) == ["STALL006"]
        assert codes([DONE, WORK, cycle(), cycle(listed)]) == ["STALL006"]


def test_a_list_that_grows_is_complete_as_long_as_it_grows() -> None:
    ends = [move(f"T{n}", "COMMIT", "DONE") for n in range(4)]
    raws = [created("T9", state="IMPLEMENTING")]
    for number, end in enumerate(ends, start=1):
        raws += [end, cycle([f"T{n}" for n in range(number)])]
    assert codes(raws) == []
    assert codes([*raws, cycle([f"T{n}" for n in range(4)])]) == ["STALL006"]


@pytest.mark.parametrize("work", [WORK, move("T2", "READY", "IN_PROGRESS")])
def test_a_task_that_the_board_knows_in_another_state_is_completed_once(work: Raw) -> None:
    assert codes([created("T3"), work, cycle(["T2"])]) == []  # a team may report its ends by these lists alone
    assert codes([created("T3"), work, cycle(["T2"]), cycle(["T2"])]) == ["STALL006"]
    assert codes([created("T3"), work, cycle(["T2"]), cycle(["T2", "T7"])]) == []  # the board does not know the other


def test_a_task_that_was_listed_and_is_reworked_is_completed_again() -> None:
    rework = [move("T2", "IMPLEMENTING", "QA_REVIEW"), move("T2", "QA_REVIEW", "REWORK")]
    ends = [created("T3"), WORK, cycle(["T2"])]
    assert codes([*ends, *rework, cycle(["T2"])]) == []
    assert codes([*ends, *rework, cycle(["T3"]), cycle(["T2"])]) == []  # in a later cycle as well
    assert codes([*ends, *rework, cycle(["T2"]), cycle(["T2"])]) == ["STALL006"]


def test_a_cancelled_task_is_not_completed() -> None:
    assert codes([created("T3"), move("T2", "IMPLEMENTING", "CANCELLED"), cycle(["T2"])]) == ["STALL006"]


@pytest.mark.parametrize("before", [
    [], [created("T1")], [given("a", "T1")], [created("T1", state="READY")], [created("T1", state="pending")],
    [move("T1", "", "Review")], [{"node": "a", "task_id": "T1", "output": "Work."}],
])  # fmt: skip
def test_a_board_whose_moves_no_event_tells_is_believed(before: list[Raw]) -> None:
    assert codes([*before, WORK, cycle(["T1"]), cycle(["T1"]), cycle(["T1"])]) == []


def test_a_task_that_comes_back_is_completed_again() -> None:
    again = [move("T1", "in_progress", "completed"), move("T1", "completed", "in_progress")]
    done = [*again, again[0]]
    assert codes([WORK, *done, cycle(["T1"]), again[1], again[0], cycle(["T1"])]) == []
    assert codes([WORK, *done, cycle(["T1"]), again[1], *[cycle(["T1"])] * 2]) == ["STALL006"]
    assert codes([WORK, *done, cycle(["T1"]), again[0], cycle(["T1"])]) == ["STALL006"]  # said again


def test_a_move_in_the_list_of_a_cycle_is_one_of_that_cycle() -> None:
    moved = [{"task_id": "T1", "to": "DONE"}]
    first = cycle(["T1"], transitions=moved)
    assert codes([WORK, first]) == []
    assert codes([WORK, first, cycle(["T1"])]) == ["STALL006"]
    assert codes([WORK, first, first]) == ["STALL006"]
    assert codes([WORK, cycle(None, transitions=moved), cycle(None, transitions=moved)]) == ["STALL006"]
    assert codes([WORK, first, cycle(None, transitions=[{"task_id": "T1", "to": "completed"}])]) == ["STALL006"]
    back = [{"task_id": "T1", "to": "IMPLEMENTING"}, *moved]
    assert codes([WORK, first, cycle(None, transitions=back)]) == []
    assert codes([WORK, cycle(None, transitions=[{"task_id": "T2", "to": "DONE"}])]) == []


def test_a_number_is_believed() -> None:
    assert codes([DONE, WORK, cycle(1), cycle(1), cycle(3)]) == []


def test_a_cycle_of_another_phase_ends_no_cycle() -> None:
    assert codes([WORK, DONE, cycle(["T1"], phase="SPEC"), cycle(["T1"])]) == []


def test_a_task_that_the_board_has_forgotten_is_believed() -> None:
    others = [created(f"a-ticket-with-a-long-name-{n}") for n in range(60)]
    assert codes([WORK, DONE, cycle(["T1"]), *others, cycle(["T1"])]) == []


def test_tasks_created_done_count_in_the_cycle_in_which_the_board_learns_of_them() -> None:
    done = created("T1", state="DONE")
    assert codes([WORK, cycle(1), done, cycle(["T1"])]) == []
    assert codes([WORK, cycle(1), done, cycle(["T1"]), cycle(["T1"])]) == ["STALL006"]


@pytest.mark.parametrize(("move", "task"), [(DONE, "T1"), (WORK, "T2")])
def test_a_list_is_judged_alike_after_each_restart(move: Raw, task: str) -> None:
    feed, found = Feed(), []
    for raw in [created("T3"), move, cycle([task]), cycle([task])]:
        found += feed.raw(raw)
        feed.restart()
    assert [one.code for one in found] == ["STALL006"]


@pytest.mark.parametrize("listed", [None, ["T1"], 0, []])
def test_a_report_of_a_cycle_that_is_sent_twice_counts_once(listed: Any) -> None:
    end = cycle(listed, cycle="c1")
    assert codes([DONE, WORK, end, end, end]) == []
    assert codes([DONE, WORK, end, cycle(listed, cycle="c2")]) == ["STALL006"]
    between: list[Raw] = [{"node": "backend", "output": "On it."}, move("T2", "IMPLEMENTING", "QA_REVIEW")]
    assert [codes([DONE, WORK, end, one, end]) for one in between] == [["STALL006"]] * 2  # a name that is used again


def test_a_cycle_in_which_nothing_at_all_happens_counts_under_whatever_name() -> None:
    empty = cycle(0, cycle="build")
    assert codes([WORK, empty]) == codes([WORK, cycle(0)]) == ["STALL006"]
