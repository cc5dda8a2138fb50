"""Pace of spending: the cost of the last few turns, beside the average of all turns before them.

Memory: the last `PACE_MAX` costs, and the number and sum of the others.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import PACE_MAX, RunState, SpendRate
from streamproc.model.wire import Usage

AMOUNT_BYTES: Final = 9  # of an encoded state
MONEY: Final = 1
TOKENS: Final = 2
TOTAL_MAX: Final = 2**62  # fits into a stored integer


def observe_pace(run: RunState, usage: Usage) -> None:
    """Record the cost of a turn: money if any turn of the run had a price, else tokens."""
    amount, pace = usage.cost_usd_micro, run.pace
    if not amount or pace is None or pace.unit != MONEY:
        pace, amount = _first_or_other_unit(run, usage)
        if not amount or pace is None:
            return
    last = pace.last
    last.append(amount)
    if len(last) > PACE_MAX:
        pace.turns += 1
        pace.total += last.pop(0)
        if pace.total > TOTAL_MAX:
            pace.total = TOTAL_MAX
    else:
        run.size_left -= AMOUNT_BYTES


def _first_or_other_unit(run: RunState, usage: Usage) -> tuple[SpendRate | None, int | None]:
    amount, unit, pace = usage.cost_usd_micro, MONEY, run.pace
    if amount is None:
        if pace is not None and pace.unit == MONEY:
            return None, None
        amount, unit = usage.total_tokens or usage.input_tokens + usage.output_tokens, TOKENS
    if amount and (pace is None or pace.unit != unit):
        pace = run.pace = SpendRate(unit)
        run.size_left -= 3 * AMOUNT_BYTES
    return pace, amount
