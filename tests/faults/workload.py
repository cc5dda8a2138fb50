"""Seeded logs of raw events: many runs at once, of which most come to be told of, each in a way of its own."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from streamproc.fingerprint import fingerprint
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Raw = dict[str, Any]

OPEN_RUNS: Final = 60  # at work at the same time
TURNS_MIN, TURNS_MAX = 12, 48  # of a run
SESSION: Final = "session"  # the kind of run that owes to an account: its events also cross the spend topic


class Sent(NamedTuple):
    """An event as a user writes it, and as the record that its publisher makes of it."""

    raw: Raw
    key: bytes
    value: bytes


def sent(raw: Raw) -> Sent:
    """What a publisher sends for an event."""
    return Sent(raw, raw["run_id"].encode(), wire.encode(fingerprint(parse_raw(raw))))


def events(seed: int) -> Iterator[Raw]:
    """Events of runs without end, a turn of one and then of another. The same seed gives the same events."""
    dice = random.Random(seed)
    number = 0
    at_work: list[Iterator[Raw]] = []
    while True:
        while len(at_work) < OPEN_RUNS:
            at_work.append(_run(f"run-{seed}-{number}", random.Random(f"{seed}/{number}")))
            number += 1
        place = dice.randrange(OPEN_RUNS)
        event = next(at_work[place], None)
        if event is None:
            del at_work[place]
        else:
            yield event


def _run(run_id: str, dice: random.Random) -> Iterator[Raw]:
    """One run, with the ids of its events."""
    kind = dice.choice(list(_KINDS))
    turns = dice.randrange(TURNS_MIN, TURNS_MAX)
    trouble = dice.randrange(2, turns)  # the turn from which on the run is stuck
    scope = {"workflow": kind, "labels": {"kind": kind}}
    for ordinal, event in enumerate(_life(kind, dice, turns, trouble)):
        yield {"run_id": run_id, "event_id": f"{run_id}/{ordinal}", **(scope if not ordinal else {}), **event}


def _life(kind: str, dice: random.Random, turns: int, trouble: int) -> Iterator[Raw]:
    yield {"type": "run.started", "budgets": _BUDGETS.get(kind, {})}
    for number in range(turns):
        turn = _KINDS[kind](number, dice) if number >= trouble else _new(number, dice)
        yield {"node": "coder", "usage": {"input_tokens": 400, "output_tokens": 100, "cost_usd": "0.01"}, **turn}
    if kind != SESSION and dice.random() < 0.5:
        yield {"type": "run.finished", "status": "done"}


def _new(number: int, dice: random.Random) -> Raw:
    return {
        "output": f"Step {number}: {dice.getrandbits(64):x}",
        "tool_calls": [{"name": "edit", "args": {"at": dice.getrandbits(32)}, "result": f"{dice.getrandbits(64):x}"}],
    }


def _says_the_same(_number: int, _dice: random.Random) -> Raw:
    return {"output": "I will try again."}


def _goes_in_a_circle(number: int, _dice: random.Random) -> Raw:
    return {"node": ("planner", "critic")[number % 2], "output": ("Plan A.", "Not good enough.")[number % 2]}


def _calls_the_same(_number: int, _dice: random.Random) -> Raw:
    return {"tool_calls": [{"name": "read", "args": {"path": "a.py"}, "result": "x = 1"}]}


def _tests_stay_red(number: int, dice: random.Random) -> Raw:
    return {
        "node": "verifier",
        "output": f"{dice.getrandbits(64):x}",
        "tests": {"failed": ["test_a", "test_b"], "passed": 8, "total": 10},
    }


def _fails_again(_number: int, dice: random.Random) -> Raw:
    return {
        "output": f"{dice.getrandbits(64):x}",
        "errors": [{"message": "KeyError: 'name'", "class": "KeyError", "retryable": False}],
    }


_KINDS: Final[dict[str, Callable[[int, random.Random], Raw]]] = {
    "honest": _new, "same": _says_the_same, "circle": _goes_in_a_circle, "call": _calls_the_same,
    "tests": _tests_stay_red, "error": _fails_again, "budget": _new, SESSION: _new,
}  # fmt: skip

_BUDGETS: Final[dict[str, Raw]] = {
    "budget": {"maxSteps": 10, "maxCostUsd": "0.20"},
    SESSION: {"maxSessionTokens": 8_000},
}


class Workload:
    """So many events of a seed; what was taken so far, by id."""

    def __init__(self, seed: int) -> None:
        self._events = events(seed)
        self.by_id: dict[str, Raw] = {}

    def take(self, count: int) -> list[Sent]:
        """The next events."""
        taken = []
        for _ in range(count):
            one = sent(next(self._events))
            self.by_id[one.raw["event_id"]] = one.raw
            taken.append(one)
        return taken


def line(raw: Raw, at_ms: int) -> bytes:
    """An event as a line of a JSONL, at the time that the log gave it."""
    return orjson.dumps({**raw, "at": at_ms}) + b"\n"
