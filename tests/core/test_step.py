"""`Engine.step`: a function of stored states, also where it is given what an outcome has kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.core.records import StateError
from streamproc.core.refusal import STRANGER
from streamproc.model.wire import WIRE_VERSION, BudgetReached, Event, OperatorStop
from streamproc.policy import load_policy
from tests.feeding import STANDARD, Feed, Raw, event_of, written
from tests.laws.traces import LONGER, boards, clocks, traces

POLICIES = [load_policy(name) for name in ("standard", "loop-safety", "deliberation", "tickets")]
AT_MS = 1_767_225_600_000


def turn(n: int, **more: Any) -> Event:
    return event_of({"run_id": "r", "event_id": f"e{n}", "node": "coder", "output": f"text {n % 2}", **more})


def states_of(engine: Any, count: int) -> list[bytes]:
    """The states of a run after 0, 1 … `count` turns."""
    states = [b""]
    for n in range(count):
        states.append(engine.step(states[-1], turn(n), AT_MS + n).state)
    return states


@given(st.lists(traces | boards | clocks, min_size=1, max_size=3), st.sampled_from(POLICIES), st.randoms())
@LONGER
def test_what_an_outcome_has_kept_is_its_state(runs: list[list[Raw]], policy: Any, order: Any) -> None:
    """Of some runs that take turns, so that one object holds all their states one after the other."""
    first, second = policy.engine(), policy.engine()
    states: list[bytes] = [b""] * len(runs)
    kept: list[Any] = [b""] * len(runs)
    left = [list(reversed(run)) for run in runs]
    offset = 0
    while any(left):
        place = order.choice([place for place, run in enumerate(left) if run])
        event = event_of({"run_id": f"r{place}", "session_id": f"s{place}", **left[place].pop()})
        outcome = first.step(states[place], event, event.at, offset)
        same = second.step(kept[place], event, event.at, offset)
        assert written(outcome.decisions) == written(same.decisions)
        assert outcome.state == same.state
        assert (outcome.charges, outcome.refused) == (same.charges, same.refused)
        states[place], kept[place] = outcome.state, same.kept
        offset += 1


def test_an_empty_state_begins_a_run() -> None:
    engine = STANDARD.engine()
    first = engine.step(b"", turn(0), AT_MS)

    assert Feed(stored=first.state).state.turns == 1
    assert engine.step(b"", turn(0), AT_MS).state == first.state


def test_any_state_may_be_stepped_again() -> None:
    engine = STANDARD.engine()
    states = states_of(engine, 6)

    for n in (5, 0, 3, 3, 1, 5):
        assert engine.step(states[n], turn(n), AT_MS + n).state == states[n + 1]


def test_a_copy_of_a_state_is_that_state() -> None:
    engine = STANDARD.engine()
    states = states_of(engine, 5)
    copied = bytes(bytearray(states[4]))
    assert engine.step(copied, turn(4), AT_MS + 4).state == states[5]


def test_a_skipped_event_only_moves_the_position() -> None:
    engine = STANDARD.engine()
    outcome = engine.step(b"", turn(0), AT_MS, 7)
    expected = Feed(stored=outcome.state)
    skipped = engine.states.packed(engine.skip(outcome.kept, 8))
    expected.state.offset = 8
    assert skipped == expected.stored


class Failing:
    """A policy that fails for one workflow."""

    def rules(self, workflow: str, tenant: str, tier: str) -> Any:
        if workflow == "bad":
            raise LookupError(workflow)
        return STANDARD.rules(workflow, tenant, tier)


@pytest.mark.parametrize("last", [True, False], ids=["the last state", "an earlier one"])
def test_a_failing_step_leaves_its_state_usable(*, last: bool) -> None:
    engine = Feed(Failing()).engine
    states = states_of(engine, 3)
    if last:
        states[3] = engine.step(states[2], turn(2), AT_MS + 2).state
    else:
        engine.step(states[1], turn(1), AT_MS + 1)
    expected = STANDARD.engine().step(bytes(bytearray(states[3])), turn(3), AT_MS + 3)

    for _ in range(2):
        with pytest.raises(LookupError):
            engine.step(states[3], turn(9, workflow="bad"), AT_MS + 9)
    again = engine.step(states[3], turn(3), AT_MS + 3)

    assert again.state == expected.state
    assert written(again.decisions) == written(expected.decisions)


def test_a_run_that_begins_after_a_failure_is_new() -> None:
    engine = Feed(Failing()).engine
    with pytest.raises(LookupError):
        engine.step(b"", turn(9, workflow="bad"), AT_MS)

    assert engine.step(b"", turn(0), AT_MS).state == STANDARD.engine().step(b"", turn(0), AT_MS).state


def test_what_is_no_state_is_refused_and_harms_no_other() -> None:
    engine = STANDARD.engine()
    states = states_of(engine, 3)

    for raw in (states[3][:-1], states[3] + b"\0", b"\2", states[3][:200]):
        with pytest.raises(StateError):
            engine.step(raw, turn(3), AT_MS)
    assert engine.step(states[2], turn(2), AT_MS + 2).state == states[3]


def test_charges_are_those_of_the_step_alone() -> None:
    engine = STANDARD.engine()
    spending = {"usage": {"input_tokens": 9}, "session_id": "s"}
    first = engine.step(b"", turn(0, **spending), AT_MS, 7)
    second = engine.step(first.state, turn(1, **spending), AT_MS, 8)

    assert [(charge.offset, charge.tokens) for charge in (*first.charges, *second.charges)] == [(7, 9), (8, 9)]
    assert engine.step(second.state, turn(1, **spending), AT_MS, 9).charges == []  # a duplicate


def test_a_refused_event_says_why() -> None:
    engine = STANDARD.engine()
    bound = engine.step(b"", turn(0, token="mine"), AT_MS).state

    for state in (bound, Feed(stored=bound).state):
        outcome = engine.step(state, turn(1, token="another"), AT_MS)
        assert (outcome.decisions, outcome.charges, outcome.refused) == ([], [], STRANGER)
    assert engine.step(bound, turn(1, token="mine"), AT_MS).refused is None


@given(
    event_id=st.text(min_size=1, max_size=40),
    first=st.sampled_from([
        {"node": "coder", "output": "x"}, {"type": "run.started"}, {"type": "user.message"},
        {"type": "turn.started", "node": "coder"}, {"type": "halt.acknowledged"},
        {"type": "task.created", "task_id": "T1"},
    ]),
    closed=st.sampled_from(["exceeded", "stop"]),
)  # fmt: skip
def test_no_id_that_a_publisher_sends_hides_a_command_or_an_event_of_a_worker(
    event_id: str, first: Raw, closed: str
) -> None:
    engine = POLICIES[0].engine()
    command: Event = OperatorStop(w=WIRE_VERSION, run_id="r", event_id=event_id, by="ann")
    if closed == "exceeded":
        command = BudgetReached(
            w=WIRE_VERSION, run_id="r", event_id=event_id, account="user:u", window="day", unit="tokens",
            used=2, limit=1, rung="exceeded",
        )  # fmt: skip
    state = engine.step(b"", event_of({"run_id": "r", "event_id": event_id, **first}), AT_MS).state
    outcome = engine.step(state, command, AT_MS + 1)
    assert [one.severity for one in outcome.decisions] == ["halt"]
    assert engine.step(outcome.state, command, AT_MS + 2).decisions == []  # delivered twice
