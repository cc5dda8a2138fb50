"""The publisher: the time an agent spends on a turn before it is sent.

The original samples, with all their text, are validated, masked, hashed and encoded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import orjson

from benchmarks.sizes import Sizes
from benchmarks.table import BenchmarkDefect, Row
from benchmarks.timing import percentile, piece_us
from streamproc.client import TurnPublisher
from streamproc.fingerprint import fingerprint
from streamproc.model.raw_events import RawEvent
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the publisher."""
    with trajectory_file() as path:
        raws = [line.raw for line in Source(path)]
    dicts = [raw.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True) for raw in raws]
    sizes_bytes = [len(orjson.dumps(one)) for one in dicts]
    _check(raws)
    rounds = max(2, sizes.rounds)
    whole = _each(TurnPublisher("localhost:9092").prepare, dicts, rounds)  # it is not opened, so it connects to nothing
    prints = _each(fingerprint, raws, rounds)
    by_hand = _each(_by_hand, dicts, rounds)
    of = f"a turn of {median(sizes_bytes) / 1024:.1f} KiB (median)"
    yield Row("publisher.fingerprint.median", f"publisher, fingerprint of {of}, median", median(prints), "µs")
    yield Row("publisher.fingerprint.p99", "publisher, fingerprint, p99", percentile(prints, 0.99), "µs")
    mb_s = sum(sizes_bytes) / sum(prints)
    yield Row(
        "publisher.throughput", "publisher, fingerprint, throughput", mb_s, "MB/s",
        "MD5 of json.dumps, without masking", sum(sizes_bytes) / sum(by_hand),
    )  # fmt: skip
    yield Row("publisher.whole", "publisher, validate + fingerprint + encode, median", median(whole), "µs")


def _each(work: Callable[[Any], Any], items: list[Any], rounds: int) -> list[float]:
    """Return the microseconds of each item: the best of the rounds."""
    return [min(piece_us(work, item, 1) for _ in range(rounds)) for item in items]


def _by_hand(turn: dict[str, Any]) -> str:
    return hashlib.md5(json.dumps(turn, sort_keys=True).encode(), usedforsecurity=False).hexdigest()


def _check(raws: list[RawEvent]) -> None:
    """Check that different outputs have different fingerprints."""
    outputs = {raw.output: fingerprint(raw).output.exact for raw in raws if getattr(raw, "output", None)}  # type: ignore[attr-defined]
    if len(set(outputs.values())) != len(outputs) or not outputs:
        raise BenchmarkDefect("the fingerprints do not distinguish the samples")
