"""What a run has spent, in integers: tokens, micro-USD, milliseconds."""

from __future__ import annotations

from streamproc.core.run import COUNTS_MAX, RunState
from streamproc.wire import Usage


def count_turn(run: RunState, node_tag: int, duration_ms: int) -> list[int]:
    """Count a turn of a node; its [turns, runtime in ms] so far."""
    counts = run.counts.get(node_tag)
    if counts is None:
        if len(run.counts) >= COUNTS_MAX:
            _drop_rarest(run)
        counts = run.counts[node_tag] = [0, 0]
    counts[0] += 1
    counts[1] += duration_ms
    return counts


def _drop_rarest(run: RunState) -> None:
    """Past the cap the node with the fewest turns goes: a budget is about the ones with many."""
    del run.counts[min(run.counts, key=lambda tag: run.counts[tag][0])]
    run.evicted += 1


def spend(run: RunState, usage: Usage) -> None:
    """Book a turn's measured spend."""
    ledger = run.ledger
    ledger.input_tokens += usage.input_tokens
    ledger.output_tokens += usage.output_tokens
    ledger.cached_tokens += usage.cached_tokens
    ledger.total_tokens += usage.total_tokens or usage.input_tokens + usage.output_tokens
    ledger.duration_ms += usage.duration_ms
    if usage.cost_usd_micro is not None:
        ledger.cost_usd_micro += usage.cost_usd_micro
    elif usage.total_tokens or usage.input_tokens or usage.output_tokens:
        ledger.unpriced += 1
