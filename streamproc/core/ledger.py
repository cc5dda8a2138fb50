"""What a run has spent, in integers: tokens, micro-USD, milliseconds."""

from __future__ import annotations

from typing import Final

from streamproc.core.run import COUNTS_MAX, RunState
from streamproc.wire import Usage

SPEND_MAX: Final = 2**63 - 1  # what a stored integer can hold; a sum that reaches it stays there


def count_turn(run: RunState, node_tag: int, duration_ms: int) -> list[int]:
    """Count a turn of a node; its [turns, runtime in ms] so far."""
    counts = run.counts.get(node_tag)
    if counts is None:
        if len(run.counts) >= COUNTS_MAX:
            _drop_rarest(run)
        counts = run.counts[node_tag] = [0, 0]
    counts[0] += 1
    counts[1] = min(counts[1] + duration_ms, SPEND_MAX)
    return counts


def _drop_rarest(run: RunState) -> None:
    """Past the cap the node with the fewest turns goes: a budget is about the ones with many."""
    del run.counts[min(run.counts, key=lambda tag: run.counts[tag][0])]
    run.evicted += 1


def spend(run: RunState, usage: Usage) -> None:
    """Book a turn's measured spend."""
    ledger = run.ledger
    total = usage.total_tokens or usage.input_tokens + usage.output_tokens
    ledger.input_tokens = min(ledger.input_tokens + usage.input_tokens, SPEND_MAX)
    ledger.output_tokens = min(ledger.output_tokens + usage.output_tokens, SPEND_MAX)
    ledger.cached_tokens = min(ledger.cached_tokens + usage.cached_tokens, SPEND_MAX)
    ledger.total_tokens = min(ledger.total_tokens + total, SPEND_MAX)
    ledger.duration_ms = min(ledger.duration_ms + usage.duration_ms, SPEND_MAX)
    if usage.cost_usd_micro is not None:
        ledger.cost_usd_micro = min(ledger.cost_usd_micro + usage.cost_usd_micro, SPEND_MAX)
    elif usage.total_tokens or usage.input_tokens or usage.output_tokens:
        ledger.unpriced += 1
