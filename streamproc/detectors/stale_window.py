"""LOOP009 stale_window: much of what the run does lately, it has done before.

Sees: at least 3 of the last 6 call turns brought only (call, answer) pairs that this run had had before. Polls that are
known to be polls are left aside.

Why: an early sign. It warned of every stuck run in a labelled set, and of 4 % of the clean ones.

False alarms: a run may rightly look again at what it has seen, so it only ever warns, and again only after six call
turns that all brought something new.

Tuning: `warn` is how many of the last six; 0 turns it off.

Reference: catalogue of loops, "staleness is a warning".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import STALLED, Evidence, Finding, Level
from streamproc.core.escalation import already_reported
from streamproc.core.view import View
from streamproc.detectors.base import Example, call


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the last six call turns."""

    warn: int = 3


class StaleWindow:
    """LOOP009."""

    code = "LOOP009"
    name = "stale_window"
    kinds = kind.STALE

    def check(self, view: View, limits: Limits) -> Finding | None:
        count = view.run.stale_bits.bit_count()
        if not 0 < limits.warn <= count or already_reported(
            view.run, self.code, view.run.stale_since, Level.WARN, view.index
        ):
            return None
        return Finding(
            code=self.code,
            level=Level.WARN,
            loop=view.run.stale_since,
            onset=view.run.stale_since,
            message=f"{count} of the last 6 calls had answers that this run has had before.",
            evidence=Evidence(kind=self.name, count=count),
            reason=STALLED,
            status="aborted_stuck",
        )


DETECTOR = StaleWindow()

HEALTHY = [
    Example("new answers", [call("read", {"f": n}, f"text {n}") for n in range(12)]),
    Example("now and then a second look", [
        call("read", {"f": name}, name) for name in ("a", "b", "a", "c", "d", "e", "f", "g", "b", "h")
    ]),
    Example("a poll", [call("poll", {"job": 1}, f"{n} %") for n in range(9)]),
]  # fmt: skip
STUCK = [
    Example("going over the same three files", [
        call("read", {"f": name}, name) for name in ("a", "b", "c", "a", "b", "c")
    ], "warn", 5),
    Example("three old looks among new ones", [
        call("read", {"f": name}, name) for name in ("a", "b", "c", "a", "d", "b", "e", "c")
    ], "warn", 7),
]  # fmt: skip
