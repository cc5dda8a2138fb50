"""BUDGET011 anomaly: a run spends far faster than before, or than its workflow usually does.

Sees: the cost of turns, in USD, or in tokens if no turn of the run has a price. The current rate is the *median* of
the last seven turns. It is compared with the *mean* of all earlier turns of the run and, if the policy sets it, with
the usual cost of a turn of this workflow (`usual_micro_usd_per_turn`). Ten times as much is a warning. So is a run that
spends 10 USD, or 2 million tokens if no turn has a price, within five minutes of log time. Cached tokens count a tenth.

Why: a run that has switched to an expensive model, or sends its whole history with each turn, is cheap to stop early.
The budgets would detect it only after the money is spent, and a run without budgets has none. A run that spends fast
from its first turn on has no slower turns to compare with, so time is the measure.

False alarms: rare, because of the numbers chosen: the median needs four expensive turns of seven, so one long document
changes nothing, and every earlier expensive turn raises the mean. A run that starts with small talk and then works is
the exception. A log that is published faster than it was recorded, on a topic with the broker's time, looks fast, too.
It is only ever a warning, and one for each run and measure.

Tuning: `warn_multiple`, `turns_min`, `warn_micro_usd_in_5_min` and `warn_tokens_in_5_min`. `streamproc baseline FILE`
measures `usual_micro_usd_per_turn` for each workflow and prints the lines for the policy. It is a fixed number in the
policy and is not learned at run time: decisions about a run depend on its own log alone, so `scan`, a replay and every
worker decide alike.

Reference: deliberation requirement, "cost anomaly detection (runaway sessions)". Few recorded runs report
both time and usage (641 turns); the fastest of them spends 470 000 tokens within five minutes.
"""

from __future__ import annotations

from statistics import median_low
from typing import Final

from streamproc.core.marks import first_of
from streamproc.core.signals.pace import MONEY, PACE_MAX
from streamproc.detectors.base import START_MS, Example, Finding, Level, View, dollars, kind, spent
from streamproc.detectors.budget_detector import BudgetDetector

FAST: Final = 2  # loop of the finding about spend per time; the comparisons have 0 and 1

CACHED: Final = " (a cached token counts a tenth)"


class SpendPace(BudgetDetector):
    code, name = "BUDGET011", "anomaly"
    kinds = kind.USAGE
    evidence = "used", "limit", "unit", "count"

    class Limits:
        """How much faster is an anomaly, the usual cost of the workflow, and the spend within five minutes; 0: off."""

        warn_multiple: int = 10  # contexts grow: a turn late in a run legitimately costs five times the first ones
        turns_min: int = 10  # earlier turns needed for a comparison: fewer do not show what is usual
        usual_micro_usd_per_turn: int = 0  # differs by workflow and model, so there is no default
        warn_micro_usd_in_5_min: int = 10_000_000  # 10 USD: 2 million tokens at 5 USD a million
        warn_tokens_in_5_min: int = 2_000_000  # four times as many as the fastest recorded run that reports both

    def marks(self, limits: Limits) -> dict[str, int]:
        return {
            "pace_multiple": 1 if limits.usual_micro_usd_per_turn else first_of(limits.warn_multiple),
            "pace_micro_usd": first_of(limits.warn_micro_usd_in_5_min),
            "pace_tokens": first_of(limits.warn_tokens_in_5_min),
        }

    def check(self, view: View, limits: Limits) -> Finding | None:
        pace, multiple = view.run.pace, limits.warn_multiple
        if not pace.unit:
            return None
        money = pace.unit == MONEY
        fast = limits.warn_micro_usd_in_5_min if money else limits.warn_tokens_in_5_min
        if fast and pace.spent >= fast and not self.reported(view, FAST, Level.WARN):
            spent, most = _amounts(pace.spent, fast, money=money)
            message = f"The run has spent {spent} within five minutes; {most} are unusual{'' if money else CACHED}."
            return self._compared("spend_velocity", FAST, message, pace.spent, fast, money=money)
        costs = pace.last.listed()
        latest, usual = costs[-1], limits.usual_micro_usd_per_turn
        if latest * pace.turns < multiple * pace.total and not usual:
            return None  # the latest turn is not expensive: skip the median
        usual = usual if money else 0
        faster = pace.turns >= max(1, limits.turns_min)
        if not multiple or len(costs) < PACE_MAX or not (faster or usual):
            return None
        current = median_low(costs)
        before = pace.total // pace.turns if faster else 0
        for loop, known, source in ((0, before, "earlier in the run"), (1, usual, "as usual for this workflow")):
            more = known and current >= multiple * known
            if more and not self.reported(view, loop, Level.WARN):
                now, then = _amounts(current, known, money=money)
                note = "" if money else CACHED
                message = f"A turn of this run now costs {now}, compared with {then} {source}{note}."
                return self._compared("spend_pace", loop, message, current, known, money=money, count=PACE_MAX)
        return None

    def _compared(
        self, kind: str, loop: int, message: str, used: int, limit: int, *, money: bool, count: int | None = None
    ) -> Finding:
        unit = "micro_usd" if money else "tokens"
        return self.finding(Level.WARN, loop, message, kind=kind, used=used, limit=limit, unit=unit, count=count)


def _amounts(*values: int, money: bool) -> list[str]:
    return [dollars(value) if money else f"{value} tokens" for value in values]


DETECTOR = SpendPace()


def _tokens(*amounts: int, cached: int = 0) -> list[dict[str, object]]:
    usage = [{"total_tokens": amount, "cached_tokens": cached} for amount in amounts]
    return [{"node": "agent", "output": f"{n}", "usage": one} for n, one in enumerate(usage)]


def _timed(seconds: int, turns: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return turns that follow each other after this many seconds."""
    return [turn | {"at": START_MS + n * seconds * 1000} for n, turn in enumerate(turns)]


HEALTHY = [
    Example("a context that grows", spent(*(f"{0.001 * (n + 1):.3f}" for n in range(60)))),
    Example("three long documents", spent(*["0.01"] * 30, "2.00", "0.01", "2.00", "0.01", "2.00", *["0.01"] * 9)),
    Example("expensive from the start", spent(*["3.00"] * 40)),
    Example("a dollar a minute", _timed(60, spent(*["1.00"] * 40))),
    Example("a long context that is cached", _timed(5, _tokens(*[150_000] * 60, cached=145_000))),
]
STUCK = [
    Example("a switch to an expensive model", spent(*["0.01"] * 25, *["0.30"] * 7), "warn", 28),
    Example("a dollar every ten seconds", _timed(10, spent(*["1.00"] * 20)), "warn", 9),
    Example("a long context that is not", _timed(5, _tokens(*[150_000] * 20)), "warn", 13),
    Example("in tokens, if no turn has a price", _tokens(*[2_000] * 30, *[90_000] * 7), "warn", 33),
]
