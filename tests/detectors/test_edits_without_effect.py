"""LOOP012: what is a check, what is an edit, and what starts the count again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamproc.detectors.base import call
from streamproc.policy import Policy, load_policy
from streamproc.policy.layers import Layer
from tests.feeding import Feed, Raw, reported

if TYPE_CHECKING:
    from collections.abc import Iterable

FAILED = "FAILED test_a.py::test_add - assert 3 == 4"


def edit(n: int, **more: Any) -> Raw:
    return call("edit", {"path": "a.py", "old_str": "x", "new_str": f"x + {n}"}, f"edit {n} applied", **more)


def rounds(times: int, *between: Raw, answer: str = FAILED, **more: Any) -> list[Raw]:
    return [turn for n in range(times) for turn in (edit(n, **more), *between, call("test", {}, answer, **more))]


def found(turns: Iterable[Raw], **limits: int) -> list[tuple[str, int]]:
    policy = Policy([*load_policy().layers, Layer(name="mine", detectors={"LOOP012": limits})])
    return [(one.severity, one.at) for one in reported(turns, policy) if one.code == "LOOP012"]


def test_a_policy_may_warn_at_the_second_answer() -> None:
    assert found(rounds(7)) == [("warn", 7), ("halt", 11)]
    assert found(rounds(7), warn=2, halt=3) == [("warn", 3), ("halt", 5)]
    assert found(rounds(7), warn=0, halt=0) == []


@pytest.mark.parametrize(
    "between",
    [
        call("read", {"path": "b.py"}, "text"), call("wait", {}), edit(99) | {"tool_calls": edit(99)["tool_calls"] * 2},
        {"node": "agent", "tool_calls": [{"name": "ls", "args": {}, "error": "no such directory: b"}]},
    ],
    ids=["a read", "no answer", "two calls at once", "a failure"],
)  # fmt: skip
def test_any_other_call_in_between_starts_again(between: Raw) -> None:
    assert found(rounds(9, between)) == []


def test_a_service_that_is_overloaded_says_nothing_about_the_edits() -> None:
    overloaded = {"node": "agent", "tool_calls": [{"name": "model", "args": {}, "error": "HTTP 429 Too Many Requests"}]}
    assert found(rounds(6, overloaded)) == [("warn", 11), ("halt", 17)]


@pytest.mark.parametrize("answer", ["", "12 passed in all", "All checks passed!", "ok", "job 7: still running"])
def test_an_answer_that_no_edit_can_change_is_no_check(answer: str) -> None:
    assert found(rounds(9, answer=answer)) == []


def test_a_poll_is_no_check() -> None:
    polled = [call("status", {}, "10 %"), call("status", {}, "20 %")]  # it changes although no one does anything
    edited = [turn for n in range(7) for turn in (edit(n), call("status", {}, "20 %"))]
    assert found([*polled, *edited]) == []


def test_checks_of_two_nodes_and_two_tasks_are_apart() -> None:
    pair = [*rounds(1, node="a"), *rounds(1, node="b")]
    assert found(pair * 6) == []
    assert found([turn for n in range(9) for turn in rounds(1, task_id=f"T{n}")]) == []


def test_the_count_outlives_a_restart_after_every_event() -> None:
    feed, decided = Feed(), []
    for turn in rounds(6):
        decided += [one.severity for one in feed.raw(turn) if one.code == "LOOP012"]
        feed.restart()
    assert decided == ["warn", "halt"]
