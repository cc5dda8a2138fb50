"""Print, for many traces, a hash of all decisions and of the state after every event. Run it once with each core."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.traces import made_up_turns, real_turns, run_of
from streamproc.core.compiled import core_kind
from streamproc.detectors import MODULES
from streamproc.model.wire import Event
from streamproc.policy import Policy, load_policy
from tests.feeding import STANDARD, Feed, Raw, event_of
from tests.laws.traces import EVENTS, identified
from tests.worker.slices import effects, made_slice, sizes

GOLDEN: Final = Path(__file__).parents[1] / "golden"
POLICIES: Final = tuple(load_policy(name) for name in ("standard", "loop-safety", "deliberation", "tickets"))
DRAWN: Final = 600  # traces of random blocks, some of them repeated
LONG_TURNS: Final = 3_000
SLICES: Final = 400  # of whole and broken records, in a worker


def golden() -> Iterator[tuple[str, list[Raw], Policy]]:
    for file in sorted(GOLDEN.glob("*.json")):
        for trace in json.loads(file.read_text("utf-8")) if file.stem != "samples" else ():
            yield f"golden: {trace['title']}", trace["events"], load_policy(trace.get("preset", "standard"))


def examples() -> Iterator[tuple[str, list[Raw], Policy]]:
    for module in MODULES:
        for example in (*module.HEALTHY, *module.STUCK):
            policy = STANDARD if example.policy is None else load_policy(example.policy)
            yield f"{module.DETECTOR.code}: {example.title}", example.turns, policy


def drawn() -> Iterator[tuple[str, list[Raw], Policy]]:
    for seed in range(DRAWN):
        rng = random.Random(seed)
        blocks = [(rng.choices(EVENTS, k=rng.randint(1, 4)), rng.randint(1, 6)) for _ in range(rng.randint(1, 12))]
        raws = [raw for block, times in blocks for _ in range(times) for raw in block]
        yield f"drawn: {seed}", identified(raws), POLICIES[seed % len(POLICIES)]


def verdict(feed: Feed, events: Iterable[tuple[Event, int | None]]) -> str:
    digest, count = hashlib.sha256(), 0
    for event, at_ms in events:
        for decision in feed.event(event, at_ms):
            digest.update(msgspec.json.encode(decision))
            count += 1
        digest.update(feed.stored)
        digest.update(repr(feed.engine.next_deadline(feed.state)).encode())
    return f"{count} {digest.hexdigest()}"


def lines() -> Iterator[str]:
    yield core_kind()
    for name, raws, policy in (*golden(), *examples(), *drawn()):
        events = [event_of({"run_id": "r", **raw}) for raw in raws]
        yield f"{name} {verdict(Feed(policy), [(event, event.at) for event in events])}"
    for name, turns in (("real", real_turns), ("made-up", made_up_turns)):
        trace = run_of(LONG_TURNS, turns("r", 7))
        yield f"{name} {verdict(Feed(), [(one.event, one.at_ms) for one in trace])}"
    for seed in range(SLICES):
        rng = random.Random(seed)
        found = sorted((name, repr(value)) for name, value in effects(made_slice(rng), sizes(rng)).items())
        yield f"a worker's slices: {seed} {hashlib.sha256(repr(found).encode()).hexdigest()}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()))
