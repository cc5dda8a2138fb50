"""The ledger counts in integers that fit into a state, however much is reported."""

from __future__ import annotations

from streamproc.core.signals.spend import SPEND_MAX
from streamproc.model.wire import Usage
from tests.feeding import Feed

LARGEST = 2**53  # of one report


def test_sums_stop_at_the_largest_stored_integer() -> None:
    feed = Feed()
    for _ in range(1_100):
        feed.state.ledger.add(Usage(LARGEST, 1, 0, 0, LARGEST, LARGEST))
    feed.restart()

    ledger = feed.state.ledger
    assert (ledger.input_tokens, ledger.output_tokens) == (SPEND_MAX, 1_100)
    assert ledger.total_tokens == ledger.cost_usd_micro == ledger.duration_ms == SPEND_MAX
