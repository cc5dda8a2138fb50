"""The long form: `python -m tests.fuzz --count 100000`, so many inputs for each reader, slow ones fewer."""

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
    """0: every input was read or refused. 1: some were not; they are told."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("names", nargs="*", help="words of the readers' names (none: all of them)")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    names = [name for name in READERS if not options.names or any(word in name for word in options.names)]
    failed = 0
    with multiprocessing.Pool(options.processes) as pool:
        work = partial(_one, seed=options.seed, count=options.count)
        for name, inputs, outcome in pool.imap_unordered(work, names):
            print(f"{name}: {inputs} inputs, {outcome.taken} taken, {len(outcome.faults)} faults", flush=True)
            failed += bool(outcome.faults)
            for data, told in outcome.faults:
                print(f"{data!r}\n{told}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
