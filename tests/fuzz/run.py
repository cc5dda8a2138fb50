"""Run inputs through one reader and collect the errors."""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Sequence
from typing import NamedTuple

from streamproc.errors import Problem
from tests.fuzz.mutation import inputs
from tests.fuzz.readers import READERS


class Outcome(NamedTuple):
    """The number of inputs that were read and refused; the errors, one for each place, with their inputs; and, if
    coverage guided the inputs, the places in the code that they reached, and how many were kept for it."""

    read: int
    refused: int
    faults: list[tuple[bytes, str]]
    given: int = 0
    covered: int = 0
    newly_covered: int = 0
    corpus: int = 0


class Trial:
    """Gives inputs to one reader. Its valid samples must be readable."""

    def __init__(self, name: str) -> None:
        self.reader = READERS[name]
        self.samples = self.reader.samples()
        self.given = self.read = self.refused = 0
        self.faults: list[tuple[bytes, str]] = []
        self._places: set[str] = set()
        for sample in self.samples:
            self.reader.after(self.reader.read(sample))

    def give(self, data: bytes) -> None:
        """Read one input, and use what was read."""
        self.given += 1
        try:
            found = self.reader.read(data)
        except self.reader.refuses as refusal:
            self.refused += 1
            try:
                check(getattr(refusal, "problems", ()))
            except AssertionError:
                self._note(data)
            return
        except Exception:  # noqa: BLE001 (the errors to find)
            self._note(data)
            return
        self.read += 1
        try:
            self.reader.after(found)
        except Exception:  # noqa: BLE001
            self._note(data)

    @property
    def outcome(self) -> Outcome:
        """What happened so far."""
        return Outcome(self.read, self.refused, self.faults, self.given)

    def _note(self, data: bytes) -> None:
        """Keep one input for each place that fails."""
        trace = traceback.format_exc()
        place = "".join(trace.splitlines()[-1:])[:60] + "".join(
            line for line in trace.splitlines() if "streamproc/" in line
        )
        if place not in self._places:
            self._places.add(place)
            self.faults.append((data, trace))


def fuzz(name: str, seed: int, count: int) -> Outcome:
    """Run `count` inputs through the reader of this name, without guidance by coverage."""
    trial = Trial(name)
    reader = trial.reader
    logging.disable(logging.CRITICAL)
    try:
        for data in inputs(
            random.Random(f"{name} {seed}"),
            trial.samples,
            count,
            msgpack=reader.msgpack,
            restructured=reader.restructured,
        ):
            trial.give(data)
    finally:
        logging.disable(logging.NOTSET)
    return trial.outcome


def check(problems: Sequence[Problem]) -> None:
    """Check that a refusal names the field and is short."""
    for problem in problems:
        assert problem.field
        assert len(problem.what) < 1_000
