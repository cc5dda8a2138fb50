"""The ledger counts in integers that fit into a state, however much is reported."""

from __future__ import annotations

from streamproc.core.run_state import RunState, dump, load
from streamproc.core.signals.spend import SPEND_MAX, NodeCounts, spend
from streamproc.model.wire import Usage

LARGEST = 2**53  # of one report


def test_sums_stop_at_the_largest_stored_integer() -> None:
    run = RunState()
    counts = run.node_counts.add(7)

    for _ in range(1_100):
        spend(run, Usage(LARGEST, 1, 0, 0, LARGEST, LARGEST), counts)

    assert (run.ledger.input_tokens, run.ledger.output_tokens) == (SPEND_MAX, 1_100)
    assert run.ledger.total_tokens == run.ledger.cost_usd_micro == run.ledger.duration_ms == SPEND_MAX
    [counts] = load(dump(run)).node_counts.rows
    assert (counts.key, counts.turns, counts.runtime_ms) == (7, 0, SPEND_MAX)
    assert dump(load(dump(run))) == dump(run)


def test_tokens_without_a_price_are_counted_as_unpriced() -> None:
    run = RunState()

    spend(run, Usage(100, 20), NodeCounts())
    spend(run, Usage(100, 20, cost_usd_micro=5), NodeCounts())

    assert (run.ledger.unpriced, run.ledger.total_tokens, run.ledger.cost_usd_micro) == (1, 240, 5)
