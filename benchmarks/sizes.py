"""How much is measured: the whole, in about four minutes on two cores, a quick look, and next to nothing for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts and repetitions of every part."""

    rounds: int  # of what is measured in one process
    run_turns_max: int  # the longest run
    rescans: int  # turns at which the whole-history peer is measured
    resident_runs: int  # runs held in memory at once
    log_turns: int  # turns of the fleet's log on Kafka
    stock_turns: int  # of these, how many the stock agent gets
    kafka_rounds: int  # worker, limit and peers, in turns
    probes: int  # of each kind, for latency
    recovered_runs: int  # in the changelog that a worker starts with


FULL: Final = Sizes(3, 100_000, 40, 2_000, 120_000, 16_000, 3, 1_000, 200_000)
QUICK: Final = Sizes(2, 20_000, 20, 800, 40_000, 8_000, 1, 200, 60_000)
TINY: Final = Sizes(1, 60, 3, 20, 600, 100, 1, 5, 400)
