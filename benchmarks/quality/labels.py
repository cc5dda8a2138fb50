"""The labels of a trace, independent of any engine. Positions are indices in its list of events, from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RawEvent = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Episode:
    """A planted loop. Its thresholds are those of the catalogue, computed by its generator.

    `warn_at` and `halt_at` are the positions at which they are met; None: the catalogue has no such level here. A loop
    without `halt_at` must never be halted. `also` names other detectors that may report the same loop.
    """

    code: str
    onset: int
    end: int
    warn_at: int | None
    halt_at: int | None
    also: tuple[str, ...] = ()

    @property
    def due(self) -> int:
        """The position at which it must be reported at its highest level."""
        due = self.warn_at if self.halt_at is None else self.halt_at
        assert due is not None
        return due


@dataclass(frozen=True, slots=True)
class Trace:
    """One run: raw events as a user would publish them, and the loops planted in it (none: healthy work).

    The rest of a `recorded` run has no labels, so it does not count as healthy work. A run with a `preset` is watched
    under it, whatever policy is measured.
    """

    kind: str
    seed: int
    events: tuple[RawEvent, ...]
    episodes: tuple[Episode, ...] = ()
    recorded: bool = False
    preset: str = ""

    @property
    def run_id(self) -> str:
        """Unique among all traces."""
        return f"{self.kind}/{self.seed}"
