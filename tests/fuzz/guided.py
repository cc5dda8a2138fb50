"""Give one reader inputs that coverage guides: Atheris keeps those that reach new code, and changes them further.

A process for each reader: Atheris ends its process, and a reader that crashes the interpreter ends only its own.
The product's modules are instrumented while they are imported, so this module imports them after Atheris.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
from pathlib import Path

import atheris
import msgspec

with atheris.instrument_imports(include=["streamproc"]):
    from tests.fuzz.mutation import changed
    from tests.fuzz.run import Trial

BYTES_MAX = 40_000  # of an input: the longest texts of `mutation` fit
FRESH = 0.2  # of the changes begin with a valid input; many changes in a row leave nothing valid


def main() -> None:
    """Run until the given number of inputs; the outcome is then in the file `result`."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("result", type=Path)
    options = parser.parse_args()
    trial = Trial(options.name)
    reader = trial.reader
    logging.disable(logging.CRITICAL)

    def mutate(data: bytes, size_max: int, seed: int) -> bytes:
        """Change bytes as libFuzzer does, or bytes or the structure as the fuzzer without guidance does."""
        rng = random.Random(seed)
        draw = rng.randrange(10)
        if rng.random() < FRESH:
            data = rng.choice(trial.samples)
        found = data
        if draw >= 4:
            restructured = reader.restructured and draw > 5
            with contextlib.suppress(Exception):  # it has no structure, or too deep a one; raising would hang Atheris
                other = rng.choice(trial.samples)
                found = changed(rng, data, other, msgpack=reader.msgpack, restructured=restructured)[:size_max]
        return atheris.Mutate(data, size_max) if found == data else found

    seeds = Path(options.result).parent / "seeds"
    seeds.mkdir()
    names = [seeds / f"{number:04}" for number in range(len(trial.samples))]
    for path, sample in zip(names, trial.samples, strict=True):
        path.write_bytes(sample)

    def give(data: bytes) -> None:
        trial.give(data)
        if trial.given >= options.count:  # Atheris ends the process after the last input
            options.result.write_bytes(msgspec.msgpack.encode(trial.outcome))

    atheris.Setup(
        [
            "fuzz",
            f"-runs={options.count}",
            f"-seed={options.seed % 2**32 or 1}",  # 0: libFuzzer takes the time
            f"-seed_inputs={','.join(map(str, names))}",
            f"-max_len={BYTES_MAX}",
            "-len_control=0",
            "-keep_seed=1",  # even if another one reaches the same code: what msgspec does is not seen
            f"-artifact_prefix={options.result.parent}/",
        ],
        give,
        custom_mutator=mutate,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
