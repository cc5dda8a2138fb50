"""Traces for the benchmarks: fingerprinted turns of real runs, and seeded made-up turns with every kind of evidence.

The packaged samples are 40 real trajectories. A long run repeats them, each pass with its own hashes: repetitions
within a pass remain, and no pass repeats another. The samples carry no tests, artifacts, errors or progress, and usage
on few turns; the made-up turns carry all of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import count, islice
from typing import Final, NamedTuple

import msgspec

from streamproc.fingerprint import fingerprint
from streamproc.model.wire import (
    ANSWERED,
    WIRE_VERSION,
    Call,
    Content,
    Errors,
    Event,
    RunFinished,
    RunStarted,
    Tests,
    Turn,
    Usage,
)
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file

TURN_MS: Final = 1_000  # between two turns of a run whose source has no times
HASH: Final = 2**64 - 1

# Declared on each run: high enough to enable the budget detectors without a breach.
BUDGETS: Final = {
    "maxTurnsPerNode": 10**9, "maxRuntimeMsPerNode": 10**12, "maxCycleIterations": 10**9, "maxCycleRuntimeMs": 10**12,
    "maxCycleCost": 10**12, "maxSteps": 10**9, "maxCostUsd": 10**12,
}  # fmt: skip


class Logged(NamedTuple):
    """An event and its log time."""

    event: Event
    at_ms: int


@cache
def sample_runs(start_ms: int = 1_750_000_000_000) -> list[list[Logged]]:
    """Return the packaged trajectories, fingerprinted, each beginning at `start_ms`."""
    runs: dict[str, list[Logged]] = {}
    first: dict[str, int] = {}
    with trajectory_file() as path:
        for line in Source(path):
            raw = line.raw
            turns = runs.setdefault(raw.run_id, [])
            known = turns[-1].at_ms + TURN_MS if turns else start_ms
            at_ms = known if raw.at is None else start_ms + raw.at - first.setdefault(raw.run_id, raw.at)
            event = fingerprint(raw)
            event.at = max(at_ms, turns[-1].at_ms if turns else start_ms)
            turns.append(Logged(event, event.at))
    return list(runs.values())


def started(run_id: str, at_ms: int) -> Logged:
    """Return the start of a run that enables every detector."""
    return Logged(RunStarted(w=WIRE_VERSION, run_id=run_id, event_id=f"{run_id}:s", at=at_ms, budgets=BUDGETS), at_ms)


def finished(run_id: str, at_ms: int) -> Logged:
    """Return the end of a run."""
    return Logged(RunFinished(w=WIRE_VERSION, run_id=run_id, event_id=f"{run_id}:f", at=at_ms, status="done"), at_ms)


def real_turns(run_id: str, seed: int = 0) -> Iterator[Logged]:
    """Yield one endless run: the samples' turns, pass after pass, in an order given by the seed."""
    runs = list(sample_runs())
    dice = random.Random(seed)
    at_ms = runs[0][0].at_ms
    number = count()
    while True:
        dice.shuffle(runs)
        salt = dice.getrandbits(63)
        for run in runs:
            for event, _ in run:
                at_ms += TURN_MS
                yield Logged(_salted(event, salt, run_id, f"{run_id}:{next(number)}", at_ms), at_ms)


def _salted(event: Event, salt: int, run_id: str, event_id: str, at_ms: int) -> Event:
    """Return the same turn with other hashes."""
    assert isinstance(event, Turn)
    changed = {
        name: msgspec.structs.replace(value, exact=value.exact ^ salt, norm=value.norm ^ salt)
        for name in ("output", "structured", "artifact", "docs")
        if (value := getattr(event, name)) is not None
    }
    calls = tuple(
        msgspec.structs.replace(call, key=call.key ^ salt, exact=call.exact ^ salt, norm=call.norm ^ salt)
        for call in event.calls
    )
    return msgspec.structs.replace(event, run_id=run_id, event_id=event_id, at=at_ms, calls=calls, **changed)


_NODES: Final = ("planner", "coder", "reviewer", "verifier")
_TOOLS: Final = ("bash", "read_file", "edit_file", "search", "run_tests")


def made_up_turns(run_id: str, seed: int = 0) -> Iterator[Logged]:
    """Yield one endless run of four nodes with every kind of evidence; a sixth of its contents repeats."""
    dice = random.Random(seed)
    at_ms = 1_750_000_000_000
    pool: list[int] = []
    failing = 12

    def hashed() -> int:
        """Return a hash: mostly new, sometimes one of the last 40."""
        if pool and dice.random() < 1 / 6:
            return dice.choice(pool[-40:])
        pool.append(dice.getrandbits(64))
        del pool[:-40]
        return pool[-1]

    for number in count():
        node = _NODES[number % 4] if dice.random() < 0.8 else dice.choice(_NODES)
        at_ms += dice.randrange(200, 20_000)
        turn = Turn(w=WIRE_VERSION, run_id=run_id, event_id=f"{run_id}:{number}", node=node, at=at_ms, model="m-1")
        turn.calls = tuple(_call(dice, hashed()) for _ in range(dice.choice((0, 1, 1, 1, 2))))
        if dice.random() < 0.6:
            turn.output = _content(hashed(), dice.randrange(20, 4_000))
        if node == "coder" and dice.random() < 0.7:
            turn.artifact = _content(hashed(), dice.randrange(100, 20_000))
        if node == "verifier":
            failing = min(40, max(0, failing + dice.choice((-2, -1, 0, 0, 1, 2))))
            named = ("tests/test_a.py::test_b",) if failing else ()
            turn.tests = Tests(failing * 0x9E3779B97F4A7C15 & HASH, failing, 40 - failing, 40, named)
        if dice.random() < 0.1:
            turn.errors = Errors(hashed(), hashed(), 1, "AssertionError: expected 3, got 4", "AssertionError")
        if node == "planner" and dice.random() < 0.3:
            turn.progress = {"coverage": round(dice.random(), 3), "checklist": float(dice.randrange(20))}
        tokens = dice.randrange(200, 9_000)
        turn.usage = Usage(tokens, tokens // 5, 0, 0, tokens * 3, dice.randrange(300, 60_000))
        yield Logged(turn, at_ms)


def _content(value: int, size: int) -> Content:
    return Content(value, value ^ 0x5555, value * 3 & HASH, size)


def _call(dice: random.Random, value: int) -> Call:
    return Call(dice.choice(_TOOLS), value, value * 5 & HASH, value * 7 & HASH, ANSWERED)


def run_of(turns: int, source: Iterator[Logged]) -> list[Logged]:
    """Return the next `turns` turns of a source."""
    return list(islice(source, turns))
