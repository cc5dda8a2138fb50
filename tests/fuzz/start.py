"""Starts the fuzzer that coverage guides, in a process for each reader, and reads its outcome."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from tests.fuzz.readers import READERS
from tests.fuzz.run import Outcome

ROOT: Final = Path(__file__).parents[2]
ATHERIS: Final = ROOT / ".local" / "fuzz"  # where `make fuzz` installs it, apart from the product's packages
FAULTS: Final = ROOT / ".local" / "fuzz-faults"
COVERAGE: Final = re.compile(r"#\d+\s+(INITED|DONE)\s+cov: (\d+) ft: \d+ corp: (\d+)/")
ERROR_LINES: Final = 30  # of what a process that crashed wrote


def _environment() -> dict[str, str]:
    """Return the environment of a process. Hashes of texts are the same in each, so a seed repeats a run."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("STREAMPROC_")}
    return own | {"PYTHONPATH": str(ATHERIS), "PYTHONHASHSEED": "0", "STREAMPROC_CORE": "python"}


@cache
def is_guided() -> bool:
    """Return whether Atheris is installed for this Python."""
    command = [sys.executable, "-c", "import atheris"]
    return subprocess.run(command, env=_environment(), cwd=ROOT, capture_output=True, check=False).returncode == 0


def fuzz_guided(name: str, seed: int, count: int) -> Outcome:
    """Run `count` inputs through the reader of this name, guided by the coverage of the product's modules."""
    with TemporaryDirectory() as folder:
        result = Path(folder, "result")
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", name, str(seed), str(count), str(result)],
            env=_environment(),
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        said = done.stderr.decode("utf-8", "replace")
        found = {mark: (int(covered), int(kept)) for mark, covered, kept in COVERAGE.findall(said)}
        if done.returncode or "DONE" not in found or not result.exists():
            lines = [line for line in said.splitlines() if not line.startswith(("#", "INFO:"))]  # but its progress
            return Outcome(0, 0, [(_crashing(Path(folder)), "\n".join(lines[-ERROR_LINES:]))])
        outcome = msgspec.msgpack.decode(result.read_bytes(), type=Outcome)
    covered, corpus = found["DONE"]
    return outcome._replace(covered=covered, newly_covered=covered - found["INITED"][0], corpus=corpus)


def _crashing(folder: Path) -> bytes:
    """Return the input that ended the process; none if it ended between inputs."""
    return next((path.read_bytes() for path in sorted(folder.glob("*-*"))), b"")


def shared_out(total: int, names: list[str]) -> dict[str, int]:
    """Return the inputs of each reader: `total` in all, by the readers' shares, at least one each."""
    shares = {name: READERS[name].share for name in names}
    whole = sum(shares.values())
    counts = {name: max(1, int(total * share / whole)) for name, share in shares.items()}
    counts[names[0]] += max(0, total - sum(counts.values()))
    return counts


def keep(name: str, data: bytes) -> Path:
    """Write an input that was mishandled to a file; a reader's name and this file repeat it."""
    FAULTS.mkdir(parents=True, exist_ok=True)
    path = FAULTS / f"{re.sub(r'[^a-z]+', '-', name)}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path
