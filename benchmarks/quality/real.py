"""Runs of real agents and what became of them: the packaged samples, or a directory of more of the same kind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality.labels import RawEvent
from streamproc.samples import outcomes, trajectory_file


class RealRun(NamedTuple):
    """One recorded run. `solved` is what its source says of the task, not of the way to it."""

    source: str
    run_id: str
    events: list[RawEvent]
    solved: bool


def sample_runs() -> list[RealRun]:
    """Those that come with the package."""
    known = outcomes()
    with trajectory_file() as path:
        runs = _runs(path)
    return [RealRun(known[run_id].source, run_id, events, known[run_id].solved) for run_id, events in runs.items()]


def runs_in(directory: Path) -> list[RealRun]:
    """All of a directory: ``NAME.jsonl`` or ``NAME.jsonl.gz`` of raw turns, each beside a ``NAME.outcomes.json`` that
    maps a run id to an object whose `outcome` or `solved` is true, or 1, where the task was solved.

    Raises `OSError` where a file cannot be read, and `ValueError` where there is nothing to read or an outcome is
    missing.
    """
    files = sorted([*directory.glob("*.jsonl"), *directory.glob("*.jsonl.gz")])
    if not files:
        raise ValueError(f"{directory} has no *.jsonl and no *.jsonl.gz")
    return [run for file in files for run in _labelled(file)]


def _labelled(file: Path) -> Iterator[RealRun]:
    name = file.name.removesuffix(".gz").removesuffix(".jsonl")
    known = json.loads((file.parent / f"{name}.outcomes.json").read_text("utf-8"))
    for run_id, events in _runs(file).items():
        if run_id not in known:
            raise ValueError(f"{name}.outcomes.json says nothing of {run_id}, which is in {file.name}")
        yield RealRun(name, run_id, events, _solved(known[run_id]))


def _solved(outcome: dict[str, Any]) -> bool:
    """Nobody knows (null) is not solved; a part of the points is not, either."""
    value = outcome["outcome"] if "outcome" in outcome else outcome["solved"]
    return value is not None and float(value) >= 1.0


def _runs(file: Path) -> dict[str, list[RawEvent]]:
    runs: dict[str, list[RawEvent]] = {}
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            runs.setdefault(event["run_id"], []).append(event)
    return runs
