"""Solved real runs with a grafted mechanical repeat: one of their turns, repeated several times."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from benchmarks.quality.labels import Episode, RawEvent, Trace
from benchmarks.quality.real import RealRun

WARN: Final = 2  # LOOP003: the same call with the same answer, byte for byte, in a row
HALT: Final = 3


def grafted(runs: Iterable[RealRun], seed: int = 0) -> Iterator[Trace]:
    """Yield one trace for each solved run with a repeatable turn, one whose calls occur nowhere else in the run."""
    for run in runs:
        dice = random.Random(f"{run.run_id}/{seed}")
        places = repeatable(run.events) if run.solved else []
        if places:
            yield _graft(run, dice.choice(places), dice.randint(HALT, 12), seed)


def _graft(run: RealRun, place: int, times: int, seed: int) -> Trace:
    again = {name: value for name, value in run.events[place].items() if name not in ("event_id", "seq")}
    events = (*run.events[: place + 1], *[again] * (times - 1), *run.events[place + 1 :])
    episode = Episode("LOOP003", place, place + times - 1, place + WARN - 1, place + HALT - 1, ("LOOP001", "LOOP002"))
    return Trace(f"grafts/{run.source}/{run.run_id}", seed, events, (episode,), recorded=True)


def repeatable(events: list[RawEvent]) -> list[int]:
    """Return the positions of turns with answered calls that occur nowhere else in their run. Failed calls are skipped:
    infrastructure errors are not repeats."""
    calls = Counter(_key(call) for event in events for call in event.get("tool_calls", ()))
    return [
        place
        for place, event in enumerate(events)
        if (made := event.get("tool_calls"))
        and all(call.get("result") is not None and not call.get("error") and calls[_key(call)] == 1 for call in made)
    ]


def _key(call: dict[str, Any]) -> str:
    return json.dumps([call["name"], call.get("args")], sort_keys=True, default=str)
