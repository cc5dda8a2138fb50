"""Real agent trajectories that come with the package: what `streamproc demo` runs on. See ATTRIBUTION.md."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple


class RecordedOutcome(NamedTuple):
    """What became of a sample run: where it is from, how many turns it took, whether its task was solved."""

    source: str
    turns: int
    solved: bool


def trajectory_file() -> AbstractContextManager[Path]:
    """The raw turns as a file (JSONL, gzip) for as long as the context is open."""
    return as_file(files(__name__) / "trajectories.jsonl.gz")


def outcomes() -> dict[str, RecordedOutcome]:
    """The outcome of each run, by run id, in the order of the file."""
    found = json.loads((files(__name__) / "outcomes.json").read_text(encoding="utf-8"))
    return {run_id: RecordedOutcome(**fields) for run_id, fields in found.items()}
