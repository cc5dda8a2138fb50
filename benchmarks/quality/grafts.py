"""Real runs that were solved, with a mechanical repeat grafted on: one turn of theirs, made again and again."""

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
    """One trace for each solved run in which a turn can be repeated: a turn whose calls it makes only this once."""
    for run in runs:
        dice = random.Random(f"{run.run_id}/{seed}")
        places = _repeatable(run.events) if run.solved else []
        if places:
            yield _graft(run, dice.choice(places), dice.randint(HALT, 12), seed)


def _graft(run: RealRun, place: int, times: int, seed: int) -> Trace:
    again = {name: value for name, value in run.events[place].items() if name not in ("event_id", "seq")}
    events = (*run.events[: place + 1], *[again] * (times - 1), *run.events[place + 1 :])
    episode = Episode("LOOP003", place, place + times - 1, place + WARN - 1, place + HALT - 1, ("LOOP001", "LOOP002"))
    return Trace(f"grafts/{run.source}/{run.run_id}", seed, events, (episode,), recorded=True)


def _repeatable(events: list[RawEvent]) -> list[int]:
    """Places of turns with answered calls that come nowhere else in their run. An error may be one of the
    infrastructure, which is no repeat, so those are left out."""
    calls = Counter(_key(call) for event in events for call in event.get("tool_calls", ()))
    return [
        place
        for place, event in enumerate(events)
        if (made := event.get("tool_calls"))
        and all(call.get("result") is not None and not call.get("error") and calls[_key(call)] == 1 for call in made)
    ]


def _key(call: dict[str, Any]) -> str:
    return json.dumps([call["name"], call.get("args")], sort_keys=True, default=str)
