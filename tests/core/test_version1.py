"""States that the version before has stored are read, and their runs decide as they would have.

`states/version1.json` was written with the code of that version: for golden traces that fill most fields between
them, the state after two thirds of the events.

    for title, trace in chosen:
        feed = Feed(policy_of(trace))
        feed.all(trace["events"][: max(1, len(trace["events"]) * 2 // 3)])
        print(file, title, len(taken), dump(feed.state).hex())
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from streamproc.core.decision import encode_decision
from streamproc.core.records import StateError
from streamproc.core.run_state import RunState, dump, load
from streamproc.core.upgrade import upgrade
from streamproc.worker.codec import FRAME, decode_run, peek_run, peek_whole
from streamproc.worker.eviction import FINISHED, HALTED, STUB, rank_of
from tests.feeding import Feed, Raw
from tests.states import shown
from tests.test_golden import TRACES, policy_of

STORED: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "states" / "version1.json").read_text(encoding="utf-8")
)
every_state = pytest.mark.parametrize("stored", [pytest.param(one, id=one["title"]) for one in STORED])


def state_of(stored: dict[str, Any]) -> bytes:
    return bytes.fromhex(stored["state"])


def trace_of(stored: dict[str, Any]) -> Raw:
    [trace] = [one for one in TRACES[stored["file"]] if one["title"] == stored["title"]]
    return trace


def framed(state: bytes, halt: bytes = b"") -> bytes:
    """Return a state as a worker has stored it."""
    return FRAME.pack(len(state), 0) + state + halt


def whole(trace: Raw, taken: int) -> tuple[Feed, list[bytes]]:
    """Return a run after the first events, and the decisions on the others."""
    feed = Feed(policy_of(trace))
    feed.all(trace["events"][:taken])
    return feed, [encode_decision(one) for one in Feed(policy_of(trace)).all(trace["events"])]


@every_state
def test_a_run_decides_as_it_would_have(stored: dict[str, Any]) -> None:
    trace, taken = trace_of(stored), stored["events"]
    first, expected = whole(trace, taken)
    feed = Feed(policy_of(trace))
    feed.state = load(state_of(stored))
    found = [encode_decision(one) for one in feed.all(trace["events"][taken:])]
    assert found == (expected[-len(found) :] if found else [])
    assert len(found) == len(first.all(trace["events"][taken:]))
    assert feed.engine.status(feed.state, "r") == first.engine.status(first.state, "r")


@every_state
def test_a_state_holds_what_the_same_events_leave_today(stored: dict[str, Any]) -> None:
    feed, _ = whole(trace_of(stored), stored["events"])
    found, expected = shown(load(state_of(stored))), shown(feed.state)
    for one in (found, expected):
        del one["size_left"]  # in other bytes
        one["cold"].halted_by = 0  # unknown to that version
        one["calls"]["writes"].pop("stamp")  # unused
        if not one["text_streak"]["count"]:  # what is left of one that has ended
            one["text_streak"] = {name: one["text_streak"][name] for name in ("last_text_turn", "text_turn_before")}
        for node in one["nodes"]:
            if not node["attempted"]:
                del node["attempted_tool"], node["attempted_call"]
    assert found == expected


@every_state
def test_a_state_is_stored_again_in_the_current_version(stored: dict[str, Any]) -> None:
    state = load(state_of(stored))
    assert dump(load(dump(state))) == dump(state)
    assert len(dump(state)) <= 4_096


@every_state
def test_a_worker_peeks_at_both_versions_alike(stored: dict[str, Any]) -> None:
    for halt in (b"", b'{"id": "x"}'):
        raw = framed(state_of(stored), halt)
        state, found_halt = decode_run(raw)
        assert found_halt == (halt or None)
        assert peek_run(raw) == (state.offset, rank_of(state, found_halt))
        known = peek_whole(raw)
        assert known is not None
        head, scope = known
        assert (head.offset, head.turns, head.halted, head.finished) == (
            state.offset, state.turns, state.halted, state.finished,
        )  # fmt: skip
        assert (scope.workflow, scope.tenant, scope.user) == (
            state.scope.workflow, state.scope.tenant, state.scope.user,
        )  # fmt: skip


def test_the_states_have_all_ranks_that_are_told_apart() -> None:
    ranks = {(peek_run(framed(state_of(one), halt)) or (0, -1))[1] for one in STORED for halt in (b"", b"{}")}
    assert {FINISHED, HALTED, STUB} <= ranks


@every_state
def test_a_loaded_object_keeps_nothing_of_its_last_state(stored: dict[str, Any]) -> None:
    used = load(state_of(STORED[-1]))
    assert dump(load(state_of(stored), used)) == dump(load(state_of(stored)))


def test_a_state_from_before_the_gates_is_read() -> None:
    """It ends before `last_result`, and streaks of texts have no count of the node's own turns."""
    made = {"node": "coder", "output": "Wrote main.py: prints the first hundred primes."}
    feed = Feed()
    stored = next(one for one in STORED if load(state_of(one)).nodes.rows[0].output.count)
    fields: list[Any] = msgspec.msgpack.decode(state_of(stored), strict=False)
    for node in fields[30].values():
        node[3] = node[3] and node[3][:4]
    cut = load(msgspec.msgpack.encode(fields[:87]))
    assert cut.novelty.last_result == -1
    assert {row.output.own for row in cut.nodes.rows if row.output.count} == {1}
    feed.state = cut
    feed.raw(made)


@pytest.mark.parametrize("change", [
    lambda raw: raw[:-1], lambda raw: raw + b"\0", lambda raw: raw[:3] + b"\x02" + raw[4:],
    lambda raw: b"\xdc\x00\x01\x01", lambda raw: raw[:20] + b"\xff" * 20 + raw[40:],
])  # fmt: skip
def test_damaged_bytes_are_refused(change: Any) -> None:
    for stored in STORED:
        with pytest.raises(StateError):
            load(change(state_of(stored)))


@pytest.mark.parametrize(("place", "value"), [(3, 2**31), (4, -1), (17, {-1: 0}), (18, {2**32: 0}), (21, 2**40)])
def test_numbers_that_do_not_fit_are_refused(place: int, value: object) -> None:
    fields: list[Any] = msgspec.msgpack.decode(state_of(STORED[0]), strict=False)
    fields[place] = value
    with pytest.raises(StateError):
        upgrade(msgspec.msgpack.encode(fields), RunState())
