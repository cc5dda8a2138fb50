"""Run inputs through one reader and collect the errors."""

from __future__ import annotations

import logging
import random
import traceback
from typing import TYPE_CHECKING, NamedTuple

from tests.fuzz.mutation import inputs
from tests.fuzz.readers import READERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamproc.errors import Problem


class Outcome(NamedTuple):
    """The number of inputs read, and the errors with their inputs."""

    read: int
    faults: list[tuple[bytes, str]]


def fuzz(name: str, seed: int, count: int) -> Outcome:
    """Run `count` inputs through the reader of this name."""
    reader = READERS[name]
    samples = reader.samples()
    for sample in samples:
        reader.after(reader.read(sample))
    count_read, faults = 0, list[tuple[bytes, str]]()
    seen: set[str] = set()
    logging.disable(logging.CRITICAL)
    try:
        for data in inputs(
            random.Random(f"{name} {seed}"), samples, count, msgpack=reader.msgpack, restructured=reader.restructured
        ):
            try:
                found = reader.read(data)
            except reader.refuses as refusal:
                try:
                    check(getattr(refusal, "problems", ()))
                except AssertionError:
                    _note(data, seen, faults)
                continue
            except Exception:  # noqa: BLE001 (the errors to find)
                _note(data, seen, faults)
                continue
            count_read += 1
            try:
                reader.after(found)
            except Exception:  # noqa: BLE001
                _note(data, seen, faults)
    finally:
        logging.disable(logging.NOTSET)
    return Outcome(count_read, faults)


def check(problems: Sequence[Problem]) -> None:
    """Check that a refusal names the field and is short."""
    for problem in problems:
        assert problem.field
        assert len(problem.what) < 1_000


def _note(data: bytes, seen: set[str], faults: list[tuple[bytes, str]]) -> None:
    """Keep one input for each place that fails."""
    trace = traceback.format_exc()
    place = "".join(trace.splitlines()[-1:])[:60] + "".join(
        line for line in trace.splitlines() if "streamproc/" in line
    )
    if place not in seen:
        seen.add(place)
        faults.append((data, trace))
