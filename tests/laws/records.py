"""Records of the turns topic for Hypothesis: valid and invalid ones, as publishers in any language may write them."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

from streamproc.model.wire import TYPED

EVENT_TYPES: Final = tuple(kind.type for kind in TYPED)

junk: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["NaN", "1e999", "9999-12-31T23:59:59Z", "\x00", "x" * 300, "run.started", "-1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
"""Any JSON."""

_name = st.text(max_size=4) | st.sampled_from(["a", "b", "c"])
_number = st.integers(0, 3) | st.sampled_from([2**53, 2**64 - 1, 2**64, 10**30])
_content = st.lists(_number, min_size=2, max_size=4)
_call = st.tuples(_name, _number, _number, _number, st.integers(0, 4)).map(list)
_state = st.sampled_from(["READY", "IMPLEMENTING", "QA_REVIEW", "REWORK", "VALIDATION", "BLOCKED", "DONE"])
_guard = st.sampled_from(["dod", "init", "design", "artifacts", "x"])
_pair = st.lists(_name, min_size=2, max_size=2)

_WIRE: Final[dict[str, st.SearchStrategy[Any]]] = {
    "event_id": _name,
    "at": st.integers(-5, 10**20),
    "seq": _number,
    "workflow": _name,
    "tier": st.sampled_from(["free", "pro", "x"]),
    "labels": st.dictionaries(_name, _name, max_size=2),
    "from": _name,
    "output": _content,
    "structured": _content,
    "artifact": _content,
    "docs": _content,
    "query": _content,
    "tests": st.tuples(_number, st.integers(0, 3), st.none() | st.integers(0, 3), st.none() | st.just(3)).map(list),
    "progress": st.dictionaries(_name, st.floats(-1e300, 1e300), max_size=3),
    "errors": st.tuples(_number, _number, st.integers(0, 3), _name, _name, st.booleans()).map(list),
    "calls": st.lists(_call, max_size=3),
    "usage": st.lists(st.integers(0, 2**53), max_size=6),
    "next": _name,
    "round": _number,
    "convergence": st.floats(0, 1),
    "graph": st.fixed_dictionaries({}, optional={
        "nodes": st.lists(_name | st.fixed_dictionaries({"id": _name, "terminal": junk}), max_size=3) | junk,
        "edges": st.lists(_pair | st.fixed_dictionaries({"from": _name, "to": _name}), max_size=6) | junk,
        "terminals": st.lists(_name, max_size=2) | junk,
    }),
    "budgets": st.dictionaries(st.sampled_from(["maxSteps", "maxRounds", "maxCostUsd", "maxCycleIterations", "x"]),
                               st.integers(-3, 9) | _number, max_size=3),
    "by": _name,
    "reason": _name,
    "status": _name,
    "data": st.dictionaries(_name, junk, max_size=2),
    "task_id": _name,
    "to": _name | _state,
    "state": _name | _state,
    "verdict": st.sampled_from(["APPROVED", "REJECTED", "?"]),
    "tasks": st.lists(_name, max_size=6),
    "count": _number,
    "depends_on": st.lists(_name, max_size=3),
    "completed": _number,
    "moved": st.lists(st.tuples(_name, _state).map(list), max_size=3),
    "failure_class": _name,
    "evidence": st.dictionaries(_guard, st.tuples(st.booleans(), st.lists(_name, max_size=2)).map(list), max_size=3),
}  # fmt: skip

fingerprinted: Final = st.fixed_dictionaries(
    {
        "w": st.just(1),
        "type": st.sampled_from(["turn"] * 5 + list(EVENT_TYPES)),
        "run_id": st.just("r"),
        "node": st.sampled_from(["a", "b"]),
    },
    optional=_WIRE,
)
"""Fingerprinted events; most can be decoded."""

_RAW: Final[dict[str, st.SearchStrategy[Any]]] = {
    **{name: _WIRE[name] for name in ("event_id", "seq", "workflow", "labels", "from", "graph", "round", "progress")},
    "at": st.sampled_from(["2026-01-31T12:00:00Z", 1_767_225_600_000, "yesterday", 5]),
    "output": st.text(max_size=300),
    "structured_output": junk,
    "artifact": st.text(max_size=5) | st.dictionaries(_name, _name, max_size=2),
    "docs": st.text(max_size=20),
    "tests": st.fixed_dictionaries({}, optional={"failed": st.lists(_name, max_size=3), "passed": _number}),
    "errors": st.lists(_name | st.fixed_dictionaries({"message": _name}, optional={"class": _name}), max_size=3),
    "tool_calls": st.lists(
        st.fixed_dictionaries({"name": _name}, optional={"args": junk, "result": junk, "error": junk}), max_size=3
    ),
    "usage": st.fixed_dictionaries({}, optional={"cost_usd": junk, "input_tokens": _number, "duration_ms": junk}),
    "budgets": st.dictionaries(st.sampled_from(["maxSteps", "max_cost_usd", "maxRounds", "x"]), junk, max_size=3),
    "decision": st.fixed_dictionaries({"next": _name}),
    "query": _name,
    "task_id": _name,
    "to": _state | junk,
    "evidence": st.dictionaries(_guard, junk, max_size=3) | junk,
    "approvals": junk,
    "depends_on": st.lists(_name, max_size=3) | junk,
    "tasks": st.lists(_name | junk, max_size=3) | junk,
    "verdict": st.sampled_from(["approved", "no"]) | junk,
    "completed": junk,
    "transitions": junk,
    "reason": junk,
    "unheard_of": junk,
}  # fmt: skip

raw: Final = st.fixed_dictionaries(
    {"run_id": st.just("r") | _name, "node": st.sampled_from(["a", "b"]) | junk},
    optional=_RAW | {"type": st.sampled_from(EVENT_TYPES) | junk, "w": junk},
)
"""Raw events; some are valid."""

spoilt: Final = st.builds(
    lambda record, name, value: record | {name: value},
    raw | fingerprinted,
    st.sampled_from(sorted({*_RAW, *_WIRE, "run_id", "node", "type", "w"})),
    junk,
)
"""Events with arbitrary JSON in one field."""


def written(record: Any) -> bytes:
    """Return a record as JSON bytes, with integers of any size."""
    return json.dumps(record, ensure_ascii=False).encode()


def _cut(record: Any, at: int, put: bytes) -> bytes:
    whole = written(record)
    at %= len(whole)
    return whole[:at] + put + whole[at + len(put) :]


torn: Final = st.builds(_cut, fingerprinted | raw, st.integers(0, 10_000), st.binary(max_size=3))
"""Bytes of an event with a few of them overwritten."""
