"""The worker of this checkout compared with that of another commit, and with the limit, in alternating rounds.

    STREAMPROC_BROKERS=… python -m benchmarks.worker_before_after COMMIT [--rounds N]

Both process the log of `make bench ARGS="--only worker"`, and must make the decisions of this checkout's engine. Other
work on the machine moves the turns a second; the processor time, and its ratio to that of the limit, says more there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median

import uvloop

from benchmarks.core_before_after import checkout
from benchmarks.fleet_log import fleet_log
from benchmarks.kafka_log import fill, own_topics
from benchmarks.machine import ROOT
from benchmarks.peers import raw_speed
from benchmarks.sizes import FULL
from benchmarks.throughput import LOG_AGE_MS
from benchmarks.worker_process import WORKER
from benchmarks.worker_speed import worker_speed
from streamproc.settings import load_settings


async def compare(before: Path, rounds: int) -> None:
    """Print a line for each round and contender, and the medians of the ratios."""
    settings = load_settings(topic_prefix=f"bench-{os.getpid()}-worker", timestamp_type="CreateTime")
    log = fleet_log(FULL.log_turns, int(time.time() * 1000) - LOG_AGE_MS, settings.partitions)
    found: dict[str, list[float]] = {"before": [], "now": []}
    async with own_topics(settings):
        await fill(settings, log)
        for number in range(rounds):
            limit = await raw_speed(settings, log, "decode")
            for name, folder in (("before", before), ("now", ROOT)):
                speed = (await worker_speed(settings, log, f"{name}-{number}", *WORKER, checkout=str(folder))).speed
                found[name].append(limit.cpu_us / speed.cpu_us)
                text = f"{name}: {speed.cpu_us:.1f} µs an event, {speed.per_s:.0f}/s; limit {limit.cpu_us:.2f} µs\n"
                sys.stdout.write(text)
                sys.stdout.flush()
    shares = " → ".join(f"{median(found[name]):.3f}" for name in found)
    sys.stdout.write(f"of the limit, by processor time, median: {shares}\n")


def main() -> None:
    """Compare with the commit of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    with checkout(wanted.commit) as before:
        uvloop.run(compare(before, wanted.rounds))


if __name__ == "__main__":
    main()
