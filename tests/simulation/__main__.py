"""Run schedules until one fails: `python -m tests.simulation --schedules 100000 --seed 1`.

With `--record FILE`, the file has the first seed and how many have passed, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import random
import sys
import time
from pathlib import Path

from tests.simulation.plan import plan
from tests.simulation.schedule import run, run_seed, shrunk

CHUNK = 50  # schedules between two collections: what one leaves behind is a net of cycles
CHUNKS = 4  # that each process plays between two lines of output


def work(seeds: range) -> list[int]:
    """Return the seeds that fail."""
    if gc.isenabled():
        gc.disable()
        gc.freeze()  # what was imported is never collected, and need not be looked at
    failing = [seed for seed in seeds if run_seed(seed)]
    gc.collect()
    return failing


def main() -> int:
    """Return 0 if nothing failed, else 1 after printing the seed, how to repeat it, and a minimal schedule."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31), help="the first one")
    parser.add_argument("--schedules", type=int, default=0, help="how many (0: until one fails, or time is up)")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long (0: as long as it takes)")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--record", type=Path, help="go on from what this file says has passed, and record there")
    options = parser.parse_args()
    seed, before = options.seed, 0
    if options.record is not None and options.record.exists():
        seed, before = map(int, options.record.read_text(encoding="utf-8").split())
        print(f"{before} schedules have passed before")
    print(f"schedules from seed {seed} on; again: python -m tests.simulation --seed {seed}", flush=True)
    begun_s, done = time.monotonic(), 0
    end_s = begun_s + 60 * options.minutes if options.minutes else float("inf")
    last = seed + options.schedules if options.schedules else sys.maxsize
    firsts = itertools.takewhile(lambda first: first < last, itertools.count(seed + before, CHUNK))
    chunks = (range(first, min(first + CHUNK, last)) for first in firsts)
    with multiprocessing.Pool(options.processes) as pool:
        while batch := list(itertools.islice(chunks, CHUNKS * options.processes)):
            failing = sorted(seed for found in pool.imap_unordered(work, batch) for seed in found)
            done += sum(map(len, batch))
            print(f"\r{done} schedules, {60 * done / (time.monotonic() - begun_s):.0f} a minute", end="", flush=True)
            if options.record is not None and not failing:
                options.record.write_text(f"{seed} {before + done}\n", encoding="utf-8")
            if failing:
                print()
                show(failing[0])
                return 1
            if time.monotonic() > end_s:
                break
    print()
    return 0


def show(seed: int) -> None:
    """Print a failing schedule, and a minimal one."""
    script = plan(seed)
    print(f"seed {seed} fails; again: python -m tests.simulation --schedules 1 --seed {seed}")
    print(*run(script), sep="\n")
    least = shrunk(script)
    print("\nThe minimal schedule that fails:", least, *run(least), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
