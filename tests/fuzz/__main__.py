"""Give each reader many malformed inputs (slow readers get fewer); print the inputs that it mishandles."""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
from functools import partial

from tests.fuzz.readers import READERS
from tests.fuzz.run import Outcome, fuzz


def _one(name: str, seed: int, count: int) -> tuple[str, int, Outcome]:
    inputs = max(1, int(count * READERS[name].share))
    return name, inputs, fuzz(name, seed, inputs)


def main() -> int:
    """Run the readers; return 0 if every input was read or refused, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(2**31), help="to repeat a run (default: random)"
    )
    parser.add_argument("--count", type=int, default=100_000, help="inputs for each reader (default: 100000)")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count(), help="default: all cores")
    parser.add_argument("names", nargs="*", help="only readers whose name contains one of these words")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    names = [name for name in READERS if not options.names or any(word in name for word in options.names)]
    failed = 0
    with multiprocessing.Pool(options.processes) as pool:
        work = partial(_one, seed=options.seed, count=options.count)
        for name, inputs, outcome in pool.imap_unordered(work, names):
            print(f"{name}: {inputs} inputs, {outcome.read} read, {len(outcome.faults)} faults", flush=True)
            failed += bool(outcome.faults)
            for data, trace in outcome.faults:
                print(f"{data!r}\n{trace}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
