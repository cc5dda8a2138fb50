"""Spend of a run and of its nodes, in integers: tokens, micro-USD, milliseconds.

Memory: one ledger, and turn and runtime counters of `COUNTS_MAX` nodes. Sums stop at the largest stored integer.
"""

from __future__ import annotations

from typing import Any, Final

from streamproc.core.now import Now
from streamproc.core.records import Record, Row, Table, ccall, cclass, cfunc, final, i64, u32
from streamproc.model.wire import Usage

COUNTS_MAX: Final = 32  # nodes with turn and time counters
SPEND_MAX: Final = 2**63 - 1  # the largest stored integer; a sum that reaches it stays there


@cfunc
def saturated(sum_: i64, more: i64) -> i64:
    """Return a sum of amounts, at most the largest stored integer."""
    return SPEND_MAX if more > SPEND_MAX - sum_ else sum_ + more


@cfunc
def amount_of(value: Any) -> i64:
    """Return an amount that a turn reports; None: 0."""
    if not value:
        return 0
    return min(value, SPEND_MAX)  # type: ignore[no-any-return]


@cfunc
def tokens_of(usage: Usage) -> i64:
    """Return all tokens of a turn: the total, or else the sum of input and output."""
    total: i64 = amount_of(usage.total_tokens)
    return total or saturated(amount_of(usage.input_tokens), amount_of(usage.output_tokens))


@final
@cclass
class Ledger(Record):
    """Spend so far, in integers: tokens, micro-USD, ms."""

    input_tokens: i64
    output_tokens: i64
    cached_tokens: i64
    total_tokens: i64
    cost_usd_micro: i64
    duration_ms: i64
    unpriced: u32  # turns that reported usage without a price

    @ccall
    def add(self, usage: Usage) -> None:
        """Add what a turn has used."""
        tokens: i64 = tokens_of(usage)
        self.input_tokens = saturated(self.input_tokens, amount_of(usage.input_tokens))
        self.output_tokens = saturated(self.output_tokens, amount_of(usage.output_tokens))
        self.cached_tokens = saturated(self.cached_tokens, amount_of(usage.cached_tokens))
        self.total_tokens = saturated(self.total_tokens, tokens)
        self.duration_ms = saturated(self.duration_ms, amount_of(usage.duration_ms))
        if usage.cost_usd_micro is not None:
            self.cost_usd_micro = saturated(self.cost_usd_micro, amount_of(usage.cost_usd_micro))
        elif tokens:
            self.unpriced += 1


@final
@cclass
class NodeCounts(Row):
    """What a node has used. Key: tag of its name."""

    runtime_ms: i64
    turns: u32

    @cfunc
    def add_time(self, took_ms: i64) -> None:
        """Add the time of a turn."""
        self.runtime_ms = saturated(self.runtime_ms, took_ms)


@cfunc
def counts_of(counts: Table, now: Now) -> NodeCounts:
    """Return the counters of the node of this turn, new if there are none. Past the cap, those of the node with the
    fewest turns are dropped: budgets limit nodes with many."""
    fewest: NodeCounts
    row: NodeCounts
    known: NodeCounts | None = counts.find(now.node_tag)
    if known is None:
        if counts.full():
            fewest = counts.rows[0]
            for row in counts.rows:
                if row.turns < fewest.turns:
                    fewest = row
            counts.forget(fewest.key)
            now.evicted += 1
        known = counts.add(now.node_tag)
    return known
