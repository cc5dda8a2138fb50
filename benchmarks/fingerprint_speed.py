"""The fingerprint, pure and compiled: sample turns, long texts, `Monitor.feed`; each core in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from time import thread_time_ns
from typing import Any, Final

from benchmarks.cores import cores, kind_of, with_core
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, Row
from streamproc.fingerprint import fingerprint
from streamproc.fingerprint.hash import canonical, content
from streamproc.fingerprint.mask import mask
from streamproc.model.raw_events import RawTurn
from streamproc.monitor import Monitor
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file

LONG_MIN: Final = 4_000  # characters of a long text
LONG_MAX: Final = 400  # texts
WHAT: Final = {
    "turn": ("fingerprint of a sample turn, median", "µs", Aim("≤", 8)),
    "turn.p99": ("fingerprint of a sample turn, 99th percentile", "µs", Aim("≤", 150)),
    "mask.long": ("masking long texts", "MB/s", None),
    "content.long": ("masking, hashing and comparing long texts", "MB/s", Aim("≥", 100)),
    "feed": ("`Monitor.feed` of a raw sample turn, all detectors on, median", "µs", Aim("≤", 30)),
}


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the fingerprint. The aims are those of a compiled one."""
    found = {
        core: [with_core(core, "benchmarks.fingerprint_speed") for _ in range(sizes.rounds)]
        for core in reversed(cores())
    }
    for name, (what, unit, aim) in WHAT.items():
        best = max if unit == "MB/s" else min
        for core, rounds in found.items():
            figure = best(one[name] for one in rounds)
            yield Row(f"fingerprint.{name}.{core}", f"{what}, {kind_of(core)}", figure, unit,
                      aim=aim if core == "compiled" else None)  # fmt: skip


def figures() -> dict[str, float]:
    """Return the figures of this process."""
    with trajectory_file() as path:
        turns = [line.raw for line in Source(path) if isinstance(line.raw, RawTurn)]
    texts = {canonical(value) for raw in turns for value in (raw.output, *(one.result for one in raw.tool_calls))
             if value is not None}  # fmt: skip
    long = sorted(text for text in texts if len(text) >= LONG_MIN)[:LONG_MAX]
    fed = [raw.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True) for raw in turns]
    each = _each_us(fingerprint, turns)
    monitors = [Monitor() for _ in range(3)]
    feeds = [[_us(monitor.feed, turn) for turn in fed] for monitor in monitors]
    return {
        "turn": median(each),
        "turn.p99": each[int(0.99 * len(each))],
        "mask.long": _mb_per_second(mask, long),
        "content.long": _mb_per_second(content, long),
        "feed": median(map(min, *feeds)),
    }


def _us(act: Callable[[Any], object], value: Any) -> float:
    began = thread_time_ns()
    act(value)
    return (thread_time_ns() - began) / 1e3


def _each_us(act: Callable[[Any], object], values: Sequence[Any]) -> list[float]:
    """Return the best time of each value, sorted."""
    return sorted(min(_us(act, value) for _ in range(4)) for value in values)


def _mb_per_second(act: Callable[[str], object], texts: list[str]) -> float:
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)

    def all_of_them(_: None) -> None:
        for text in texts:
            act(text)

    return size / min(_us(all_of_them, None) for _ in range(3))


if __name__ == "__main__":
    print(json.dumps(figures()))
