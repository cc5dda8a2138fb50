"""The watchers of a trace: the engine under a policy, and the simple rules that people write first.

A watcher gets all events of one run in order, and yields its alarms.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.quality.labels import RawEvent
from benchmarks.quality.scoring import ANY, Alarm
from streamproc.monitor import Monitor
from streamproc.policy import Policy, load_policy

Watcher = Callable[[Sequence[RawEvent]], Iterator[Alarm]]

OURS: Final = "streamproc"
RUNS_MAX: Final = 1_000  # of one session at once, more than any trace has


def breaker(policy: Policy | str | Path | None = None) -> Watcher:
    """Return the engine in one process, under a policy. Raises `InvalidPolicy`."""
    loaded = policy if isinstance(policy, Policy) else load_policy(policy)

    def watch(events: Sequence[RawEvent]) -> Iterator[Alarm]:
        monitor = Monitor(loaded, runs_max=RUNS_MAX)  # a run may be measured again, with a loop in it
        for position, event in enumerate(events):
            for control in monitor.feed(event):
                halts = control.severity == "halt"
                yield Alarm(control.code, halts, position, control.id, control.message, control.run_id)

    return watch


breaker_of_preset = cache(breaker)


def same_call_3_of_10(events: Sequence[RawEvent]) -> Iterator[Alarm]:
    """Alarm at the same tool and arguments three times among the last ten calls; once for each call."""
    last: deque[str] = deque(maxlen=10)
    reported: set[str] = set()
    for position, event in enumerate(events):
        for call in event.get("tool_calls", ()):
            key = json.dumps([call["name"], call.get("args")], sort_keys=True, default=str)
            last.append(key)
            if last.count(key) >= 3 and key not in reported:
                reported.add(key)
                yield _halt(position, key)


def same_output_3_in_a_row(events: Sequence[RawEvent]) -> Iterator[Alarm]:
    """Alarm if a node repeats a text three times in a row; once for each text."""
    said: dict[Any, tuple[str, int]] = {}
    reported: set[str] = set()
    for position, event in enumerate(events):
        text, node = event.get("output"), event.get("node")
        if not text:
            continue
        before, count = said.get(node, ("", 0))
        said[node] = text, count + 1 if text == before else 1
        if said[node][1] >= 3 and text not in reported:
            reported.add(text)
            yield _halt(position, text)


def at_most_25_steps(events: Sequence[RawEvent]) -> Iterator[Alarm]:
    """Alarm at turn 26, the default recursion limit of frameworks."""
    turns = 0
    for position, event in enumerate(events):
        turns += event.get("type", "turn") == "turn"
        if turns == 26:
            yield _halt(position, "steps")
            return


def _halt(position: int, what: str) -> Alarm:
    return Alarm(ANY, True, position, f"{position}: {what}", what)


SIMPLE_RULES: Final[dict[str, Watcher]] = {
    "same call 3 of the last 10": same_call_3_of_10,
    "same output 3 times in a row": same_output_3_in_a_row,
    "at most 25 steps": at_most_25_steps,
}
