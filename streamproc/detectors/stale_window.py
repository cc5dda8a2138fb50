"""LOOP009 stale_window: most recent calls returned only known results.

Sees: at least 3 of the last 6 call turns returned only (call, answer) pairs that this run had already seen. Known
polls are ignored.

Why: an early sign. It warned of every stuck run in a labelled set, and of 4 % of the clean ones.

False alarms: a run may legitimately look again at known content. It therefore only warns, and warns again only after
six call turns that all returned something new. A check that the agent makes after each piece of work, such as the tests
after each edit, counts once: from the third time on, it is a habit and no second look. What repeats around a poll,
such as a sleep, waits for it and does not count.

Tuning: `warn` is how many of the last six; 0 turns it off.

Reference: catalogue of loops, "staleness is a warning".
"""

from __future__ import annotations

from streamproc.core.marks import NEVER, first_of
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, kind


class StaleWindow(Detector):
    code, name = "LOOP009", "stale_window"
    kinds = kind.STALE
    evidence = ("count",)

    class Limits:
        """Of the last six call turns."""

        warn: int = 3

    def marks(self, limits: Limits) -> dict[str, int]:
        return {"stale_turns": first_of(limits.warn), "stale_turns_known": NEVER}

    def check(self, view: View, limits: Limits) -> Finding | None:
        calls = view.run.calls
        count, since = calls.stale_bits.bit_count(), calls.stale_since
        if not 0 < limits.warn <= count or self.reported(view, since, Level.WARN, since):
            return None
        message = f"{count} of the last 6 turns with calls returned only results that this run had already seen."
        return self.finding(Level.WARN, since, message, onset=since, count=count)


DETECTOR = StaleWindow()
HEALTHY = [
    Example("new answers", [call("read", {"f": n}, f"text {n}") for n in range(12)]),
    Example("an occasional second look", [
        call("read", {"f": name}, name) for name in ("a", "b", "a", "c", "d", "e", "f", "g", "b", "h")
    ]),
    Example("the same test result after each edit", [
        turn for n in range(8) for turn in (call("edit", {"line": n}, "ok"), call("test", {}, "12 passed"))
    ]),
    Example("a poll", [call("poll", {"job": 1}, f"{n} %") for n in range(9)]),
]  # fmt: skip
STUCK = [
    Example("reading the same three files again", [
        call("read", {"f": name}, name) for name in ("a", "b", "c", "a", "b", "c")
    ], "warn", 5),
    Example("three re-reads among new ones", [
        call("read", {"f": name}, name) for name in ("a", "b", "c", "a", "d", "b", "e", "c")
    ], "warn", 7),
]  # fmt: skip
