"""Pace of spending: the cost of the last few turns, beside the average of all turns before them, and the cost of the
turns within a window of log time.

Cached tokens count a tenth, as their price does.

Memory: the last `PACE_MAX` costs, the number and sum of the others, and the start and sum of the window. A window
begins with the first turn after the one before it has ended. Read by BUDGET007.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.marks import Marks
from streamproc.core.now import Now
from streamproc.core.records import Record, Values, cclass, cfunc, f64, final, hash64, i64, u32
from streamproc.core.signals.spend import amount_of, tokens_of
from streamproc.model.wire import Usage

PACE_MAX: Final = 7  # turns whose median is the current pace: three expensive turns by chance do not change it
WINDOW_MS: Final = 300_000  # long enough for a rate: a single large turn is none
MONEY: Final = 1
TOKENS: Final = 2
TOTAL_MAX: Final = 2**62  # fits into a stored integer


@final
@cclass
class Pace(Record):
    """The cost of single turns: of the latest ones, and of all those before."""

    total: i64  # cost of the turns before those in `last`
    since_ms: i64  # log time at which the current window began; 0: no turn had a log time
    spent: i64  # cost of the turns in it
    unit: u32  # MONEY (micro-USD) or TOKENS; 0: no turn had a cost
    turns: u32  # number of turns before those in `last`
    last: Values  # the cost of each of the last few turns

    def __init__(self) -> None:
        self.last = Values(PACE_MAX)
        super().__init__(self.last)

    @cfunc
    def is_unusual(self, marks: Marks) -> bool:
        """Whether a detector of the pace could say something. The comparison is rough: the detector has the exact
        one."""
        fast: i64 = marks.pace_micro_usd if self.unit == MONEY else marks.pace_tokens
        dearer: f64 = 1.001
        usual: f64 = 1.0
        if marks.pace_multiple <= 1 or self.spent >= fast:
            return True
        if not self.last.full():
            return False
        dearer *= self.last.at(self.last.size - 1)
        dearer *= self.turns
        usual *= self.total
        usual *= marks.pace_multiple
        return dearer >= usual

    @cfunc
    def observe(self, now: Now, usage: Usage) -> None:
        """Record the cost of a turn: money if any turn of the run had a price, else tokens."""
        unit: u32 = MONEY
        amount: i64
        cached: i64
        if usage.cost_usd_micro is not None:
            amount = amount_of(usage.cost_usd_micro)
        elif self.unit == MONEY:
            return
        else:
            amount, unit = tokens_of(usage), TOKENS
            cached = amount_of(usage.cached_tokens)
            amount -= min(cached, amount) // 10 * 9  # a cached one costs a tenth, and a context is read at each turn
        if not amount:
            return
        if self.unit != unit:
            self.clear()
            self.unit = unit
        if now.at_ms - self.since_ms >= WINDOW_MS:
            self.since_ms, self.spent = now.at_ms, amount
        elif now.at_ms:
            self.spent = TOTAL_MAX if amount > TOTAL_MAX - self.spent else self.spent + amount
        if self.last.full():
            self.turns += 1
            self.total += min(self.last.at(0), TOTAL_MAX - self.total)
        self.last.push(hash64(amount))
