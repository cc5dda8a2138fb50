"""Spend of a run and of its nodes, in integers: tokens, micro-USD, milliseconds.

Memory: one ledger, and turn and runtime counters of `COUNTS_MAX` nodes. Sums stop at the largest stored integer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamproc.core.records import Record, Row, ccall, cclass, cfunc, final, i64, u32
from streamproc.model.wire import Usage

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

COUNTS_MAX: Final = 32  # nodes with turn and time counters
COUNTS_BYTES: Final = 20  # of a state
SPEND_MAX: Final = 2**63 - 1  # the largest stored integer; a sum that reaches it stays there


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


@final
@cclass
class NodeCounts(Row):
    """What a node has used. Key: tag of its name."""

    runtime_ms: i64
    turns: u32


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


@ccall
def spend(run: RunState, usage: Usage, counts: NodeCounts) -> None:
    """Add a turn's measured spend to the ledger, and its duration to the `counts` of its node."""
    ledger: Ledger = run.ledger
    tokens: i64 = tokens_of(usage)
    duration_ms: i64 = amount_of(usage.duration_ms)
    ledger.input_tokens = saturated(ledger.input_tokens, amount_of(usage.input_tokens))
    ledger.output_tokens = saturated(ledger.output_tokens, amount_of(usage.output_tokens))
    ledger.cached_tokens = saturated(ledger.cached_tokens, amount_of(usage.cached_tokens))
    ledger.total_tokens = saturated(ledger.total_tokens, tokens)
    if duration_ms:
        ledger.duration_ms = saturated(ledger.duration_ms, duration_ms)
        counts.runtime_ms = saturated(counts.runtime_ms, duration_ms)
    if usage.cost_usd_micro is not None:
        ledger.cost_usd_micro = saturated(ledger.cost_usd_micro, amount_of(usage.cost_usd_micro))
    elif tokens:
        ledger.unpriced += 1


@cfunc
def add_runtime(counts: NodeCounts, took_ms: i64) -> None:
    """Add time to the counters of a node."""
    counts.runtime_ms = saturated(counts.runtime_ms, took_ms)


@cfunc
def counts_of(run: RunState, node_tag: u32) -> NodeCounts:
    """Return the counters of a node, new if there are none. Past the cap, those of the node with the fewest turns are
    dropped: budgets limit nodes with many."""
    fewest: NodeCounts
    row: NodeCounts
    counts: NodeCounts | None = run.node_counts.find(node_tag)
    if counts is None:
        if run.node_counts.full():
            fewest = run.node_counts.rows[0]
            for row in run.node_counts.rows:
                if row.turns < fewest.turns:
                    fewest = row
            run.node_counts.forget(fewest.key)
            run.evicted += 1
        else:
            run.size_left -= COUNTS_BYTES
        counts = run.node_counts.add(node_tag)
    return counts
