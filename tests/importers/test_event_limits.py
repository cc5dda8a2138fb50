"""Fitting what a log holds to the limits of raw events, and pairing calls with results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.importers.event_limits import fit_to_limits, name, seconds
from streamproc.importers.pairing import WAITING_MAX, Pairing
from streamproc.model.raw_events import RawTurn, parse_raw

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
CALL = st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "args", "result", "error", "id", "retryable"), JSON))
ERROR = st.fixed_dictionaries({}, optional=dict.fromkeys(("message", "class", "retryable"), JSON))
USAGE = st.fixed_dictionaries({}, optional=dict.fromkeys(("input_tokens", "duration_ms", "cost_usd"), JSON))
FIELDS = ("node", "event_id", "at", "output", "artifact", "model", "provider", "session_id", "parent_run_id", "user")
LISTS = {"tool_calls": st.lists(CALL, max_size=3), "errors": st.lists(ERROR, max_size=3), "usage": USAGE}


@given(event=st.fixed_dictionaries({"run_id": JSON}, optional=dict.fromkeys(FIELDS, JSON) | LISTS))
def test_whatever_stands_in_a_field_is_accepted(event: dict[str, Any]) -> None:
    assert parse_raw(fit_to_limits(event)).unknown_fields == ()


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [90, 97, 98, 99, 300, 3_000])
def test_deep_values_become_text(levels: int) -> None:
    event = {"run_id": "r", "node": "n", "tool_calls": [{"name": "x", "args": deep(levels), "result": deep(levels)}]}
    parsed = parse_raw(fit_to_limits(event))
    assert isinstance(parsed, RawTurn)
    assert isinstance(parsed.tool_calls[0].args, list if levels <= 97 else str)


def test_long_names_keep_their_beginning_and_differ() -> None:
    one, other = (name("ü" * 200 + end) for end in "ab")
    assert one != other
    assert one[:100] == other[:100] == "ü" * 100
    assert len(one.encode()) <= 256
    assert name("ü" * 128) == "ü" * 128


def test_more_than_a_thousand_calls_and_errors_are_cut() -> None:
    event = {"run_id": "r", "tool_calls": [{"name": "x"}] * 1_001, "errors": [{"message": "x"}] * 1_001}
    found = fit_to_limits(event)
    assert (len(found["tool_calls"]), len(found["errors"])) == (1_000, 1_000)
    parse_raw(found)


def test_a_failure_without_a_text_is_still_one() -> None:
    pairing = Pairing()
    pairing.add({"run_id": "r", "tool_calls": [{"name": "x", "id": "1"}]}, 1, "line")
    assert pairing.answer("1", "", failed=True)
    assert [found.event["tool_calls"][0] for found in pairing.rest()] == [{"name": "x", "id": "1", "error": True}]


@pytest.mark.parametrize(("value", "at"), [(1.5, 1500), (None, None), (True, None), ("1", None), (1e300, None)])
def test_seconds_are_milliseconds(value: Any, at: int | None) -> None:
    assert seconds(value) == at


def test_events_wait_behind_an_open_call_up_to_a_limit() -> None:
    pairing = Pairing()
    pairing.add({"run_id": "r", "tool_calls": [{"name": "x", "id": "1"}]}, 0, "line")
    for number in range(1, WAITING_MAX):
        pairing.add({"run_id": "r", "output": "x"}, number, "line")
    assert list(pairing.complete()) == []
    pairing.add({"run_id": "r", "output": "x"}, WAITING_MAX, "line")
    assert [found.number for found in pairing.complete()] == list(range(WAITING_MAX))
    assert not pairing.answer("1", "late")


def test_the_answer_gives_the_turn_its_time_and_its_place() -> None:
    pairing = Pairing()
    pairing.add({"run_id": "r", "at": 946_684_800_000, "tool_calls": [{"name": "x", "id": "1"}]}, 1, "line")
    pairing.add({"run_id": "r", "output": "y"}, 2, "line")
    pairing.answer("1", "z", at=946_684_800_001)
    (first,) = pairing.complete()
    assert (first.number, first.event["at"], first.event["tool_calls"][0]["result"]) == (1, 946_684_800_001, "z")
