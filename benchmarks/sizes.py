"""How much to measure: everything (four minutes on two cores), a quick run, and a minimum for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts and repetitions of every part."""

    rounds: int  # for parts that need no Kafka
    run_turns_max: int  # the longest run
    interleaved_runs: int  # runs that take turns, for the step
    rescans: int  # turns at which the whole-history peer is measured
    resident_runs: int  # runs in memory at once
    table_runs: int  # runs in the worker's table at once
    scan_copies: int  # of the samples, in the log that is scanned
    log_turns: int  # turns of the fleet's log on Kafka
    stock_turns: int  # of these, the turns for the stock agent
    kafka_rounds: int  # of worker, limit and peers
    probes: int  # of each kind, for the latency
    recovered_runs: int  # in the changelog that a worker starts with
    page_runs: int  # that the page shows
    page_s: int  # of load on the page


FULL: Final = Sizes(3, 100_000, 1_000, 40, 2_000, 1_000_000, 5, 120_000, 16_000, 3, 1_000, 200_000, 10_000, 30)
QUICK: Final = Sizes(2, 20_000, 1_000, 20, 800, 100_000, 2, 40_000, 8_000, 1, 200, 60_000, 10_000, 10)
TINY: Final = Sizes(1, 60, 40, 3, 20, 100, 1, 600, 100, 1, 5, 400, 300, 1)
