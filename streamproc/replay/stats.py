"""Counts over many runs: which detectors decided how often, and the share of runs that ended without a timeout."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from streamproc.core.decision import Decision
from streamproc.core.status import Status
from streamproc.detectors import BY_CODE

OBJECTIVE: Final = 0.999  # "99.9 % of sessions complete without timeout"
# The layers of the deliberation requirement, by the codes of their detectors.
LAYERS: Final = {"BUDGET004": 1, "GRAPH001": 2, "BUDGET005": 3, "BUDGET006": 4, "BUDGET007": 5}


class DetectorCount(NamedTuple):
    """The decisions of one detector, by severity, and the number of runs that it halted. `layer` is that of the
    deliberation requirement; None: no layer."""

    code: str
    name: str
    layer: int | None
    info: int
    warn: int
    halt: int
    runs_halted: int


class EndCount(NamedTuple):
    """How the runs of a workflow ended. `without_timeout` is a share from 0 to 1; None: no run has ended."""

    workflow: str
    runs: int
    ended: int
    halted: int
    timed_out: int
    without_timeout: float | None


@dataclass
class _Run:
    workflow: str = ""
    ended: bool = False
    halted: bool = False
    timed_out: bool = False


@dataclass
class Tally:
    """Counts decisions and runs. A decision that occurs twice, as a crash of a worker may leave it, counts once."""

    _runs: defaultdict[str, _Run] = field(default_factory=lambda: defaultdict(_Run))
    _ids: set[str] = field(default_factory=set)
    _severities: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _halted: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _reasons: Counter[str] = field(default_factory=Counter)

    def add_decision(self, decision: Decision) -> None:
        """Count a decision. Those about the fleet belong to no run and are left out."""
        if decision.id in self._ids or decision.type == "fleet.state":
            return
        self._ids.add(decision.id)
        run = self._runs[decision.run_id]
        run.workflow = run.workflow or decision.workflow or ""
        self._severities[decision.code][decision.severity] += 1
        if decision.severity == "halt":
            self._halted[decision.code].add(decision.run_id)
            run.halted = run.ended = True
        if decision.stop_reason:
            self._reasons[decision.stop_reason] += 1
        run.timed_out = run.timed_out or decision.type == "run.timed_out" or decision.terminal_status == "timed_out"

    def add_run(self, run_id: str, workflow: str, *, ended: bool) -> None:
        """Count a run; `ended` without regard to its decisions."""
        run = self._runs[run_id]
        run.workflow = run.workflow or workflow
        run.ended = run.ended or ended

    def add_status(self, status: Status) -> None:
        """Count a run by its latest status. A halted run has ended; a resumed one runs again."""
        run = self._runs[status.run_id]
        run.workflow = run.workflow or status.workflow or ""
        run.ended = status.status != "running"
        run.halted = status.status == "halted"

    def detectors(self) -> list[DetectorCount]:
        """Return the detectors that decided anything: those of layers first, then the others, by code."""
        rows = [
            DetectorCount(
                code, BY_CODE[code].DETECTOR.name if code in BY_CODE else "", LAYERS.get(code),
                count["info"], count["warn"], count["halt"], len(self._halted[code]),
            )
            for code, count in self._severities.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda row: (row.layer or len(LAYERS) + 1, row.code))

    def ends(self) -> list[EndCount]:
        """Return how runs ended: all of them first (workflow `*`), then each workflow."""
        names = sorted({run.workflow for run in self._runs.values()})
        return [self._end("*", list(self._runs.values()))] + [
            self._end(name, [run for run in self._runs.values() if run.workflow == name]) for name in names
        ]

    def as_json(self) -> dict[str, Any]:
        """Return all counts: `objective`, `met` (None: no run has ended), `ends`, `detectors`, `stop_reasons`."""
        ends = self.ends()
        share = ends[0].without_timeout
        return {
            "objective": OBJECTIVE,
            "met": None if share is None else share >= OBJECTIVE,
            "ends": [one._asdict() for one in ends],
            "detectors": [one._asdict() for one in self.detectors()],
            "stop_reasons": dict(sorted(self._reasons.items())),
        }

    def _end(self, workflow: str, runs: list[_Run]) -> EndCount:
        ended = sum(run.ended for run in runs)
        late = sum(run.timed_out and run.ended for run in runs)
        share = round((ended - late) / ended, 6) if ended else None
        return EndCount(workflow, len(runs), ended, sum(run.halted for run in runs), late, share)


_read_decision = msgspec.json.Decoder(Decision).decode
_read_status = msgspec.json.Decoder(Status).decode


def read_decision(value: bytes | None) -> Decision | None:
    """Decode a record of the control topic; None if it is not a control event."""
    try:
        return _read_decision(value or b"")
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, and so are Unicode errors
        return None


def read_status(value: bytes | None) -> Status | None:
    """Decode a record of the runs topic; None if it is not a status."""
    try:
        return _read_status(value or b"")
    except (ValueError, RecursionError):
        return None
