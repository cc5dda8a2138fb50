"""Inputs through one reader, and what is wrong with how it took them."""

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
    """How many were taken, and what went wrong, with the input that it went wrong with."""

    taken: int
    faults: list[tuple[bytes, str]]


def fuzz(name: str, seed: int, count: int) -> Outcome:
    """So many inputs through the reader of this name."""
    reader = READERS[name]
    samples = reader.samples()
    for sample in samples:
        reader.after(reader.read(sample))
    taken, faults = 0, list[tuple[bytes, str]]()
    seen: set[str] = set()
    logging.disable(logging.CRITICAL)
    try:
        for data in inputs(random.Random(f"{name} {seed}"), samples, count, packed=reader.packed, whole=reader.whole):
            try:
                found = reader.read(data)
            except reader.refuses as refusal:
                try:
                    check(getattr(refusal, "problems", ()))
                except AssertionError:
                    _note(data, seen, faults)
                continue
            except Exception:  # noqa: BLE001 (that is what is looked for)
                _note(data, seen, faults)
                continue
            taken += 1
            try:
                reader.after(found)
            except Exception:  # noqa: BLE001
                _note(data, seen, faults)
    finally:
        logging.disable(logging.NOTSET)
    return Outcome(taken, faults)


def check(problems: Sequence[Problem]) -> None:
    """A refusal says what, where and how to mend it, in few words."""
    for problem in problems:
        assert problem.field
        assert len(problem.what) < 1_000


def _note(data: bytes, seen: set[str], faults: list[tuple[bytes, str]]) -> None:
    """One input for each place that fails."""
    told = traceback.format_exc()
    place = "".join(told.splitlines()[-1:])[:60] + "".join(line for line in told.splitlines() if "streamproc/" in line)
    if place not in seen:
        seen.add(place)
        faults.append((data, told))
