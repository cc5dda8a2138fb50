"""BUDGET011 anomaly: a run spends far faster than it did, or than its workflow does.

Sees: what turns cost, in USD, or in tokens where nothing of the run has a price. The present pace is the *median* of
the last seven turns; it is held against the *mean* of all turns of the run before those, and against what a turn of
this workflow costs, where policy says so (`usual_micro_usd_per_turn`). Ten times as much is a warning.

Why: a run that has switched to a dear model, or sends its whole history with each turn, is cheap to stop early. The
budgets would see it only when the money is spent.

False alarms: rare, by the choice of the numbers: the median needs four dear turns of seven, so that one long document
moves nothing, and every dear turn before raises the mean. A run that begins with small talk and then works is the
exception; it is only ever a warning, and one for each run.

Tuning: `warn_multiple` and `turns_min`. `streamproc baseline FILE` measures `usual_micro_usd_per_turn` for each
workflow and prints the lines for the policy. It is a number there, and not learned on the way, so that a run is
decided upon by its own log alone: `scan`, a replay and every worker decide alike.

Reference: deliberation requirement, "cost anomaly detection (runaway sessions)".
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low

from streamproc.core import kind
from streamproc.core.decision import BUDGET_EXCEEDED, Evidence, Finding, Level
from streamproc.core.escalation import already_reported
from streamproc.core.run_state import PACE_MAX
from streamproc.core.signals.pace import MONEY
from streamproc.core.view import View
from streamproc.detectors.base import Example, dollars


@dataclass(frozen=True, slots=True)
class Limits:
    """How much faster is far faster, and what is known of the workflow."""

    warn_multiple: int = 10  # contexts grow, and a turn at the end of a run honestly costs five times the first ones
    turns_min: int = 10  # of the run, before it is held against itself: fewer do not say what is usual
    usual_micro_usd_per_turn: int = 0  # differs by workflow and model, so there is no default


class SpendPace:
    """BUDGET011."""

    code = "BUDGET011"
    name = "anomaly"
    kinds = kind.USAGE

    def check(self, view: View, limits: Limits) -> Finding | None:
        pace, multiple = view.run.pace, limits.warn_multiple
        if pace is None:
            return None
        latest, usual = pace.last[-1], limits.usual_micro_usd_per_turn
        if latest * pace.turns < multiple * pace.total and not usual:
            return None  # the latest turn is nothing special: no need to look at all of them
        money = pace.unit == MONEY
        usual = usual if money else 0
        faster = pace.turns >= max(1, limits.turns_min)
        if not multiple or len(pace.last) < PACE_MAX or not (faster or usual):
            return None
        present = median_low(pace.last)
        for loop, known, whose in ((0, pace.total // pace.turns if faster else 0, "before"), (1, usual, "usually")):
            if (
                known
                and present >= multiple * known
                and not already_reported(view.run, self.code, loop, Level.WARN, view.index)
            ):
                return self._finding(loop, present, known, whose, money=money)
        return None

    def _finding(self, loop: int, present: int, known: int, whose: str, *, money: bool) -> Finding:
        amounts = [dollars(value) if money else f"{value} tokens" for value in (present, known)]
        return Finding(
            code=self.code,
            level=Level.WARN,
            loop=loop,
            message=f"A turn of this run now costs {amounts[0]}; {whose} it was {amounts[1]}.",
            evidence=Evidence(
                kind="spend_pace", used=present, limit=known, unit="micro_usd" if money else "tokens", count=PACE_MAX
            ),
            reason=BUDGET_EXCEEDED,
            status="budget_exceeded",
        )


DETECTOR = SpendPace()


def _costs(*amounts: str) -> list[dict[str, object]]:
    return [{"node": "agent", "output": f"step {n}", "usage": {"cost_usd": amount}} for n, amount in enumerate(amounts)]


def _tokens(*amounts: int) -> list[dict[str, object]]:
    return [{"node": "agent", "output": f"{n}", "usage": {"total_tokens": amount}} for n, amount in enumerate(amounts)]


HEALTHY = [
    Example("a context that grows", _costs(*(f"{0.001 * (n + 1):.3f}" for n in range(60)))),
    Example("three long documents", _costs(*["0.01"] * 30, "2.00", "0.01", "2.00", "0.01", "2.00", *["0.01"] * 9)),
    Example("dear from the beginning", _costs(*["3.00"] * 40)),
]
STUCK = [
    Example("a switch to a dear model", _costs(*["0.01"] * 25, *["0.30"] * 7), "warn", 28),
    Example("in tokens, where nothing has a price", _tokens(*[2_000] * 30, *[90_000] * 7), "warn", 33),
]
