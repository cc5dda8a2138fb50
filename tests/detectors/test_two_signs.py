"""LOOP013: which warnings count as two signs, and what a policy may make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from streamproc.detectors.base import call
from streamproc.policy import Policy, load_policy
from streamproc.policy.layers import Layer
from tests.feeding import Feed, Raw, reported

if TYPE_CHECKING:
    from collections.abc import Iterable

SEARCHES: Final[list[Raw]] = [
    call("search", {"in": "all"}, "One."),
    *(call("search", {"in": n}, "0") for n in range(6)),
]
FAILURES: Final[list[Raw]] = [
    {"node": "agent", "tool_calls": [{"name": "build", "args": {"n": n}, "error": "E1: cannot link"}]} for n in range(3)
]


def found(turns: Iterable[Raw], **limits: int) -> list[tuple[str, int]]:
    policy = Policy([*load_policy().layers, Layer(name="mine", detectors={"LOOP013": limits})])
    return [(one.severity, one.at) for one in reported(turns, policy) if one.code == "LOOP013"]


def test_a_policy_may_halt_at_the_second_sign() -> None:
    turns = [*SEARCHES, *FAILURES]
    assert found(turns) == [("warn", 9)]
    assert found(turns, halt=2) == [("halt", 9)]
    assert found(turns, warn=0) == []


@pytest.mark.parametrize(("between", "signs"), [(17, 1), (18, 0)])
def test_the_second_sign_comes_within_twenty_turns(between: int, signs: int) -> None:
    others = [call("read", {"page": n}, f"page {n}") for n in range(between)]
    assert len(found([*SEARCHES, *others, *FAILURES])) == signs


def test_many_nodes_with_signs_leave_room_for_the_memory_of_others() -> None:
    nodes = [f"node {'x' * 200} {n}" for n in range(30)]
    turns = [
        call(f"search {number}", {"in": n}, "one" if not n else f"none of {number}", node=node)
        for number, node in enumerate(nodes)
        for n in range(7)
    ]
    feed = Feed(Policy(load_policy().layers))
    feed.all(turns)
    assert feed.engine.faults == {}
    assert 50 < len(feed.state.cold.plugins["LOOP013"]) < 150


@pytest.mark.parametrize(("first", "signs"), [("12:00:01", 0), ("12:00:00", 1)])
def test_a_call_counts_as_a_sign_only_if_it_is_equal_byte_for_byte(first: str, signs: int) -> None:
    """The same but for a time of day is a weaker repeat; as often it warns, as often it may be a poll."""
    times = [first, "12:00:00", "12:00:00"] if signs else ["12:00:01", "12:00:02", "12:00:03"]
    repeats = [call("look", {}, f"nothing at {time}") for time in times[: 2 if signs else 3]]
    assert ("LOOP003", "warn") in [(one.code, one.severity) for one in reported([*repeats])]
    assert len(found([*SEARCHES, *repeats])) == signs


def test_signs_of_two_nodes_are_no_two_signs_of_one() -> None:
    assert found([*SEARCHES, *({**one, "node": "builder"} for one in FAILURES)]) == []


def test_a_failing_streak_is_no_sign_of_its_own() -> None:
    failures = [
        {"node": "agent", "tool_calls": [{"name": "build", "args": {"n": n}, "error": f"cannot link {word}"}]}
        for n, word in enumerate(("alpha", "beta", "gamma", "delta", "omega"))
    ]
    assert ("ERROR003", "warn") in [(one.code, one.severity) for one in reported([*SEARCHES, *failures])]
    assert found([*SEARCHES, *failures]) == []
