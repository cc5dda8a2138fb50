"""The planted loops and the synthetic healthy work, through ``streamproc scan``."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.quality.catalogue import TITLES
from benchmarks.quality.labels import Trace
from benchmarks.quality.scoring import Alarm, rate, wilson
from benchmarks.quality.tally import Tally

Printed = Callable[..., Iterator[dict[str, Any]]]  # what a command of streamproc prints


def planted(traces: Sequence[Trace], policy: str, printed: Printed) -> list[str]:
    """Return how many planted loops a scan finds, and how often it halts healthy work, as sentences."""
    tally = Tally()
    for preset in sorted({trace.preset for trace in traces}):
        chosen = [trace for trace in traces if trace.preset == preset]
        alarms = _alarms(chosen, preset or policy, printed)
        for trace in chosen:
            tally.add_trace(trace, alarms[trace.run_id])
    missed = [outcome.episode.code for outcome in tally.outcomes if outcome.alarm is None]
    found, of = len(tally.outcomes) - len(missed), len(tally.outcomes)
    low, high = wilson(found, of)
    named = "".join(f"; {code} {TITLES[code]}: {count}" for code, count in sorted(Counter(missed).items()))
    return [
        f"Planted loops: {found} of {of} found ({low:.2%} to {high:.2%}), {len(missed)} missed{named}.",
        f"Synthetic healthy work, {tally.honest_turns} turns: false halts per 1 000 turns "
        f"{rate(len(tally.false_halts), tally.honest_turns)}, "
        f"warnings {rate(len(tally.false_warnings), tally.honest_turns)}.",
    ]


def _alarms(traces: Iterable[Trace], policy: str, printed: Printed) -> defaultdict[str, list[Alarm]]:
    """Return the alarms of a scan of these traces by run, each at the position of the event that caused it."""
    places: dict[str, int] = {}
    turns: defaultdict[str, list[int]] = defaultdict(list)
    alarms: defaultdict[str, list[Alarm]] = defaultdict(list)
    traces_of: dict[str, str] = {}  # by run: a trace may have several of one session
    births: dict[str, int] = {}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as log:
        for trace in traces:
            for position, event in enumerate(trace.events):
                event_id = str(event.get("event_id") or f"{trace.run_id}#{position}")
                places.setdefault(event_id, position)
                run_id = str(event["run_id"])
                traces_of[run_id] = trace.run_id
                births.setdefault(run_id, position)
                if event.get("type", "turn") == "turn":
                    turns[run_id].append(position)
                log.write(json.dumps({**event, "event_id": event_id}) + "\n")
        log.flush()
        for one in printed("scan", "--json", "--policy", policy, log.name):
            run_id, cause = one["run_id"], one["trigger"]
            place = places.get(cause["event_id"])  # of a budget that runs share: the id of the charge
            if place is None:
                place = turns[run_id][cause["turn"]] if turns[run_id] else births[run_id]
            alarms[traces_of[run_id]].append(
                Alarm(one["code"], one["severity"] == "halt", place, one["id"], one["message"], run_id)
            )
    return alarms
