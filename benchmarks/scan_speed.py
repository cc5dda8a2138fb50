"""`scan` of a log of raw turns, compared with the least that any scan does: read, parse, hash every text.

The log is a plain JSONL file of the packaged trajectories, repeated; each copy has its own run ids, and a word of its
own in each text, so that nothing is known from an earlier copy. Both contenders run alternately on one core.
"""

from __future__ import annotations

import json
import random
import string
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any, Final

import orjson
from xxhash import xxh3_64_intdigest

from benchmarks.cores import cores, kind_of, with_core
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.timing import interleaved
from streamproc.policy import Policy, load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file

SHARE_MIN: Final = Aim("≥", 0.25)
LABELS: Final = frozenset({"type", "run_id", "node", "name", "at"})  # fields that are no content
LIMIT: Final = "limit: read, parse, hash every text"


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of both cores, or of pure Python if nothing is compiled. The aim is that of the compiled one."""
    with tempfile.TemporaryDirectory(prefix="streamproc-bench-") as folder:
        log = Path(folder, "log.jsonl")
        log.write_bytes(b"".join(copied_lines(sizes.scan_copies)))
        for core in cores():
            found = with_core(core, "benchmarks.scan_speed", log, max(2, sizes.rounds))
            ratio = median(ours / theirs for ours, theirs in zip(found["scan"], found["limit"], strict=True))
            yield Row(
                f"scan.{core}", f"scan of real logs on one core, {kind_of(core)}", max(found["scan"]), "turns/s",
                LIMIT, max(found["limit"]), ratio, SHARE_MIN if core == "compiled" else None,
                note=f"{log.stat().st_size / 2**20:.1f} MiB",
            )  # fmt: skip


def copied_lines(copies: int) -> Iterator[bytes]:
    """Yield the lines of a log with so many copies of the samples."""
    with trajectory_file() as path:
        raws = [orjson.loads(line) for _, line in Source(path).numbered()]
    dice = random.Random(7)
    for copy in range(copies):
        word = "".join(dice.choices(string.ascii_lowercase, k=9))
        for raw in raws:
            salted = {name: _salted(value, word, name) for name, value in raw.items()}
            yield orjson.dumps(salted | {"run_id": f"{raw['run_id']}~{copy}"}) + b"\n"


def _salted(value: Any, word: str, name: str = "") -> Any:
    """Return the same content with another word at the end of each text."""
    if isinstance(value, dict):
        return {key: _salted(part, word, key) for key, part in value.items()}
    if isinstance(value, list):
        return [_salted(part, word) for part in value]
    return f"{value} {word}" if isinstance(value, str) and name not in LABELS else value


def figures(log: Path, rounds: int) -> dict[str, list[float]]:
    """Return the turns per second of each round, with the core of this process."""
    turns, policy = _least(log), load_policy()
    scanned, decisions = _scan(policy, log)
    if scanned != turns or not decisions:
        raise BenchmarkDefect("the scan did not read the turns of the log, or decided nothing")
    works: dict[str, Callable[[Path], object]] = {"scan": partial(_scan, policy), "limit": _least}
    return interleaved({name: partial(_per_s, work, log, turns) for name, work in works.items()}, rounds)


def _per_s(work: Callable[[Path], object], log: Path, turns: int) -> float:
    began = thread_time()
    work(log)
    return turns / (thread_time() - began)


def _scan(policy: Policy, log: Path) -> tuple[int, int]:
    """Return the numbers of turns and of decisions."""
    scan = Scan([Source(log)], policy)
    decisions = sum(1 for _ in scan)
    return scan.turns, decisions


def _least(log: Path) -> int:
    """Read and parse each line, and hash its texts; return the number of lines."""
    lines = 0
    with log.open("rb") as stream:
        for line in stream:
            _hash(orjson.loads(line))
            lines += 1
    return lines


def _hash(value: Any) -> None:
    """Hash every text of a parsed line."""
    if type(value) is str:
        xxh3_64_intdigest(value.encode("utf-8", "surrogatepass"))
    elif type(value) is dict:
        for part in value.values():
            _hash(part)
    elif type(value) is list:
        for part in value:
            _hash(part)


if __name__ == "__main__":
    print(json.dumps(figures(Path(sys.argv[1]), int(sys.argv[2]))))
