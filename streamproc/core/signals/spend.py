"""Spend of a run and of its nodes, in integers: tokens, micro-USD, milliseconds.

Memory: one ledger, and turn and runtime counters of `COUNTS_MAX` nodes. Sums stop at the largest stored integer.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import COUNTS_MAX, Ledger, RunState
from streamproc.model.wire import Usage

COUNTS_BYTES: Final = 20  # of an encoded state
SPEND_MAX: Final = 2**63 - 1  # the largest stored integer; a sum that reaches it stays there


def spend(run: RunState, usage: Usage, counts: list[int]) -> None:
    """Add a turn's measured spend to the ledger, and its duration to the `counts` of its node."""
    ledger = run.ledger
    ledger.input_tokens += usage.input_tokens
    ledger.output_tokens += usage.output_tokens
    ledger.cached_tokens += usage.cached_tokens
    ledger.total_tokens += usage.total_tokens or usage.input_tokens + usage.output_tokens
    if usage.duration_ms:
        ledger.duration_ms += usage.duration_ms
        counts[1] = min(counts[1] + usage.duration_ms, SPEND_MAX)
    if usage.cost_usd_micro is not None:
        ledger.cost_usd_micro += usage.cost_usd_micro
    elif usage.total_tokens or usage.input_tokens or usage.output_tokens:
        ledger.unpriced += 1
    tokens = ledger.input_tokens | ledger.output_tokens | ledger.cached_tokens | ledger.total_tokens
    if tokens | ledger.duration_ms | ledger.cost_usd_micro > SPEND_MAX:  # one test of the highest bits of all
        _cap(ledger)


def add_runtime(counts: list[int], took_ms: int) -> None:
    """Add time to the `counts` of a node."""
    counts[1] = min(counts[1] + took_ms, SPEND_MAX)


def _cap(ledger: Ledger) -> None:
    for name in ("input_tokens", "output_tokens", "cached_tokens", "total_tokens", "cost_usd_micro", "duration_ms"):
        setattr(ledger, name, min(getattr(ledger, name), SPEND_MAX))


def new_counts(run: RunState, node_tag: int) -> list[int]:
    """Create the counters [turns, runtime in ms] of a node. Past the cap, those of the node with the fewest turns are
    dropped: budgets limit nodes with many."""
    if len(run.node_counts) >= COUNTS_MAX:
        del run.node_counts[min(run.node_counts, key=lambda tag: run.node_counts[tag][0])]
        run.evicted += 1
    else:
        run.size_left -= COUNTS_BYTES
    counts = run.node_counts[node_tag] = [0, 0]
    return counts
