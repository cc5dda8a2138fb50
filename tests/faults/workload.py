"""Seeded raw events of many concurrent runs, most of which get stuck in various ways."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import orjson

from streamproc.fingerprint import fingerprint
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw

Raw = dict[str, Any]

OPEN_RUNS: Final = 60  # at the same time
TURNS_MIN, TURNS_MAX = 12, 48  # per run
SESSION: Final = "session"  # the kind of run with an account: its charges also cross the spend topic


class Sent(NamedTuple):
    """An event as a user writes it, and the record that its publisher sends."""

    raw: Raw
    key: bytes
    value: bytes


def sent(raw: Raw) -> Sent:
    """Return the record that a publisher sends for an event."""
    return Sent(raw, raw["run_id"].encode(), wire.encode(fingerprint(parse_raw(raw))))


def events(seed: int) -> Iterator[Raw]:
    """Yield interleaved events of runs without end. The same seed gives the same events."""
    rng = random.Random(seed)
    number = 0
    open_runs: list[Iterator[Raw]] = []
    while True:
        while len(open_runs) < OPEN_RUNS:
            open_runs.append(_run(f"run-{seed}-{number}", random.Random(f"{seed}/{number}")))
            number += 1
        place = rng.randrange(OPEN_RUNS)
        event = next(open_runs[place], None)
        if event is None:
            del open_runs[place]
        else:
            yield event


def _run(run_id: str, rng: random.Random) -> Iterator[Raw]:
    """Yield the events of one run, with ids."""
    kind = rng.choice(list(_KINDS))
    turns = rng.randrange(TURNS_MIN, TURNS_MAX)
    trouble = rng.randrange(2, turns)  # the run is stuck from this turn on
    scope = {"workflow": kind, "labels": {"kind": kind}}
    for ordinal, event in enumerate(_events(kind, rng, turns, trouble)):
        yield {"run_id": run_id, "event_id": f"{run_id}/{ordinal}", **(scope if not ordinal else {}), **event}


def _events(kind: str, rng: random.Random, turns: int, trouble: int) -> Iterator[Raw]:
    yield {"type": "run.started", "budgets": _BUDGETS.get(kind, {})}
    for number in range(turns):
        turn = _KINDS[kind](number, rng) if number >= trouble else _new(number, rng)
        yield {"node": "coder", "usage": {"input_tokens": 400, "output_tokens": 100, "cost_usd": "0.01"}, **turn}
    if kind != SESSION and rng.random() < 0.5:
        yield {"type": "run.finished", "status": "done"}


def _new(number: int, rng: random.Random) -> Raw:
    return {
        "output": f"Step {number}: {rng.getrandbits(64):x}",
        "tool_calls": [{"name": "edit", "args": {"at": rng.getrandbits(32)}, "result": f"{rng.getrandbits(64):x}"}],
    }


def _repeats_its_output(_number: int, _dice: random.Random) -> Raw:
    return {"output": "I will try again."}


def _cycles(number: int, _dice: random.Random) -> Raw:
    return {"node": ("planner", "critic")[number % 2], "output": ("Plan A.", "Not good enough.")[number % 2]}


def _repeats_a_call(_number: int, _dice: random.Random) -> Raw:
    return {"tool_calls": [{"name": "read", "args": {"path": "a.py"}, "result": "x = 1"}]}


def _keeps_failing_tests(number: int, rng: random.Random) -> Raw:
    return {
        "node": "verifier",
        "output": f"{rng.getrandbits(64):x}",
        "tests": {"failed": ["test_a", "test_b"], "passed": 8, "total": 10},
    }


def _repeats_an_error(_number: int, rng: random.Random) -> Raw:
    return {
        "output": f"{rng.getrandbits(64):x}",
        "errors": [{"message": "KeyError: 'name'", "class": "KeyError", "retryable": False}],
    }


_KINDS: Final[dict[str, Callable[[int, random.Random], Raw]]] = {
    "honest": _new, "same": _repeats_its_output, "circle": _cycles, "call": _repeats_a_call,
    "tests": _keeps_failing_tests, "error": _repeats_an_error, "budget": _new, SESSION: _new,
}  # fmt: skip

_BUDGETS: Final[dict[str, Raw]] = {
    "budget": {"maxSteps": 10, "maxCostUsd": "0.20"},
    SESSION: {"maxSessionTokens": 8_000},
}


class Workload:
    """The events of a seed, with the raw events taken so far by id."""

    def __init__(self, seed: int) -> None:
        self._events = events(seed)
        self.by_id: dict[str, Raw] = {}

    def take(self, count: int) -> list[Sent]:
        """Return the next events."""
        taken = []
        for _ in range(count):
            one = sent(next(self._events))
            self.by_id[one.raw["event_id"]] = one.raw
            taken.append(one)
        return taken


def line(raw: Raw, at_ms: int) -> bytes:
    """Return an event as a line of JSONL with the time of the log."""
    return orjson.dumps({**raw, "at": at_ms}) + b"\n"
