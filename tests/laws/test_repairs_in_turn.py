"""Several tasks are repaired in turn: the one whose error stays is stopped, and those that get further are not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.core.signals.task_attempts import TASKS_MAX
from streamproc.monitor import Monitor
from tests.laws.traces import BRIEF

WORDS = ("channel", "template", "import", "schema", "token", "socket", "parser", "quota", "index", "cursor")


def error_of(task: int, attempt: int) -> str:
    """Return another error for each attempt at each task."""
    return f"{WORDS[task]} failed in {WORDS[attempt % len(WORDS)]} after {WORDS[(attempt // len(WORDS) + task) % 10]}"


def attempts(dice: random.Random, tasks: int, stuck: int | None, *, one_node: bool) -> list[dict[str, Any]]:
    """Return the turns of some attempts at each task, in turn: an executor fails, and a repairer says what it changes.
    The error of the `stuck` task stays; a task that gets further fails otherwise, or succeeds for a while."""
    turns: list[dict[str, Any]] = []
    for attempt in range(3):
        for task in dice.sample(range(tasks), tasks):
            node = "executor" if one_node else f"executor of {WORDS[task]}"
            failed = {"node": node, "task_id": f"T{task}"}
            if task == stuck:
                turns.append(failed | {"errors": [{"message": error_of(task, 0)}]})
            elif attempt and dice.random() < 0.2:
                turns.append(failed | {"errors": []})
            else:
                turns.append(failed | {"errors": [{"message": error_of(task, 10 * task + attempt)}]})
            repairs = {
                "node": "repairer",
                "output": f"change {WORDS[task]} for the {WORDS[attempt]} of {dice.random()}",
            }
            turns += [repairs | ({"task_id": f"T{task}"} if dice.random() < 0.5 else {})] * (dice.random() < 0.7)
    return turns


def halts(turns: list[dict[str, Any]]) -> list[int]:
    """Return the turns at which ERROR001 halts: what the repairer says may repeat itself."""
    monitor = Monitor("repair")
    return [
        place
        for place, turn in enumerate(turns)
        for control in monitor.feed({"run_id": "r", **turn})
        if control.halts and control.code == "ERROR001"
    ]


@pytest.mark.parametrize(("success", "halted"), [({}, []), ({"task_id": "T0"}, []), ({"task_id": "T1"}, [3])])
def test_a_success_ends_the_failures_of_its_task_or_of_all(success: dict[str, Any], halted: list[int]) -> None:
    first, other = ({"node": "executor", "task_id": f"T{n}", "errors": [error_of(n, 0)]} for n in range(2))
    assert halts([first, other, {"node": "executor", "errors": []} | success, first]) == halted


@given(st.randoms(use_true_random=False), st.integers(2, TASKS_MAX), st.booleans())
@BRIEF
def test_a_task_whose_error_stays_is_stopped_at_its_second_attempt(
    dice: random.Random, tasks: int, one_node: bool
) -> None:
    stuck = dice.randrange(tasks)
    turns = attempts(dice, tasks, stuck, one_node=one_node)
    own = [place for place, turn in enumerate(turns) if turn.get("task_id") == f"T{stuck}" and "errors" in turn]
    assert halts(turns)[:1] == [own[1]]


@given(st.randoms(use_true_random=False), st.integers(2, TASKS_MAX), st.booleans())
@BRIEF
def test_tasks_that_get_further_are_left_alone(dice: random.Random, tasks: int, one_node: bool) -> None:
    assert halts(attempts(dice, tasks, None, one_node=one_node)) == []
