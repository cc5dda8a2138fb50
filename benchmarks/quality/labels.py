"""What is known of a trace before any engine has seen it. Positions are places in its list of events, from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RawEvent = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Episode:
    """A planted loop. Thresholds are those of the catalogue, computed by whoever planted it.

    `warn_at` and `halt_at` are the events with which they are met; None: the catalogue has no such level here, and a
    loop without `halt_at` must never be halted. `also` names detectors that may rightly tell the same loop.
    """

    code: str
    onset: int
    end: int
    warn_at: int | None
    halt_at: int | None
    also: tuple[str, ...] = ()

    @property
    def due(self) -> int:
        """Where it must be told at the latest, at its highest level."""
        due = self.warn_at if self.halt_at is None else self.halt_at
        assert due is not None
        return due


@dataclass(frozen=True, slots=True)
class Trace:
    """One run: raw events as a user would publish them, and the loops that were planted in it (none: honest work).

    What is `recorded` was not made up, so that nobody knows whether the rest of it is honest: it is not counted.
    """

    kind: str
    seed: int
    events: tuple[RawEvent, ...]
    episodes: tuple[Episode, ...] = ()
    recorded: bool = False

    @property
    def run_id(self) -> str:
        """Unique among all traces."""
        return f"{self.kind}/{self.seed}"
