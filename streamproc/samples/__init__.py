"""Recorded trajectories of real agents, which `streamproc demo` replays. ATTRIBUTION.md names their sources."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

__all__ = ["RecordedOutcome", "outcomes", "trajectory_file"]


class RecordedOutcome(NamedTuple):
    """The outcome of a sample run: its source, its number of turns, and whether it solved its task."""

    source: str
    turns: int
    solved: bool


def trajectory_file() -> AbstractContextManager[Path]:
    """Provide the raw turns as a file (JSONL, gzip) while the context is open."""
    return as_file(files(__name__) / "trajectories.jsonl.gz")


def outcomes() -> dict[str, RecordedOutcome]:
    """Return the outcome of each run by run id, in the order of the file."""
    found = json.loads((files(__name__) / "outcomes.json").read_text(encoding="utf-8"))
    return {run_id: RecordedOutcome(**fields) for run_id, fields in found.items()}
