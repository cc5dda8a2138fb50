"""Runs of real agents with their outcomes: those of the repository, or a directory of others in the same form."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.quality.labels import RawEvent
from streamproc.samples import outcomes, trajectory_file

SOLVED: Final = Path(__file__).parent / "solved"
SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.xz")


class RealRun(NamedTuple):
    """One recorded run. `solved` is its source's label for the task, not for the steps."""

    source: str
    run_id: str
    events: list[RawEvent]
    solved: bool


def real_runs() -> list[RealRun]:
    """Return those of the repository: the samples of the package, and every solved run of their sources."""
    samples = sample_runs()
    known = {run.run_id for run in samples}
    return [*samples, *(run for run in runs_in(SOLVED) if run.run_id not in known)]


def sample_runs() -> list[RealRun]:
    """Return the samples of the package, solved and unsolved."""
    known = outcomes()
    with trajectory_file() as path:
        runs = _runs(path)
    return [RealRun(known[run_id].source, run_id, events, known[run_id].solved) for run_id, events in runs.items()]


def runs_in(directory: Path) -> list[RealRun]:
    """Return the runs of a directory: ``NAME.jsonl`` (or ``.gz``, ``.xz``) files of raw turns, each with a
    ``NAME.outcomes.json`` that maps a run id to an object whose `outcome` or `solved` is true, or 1, if the task was
    solved.

    Raises `OSError` for an unreadable file, and `ValueError` if the directory has no runs or an outcome is missing.
    """
    files = sorted(file for suffix in SUFFIXES for file in directory.glob(f"*{suffix}"))
    if not files:
        raise ValueError(f"{directory} has no *.jsonl, *.jsonl.gz or *.jsonl.xz")
    return [run for file in files for run in _labelled(file)]


def _labelled(file: Path) -> Iterator[RealRun]:
    name = file.name.partition(".jsonl")[0]
    known = json.loads((file.parent / f"{name}.outcomes.json").read_text("utf-8"))
    for run_id, events in _runs(file).items():
        if run_id not in known:
            raise ValueError(f"{name}.outcomes.json has no outcome for {run_id} of {file.name}; add one")
        yield RealRun(name, run_id, events, is_solved(known[run_id]))


def is_solved(outcome: dict[str, Any]) -> bool:
    """Return whether a run was solved; an unknown outcome (null) and a partial score are not solved."""
    value = outcome["outcome"] if "outcome" in outcome else outcome["solved"]
    return value is not None and float(value) >= 1.0


def _runs(file: Path) -> dict[str, list[RawEvent]]:
    runs: dict[str, list[RawEvent]] = {}
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(file.suffix, bytes)
    for line in unpack(file.read_bytes()).splitlines():
        event = json.loads(line)
        runs.setdefault(event["run_id"], []).append(event)
    return runs
