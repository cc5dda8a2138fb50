"""The ledger counts in integers that fit into a state, however much is reported."""

from __future__ import annotations

from streamproc.core.run_state import RunState, dump, load
from streamproc.core.signals.spend import SPEND_MAX
from streamproc.model.wire import Usage

LARGEST = 2**53  # of one report


def test_sums_stop_at_the_largest_stored_integer() -> None:
    run = RunState()
    for _ in range(1_100):
        run.ledger.add(Usage(LARGEST, 1, 0, 0, LARGEST, LARGEST))

    assert (run.ledger.input_tokens, run.ledger.output_tokens) == (SPEND_MAX, 1_100)
    assert run.ledger.total_tokens == run.ledger.cost_usd_micro == run.ledger.duration_ms == SPEND_MAX
    assert dump(load(dump(run))) == dump(run)


def test_tokens_without_a_price_are_counted_as_unpriced() -> None:
    run = RunState()

    run.ledger.add(Usage(100, 20))
    run.ledger.add(Usage(100, 20, cost_usd_micro=5))

    assert (run.ledger.unpriced, run.ledger.total_tokens, run.ledger.cost_usd_micro) == (1, 240, 5)
