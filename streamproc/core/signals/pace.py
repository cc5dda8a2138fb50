"""Pace of spending: the cost of the last few turns, beside the average of all turns before them, and the cost of the
turns within a window of log time.

Memory: the last `PACE_MAX` costs, the number and sum of the others, and the start and sum of the window. A window
begins with the first turn after the one before it has ended.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import PACE_MAX, RunState, SpendRate
from streamproc.model.wire import Usage

AMOUNT_BYTES: Final = 9  # of an encoded state
WINDOW_MS: Final = 300_000  # long enough for a rate: a single large turn is none
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
    now_ms = run.at_ms
    if now_ms - pace.since_ms >= WINDOW_MS:
        pace.since_ms, pace.spent = now_ms, amount
    elif now_ms:
        pace.spent += amount
        if pace.spent > TOTAL_MAX:
            pace.spent = TOTAL_MAX
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
        run.size_left -= 5 * AMOUNT_BYTES
    return pace, amount
