"""What became of runs, and what people said of their halts: the labels against which `backtest` counts.

A file of outcomes is one JSON object. It maps a run id to an object with

- `outcome`: ``solved``, ``failed`` or ``unknown``. Also accepted, as other sources write it: true or a score of at
  least 1 (solved), false or a lower score (failed), null (unknown); and the key `solved` instead.
- `stuck`, optional: true if the run was rightly halted, or should have been; false if no halt of it is right. Feedback
  of people becomes this label.
- anything else (`why`, `by`, …), which is kept by `feedback --export` and ignored here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

from streamproc.errors import InvalidEvent, Problem, shown
from streamproc.model.bounded_file import bounded_text
from streamproc.model.wire import Feedback

SUFFIX: Final = ".outcomes.json"
OUTCOMES_BYTES_MAX: Final = 256 << 20  # about two million runs
OutcomeName = Literal["solved", "failed", "unknown"]
NAMES: Final = ("solved", "failed", "unknown")
REMEDY: Final = 'write "outcome": "solved", "failed" or "unknown", and "stuck": true or false if you know it'


class RunLabel(NamedTuple):
    """What is known of a run. `stuck` None: not known."""

    outcome: OutcomeName = "unknown"
    stuck: bool | None = None
    why: str = ""
    by: str = ""

    @property
    def healthy(self) -> bool:
        """Whether a halt of the run is a false one: it was judged so, or not judged, and the task was solved."""
        return self.stuck is False or (self.stuck is None and self.outcome == "solved")


def read_outcomes(path: str | Path) -> dict[str, RunLabel]:
    """Read a file of outcomes. Raises `InvalidEvent` that names file, run and field, and `OSError`."""
    place = str(path)
    try:
        data = json.loads(bounded_text(path, OUTCOMES_BYTES_MAX))
    except (ValueError, RecursionError) as error:
        raise InvalidEvent([Problem("outcomes", f"not JSON: {error}", "give one JSON object", place)]) from None
    if not isinstance(data, dict):
        what = f"expected an object by run id, got {shown(data)}"
        raise InvalidEvent([Problem("outcomes", what, REMEDY, place)])
    return {run_id: _label(run_id, found, place) for run_id, found in data.items()}


def _label(run_id: str, found: Any, place: str) -> RunLabel:
    if not isinstance(found, dict) or not {"outcome", "solved", "stuck"} & found.keys():
        what = f"expected an object with outcome or stuck, got {shown(found)}"
        raise InvalidEvent([Problem(run_id, what, REMEDY, place)])
    stuck = found.get("stuck")
    if stuck is not None and not isinstance(stuck, bool):
        what = f"expected true or false, got {shown(stuck)}"
        raise InvalidEvent([Problem(f"{run_id}.stuck", what, REMEDY, place)])
    field = "solved" if "solved" in found and "outcome" not in found else "outcome"
    why, by = found.get("why", ""), found.get("by", "")
    return RunLabel(_outcome(found.get(field), f"{run_id}.{field}", place), stuck, str(why), str(by))


def _outcome(value: Any, field: str, place: str) -> OutcomeName:
    if value is None:
        return "unknown"
    if isinstance(value, str) and value in NAMES:
        return cast("OutcomeName", value)
    if isinstance(value, bool | int | float):
        return "solved" if value >= 1 else "failed"  # a partial score has not solved the task
    raise InvalidEvent([Problem(field, f"{shown(value)} is no outcome", REMEDY, place)])


def beside(logs: Iterable[str]) -> list[str]:
    """Return the files of outcomes that lie beside logs: ``NAME.outcomes.json`` beside ``NAME.jsonl``, also ``.gz``."""
    found: dict[str, None] = {}
    for log in logs:
        path = Path(log)
        name = path.name
        for ending in (".gz", ".zst", ".xz", ".jsonl", ".ndjson", ".json", ".traj"):
            name = name.removesuffix(ending)
        outcomes = path.parent / f"{name}{SUFFIX}"
        if outcomes.is_file():
            found[str(outcomes)] = None
    return list(found)


def with_feedback(labels: Mapping[str, RunLabel], feedback: Iterable[Feedback]) -> dict[str, RunLabel]:
    """Return labels with what people said, oldest first: the latest word about a run counts."""
    found = dict(labels)
    for one in feedback:
        label = found.get(one.run_id, RunLabel())
        found[one.run_id] = label._replace(stuck=one.verdict == "right", why=one.reason, by=one.by)
    return found


def outcomes_json(labels: Mapping[str, RunLabel]) -> str:
    """Return labels as a file of outcomes, in the order of run ids."""
    rows = {run_id: _written(label) for run_id, label in sorted(labels.items())}
    return json.dumps(rows, ensure_ascii=True, indent=1)


def _written(label: RunLabel) -> dict[str, Any]:
    row: dict[str, Any] = {"outcome": label.outcome}
    if label.stuck is not None:
        row["stuck"] = label.stuck
    return row | {name: text for name, text in (("why", label.why), ("by", label.by)) if text}
