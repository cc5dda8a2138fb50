"""Give each reader many malformed inputs (slow readers get fewer); print the inputs that it mishandles.

Coverage guides the inputs if Atheris is installed for this Python (`make fuzz` installs it). Without it, they are
random changes of valid ones.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.fuzz.readers import READERS
from tests.fuzz.run import Outcome, Trial, fuzz
from tests.fuzz.start import fuzz_guided, is_guided, keep, shared_out


def main() -> int:
    """Run the readers; return 0 if every input was read or refused, else 1."""
    options = _options()
    names = [name for name in READERS if not options.names or any(word in name for word in options.names)]
    if not names:
        print(f"no reader has {' or '.join(options.names)} in its name; there are: {', '.join(READERS)}")
        return 2
    if options.input:
        return _repeat(names, options.input.read_bytes())
    guided = not options.unguided and is_guided()
    counts = {name: max(1, int(options.count * READERS[name].share)) for name in names}
    if options.inputs:
        counts = shared_out(options.inputs, names)
    print(f"seed {options.seed}, {sum(counts.values())} inputs, {'guided by coverage' if guided else 'not guided'}")
    if not guided and not options.unguided:
        print("fuzz: Atheris is not installed for this Python, so inputs are random changes of valid ones")
    failed, outcomes = 0, list[Outcome]()
    with (ThreadPoolExecutor if guided else ProcessPoolExecutor)(options.processes) as pool:
        work = {
            pool.submit(fuzz_guided if guided else fuzz, name, options.seed, count): name
            for name, count in counts.items()
        }
        for done in as_completed(work):
            name, outcome = work[done], done.result()
            print(f"{name}: {_summary(counts[name], outcome)}", flush=True)
            outcomes.append(outcome)
            failed += bool(outcome.faults)
            for data, trace in outcome.faults:
                print(f"{data!r}\n{trace}\nagain: python -m tests.fuzz --input {keep(name, data)} {name!r}")
    faults = sum(len(outcome.faults) for outcome in outcomes)
    print(f"{len(names)} readers: {sum(one.given for one in outcomes)} inputs, {faults} faults (seed {options.seed})")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(2**31), help="to repeat a run (default: random)"
    )
    parser.add_argument("--count", type=int, default=100_000, help="inputs for each reader (default: 100000)")
    parser.add_argument("--inputs", type=int, default=0, help="inputs for all readers together, instead of --count")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count(), help="default: all cores")
    parser.add_argument("--unguided", action="store_true", help="random changes only, without coverage")
    parser.add_argument("--input", type=Path, help="give the readers this file instead")
    parser.add_argument("names", nargs="*", help="only readers whose name contains one of these words")
    return parser.parse_args()


def _summary(count: int, outcome: Outcome) -> str:
    """Return one line about a reader."""
    said = f"{count} inputs, {outcome.read} read, {outcome.refused} refused"
    if outcome.covered:
        said += f", {outcome.covered} places covered ({outcome.newly_covered} new), {outcome.corpus} inputs kept"
    return f"{said}, {len(outcome.faults)} faults"


def _repeat(names: list[str], data: bytes) -> int:
    """Give one input to readers, and print what they do with it."""
    failed = 0
    for name in names:
        trial = Trial(name)
        trial.give(data)
        failed += len(trial.faults)
        print(f"{name}: {'read' if trial.read else 'refused' if trial.refused else 'failed'}")
        print(*(trace for _, trace in trial.faults), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
