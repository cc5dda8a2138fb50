"""Counts over many runs: which detectors decided how often, and the share of runs that ended without a timeout."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from streamproc.core.decision import Decision
from streamproc.detectors import BY_CODE, LAYERS
from streamproc.model.control_types import ABOUT_NO_RUN
from streamproc.model.controls import RunStatus
from streamproc.model.printed import (
    AcknowledgementStatistics,
    AmountUsed,
    DetectorStatistics,
    EndStatistics,
    HaltStatistics,
    RunStatistics,
    WasteStatistics,
)
from streamproc.model.raw_fields import read_time_ms

OBJECTIVE: Final = 0.999  # "99.9 % of sessions complete without timeout"


@dataclass
class _Run:
    workflow: str = ""
    ended: bool = False
    halted: bool = False
    timed_out: bool = False
    used: tuple[int, int, int] = (0, 0, 0)  # turns, tokens, micro-USD
    halt: Decision | None = None  # the first one
    acknowledged_ms: int | None = None  # the first one


@dataclass
class Tally:
    """Counts decisions and runs. A decision that occurs twice, as a crash of a worker may leave it, counts once."""

    _runs: defaultdict[str, _Run] = field(default_factory=lambda: defaultdict(_Run))
    _ids: set[str] = field(default_factory=set)
    _severities: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _halted: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _reasons: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    """Running runs whose publisher seems to be gone, of those that were counted by their status."""

    def add_decision(self, decision: Decision) -> None:
        """Count a decision. Those about the fleet belong to no run and are left out."""
        if decision.id in self._ids or decision.type in ABOUT_NO_RUN:
            return
        self._ids.add(decision.id)
        run = self._runs[decision.run_id]
        run.workflow = run.workflow or decision.workflow or ""
        self._severities[decision.code][decision.severity] += 1
        if decision.severity == "halt":
            self._halted[decision.code].add(decision.run_id)
            run.halted = run.ended = True
            run.halt = run.halt or decision
        if decision.stop_reason:
            self._reasons[decision.stop_reason] += 1
        run.timed_out = run.timed_out or decision.type == "run.timed_out" or decision.terminal_status == "timed_out"

    def add_run(self, run_id: str, workflow: str, *, ended: bool, used: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Count a run; `ended` without regard to its decisions. `used` are its turns, tokens and micro-USD."""
        run = self._runs[run_id]
        run.workflow = run.workflow or workflow
        run.ended = run.ended or ended
        run.used = used

    def add_status(self, status: RunStatus, *, lost: bool = False) -> None:
        """Count a run by its latest status. A halted run has ended; a resumed one runs again."""
        self.lost += lost
        run = self._runs[status.run_id]
        run.workflow = run.workflow or status.workflow or ""
        run.ended = status.status != "running"
        run.halted = status.status == "halted"
        run.used = status.turns, status.total_tokens, status.cost_usd_micro

    def add_acknowledgement(self, run_id: str, at_ms: int) -> None:
        """Note that a person has acknowledged the halt of a run, at a log time."""
        run = self._runs[run_id]
        run.acknowledged_ms = at_ms if run.acknowledged_ms is None else min(run.acknowledged_ms, at_ms)

    def detectors(self) -> list[DetectorStatistics]:
        """Return the detectors that decided anything: those of layers first, then the others, by code."""
        rows = [
            DetectorStatistics(
                code=code, name=BY_CODE[code].DETECTOR.name if code in BY_CODE else "", layer=LAYERS.get(code),
                info=count["info"], warn=count["warn"], halt=count["halt"], runs_halted=len(self._halted[code]),
            )
            for code, count in self._severities.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda row: (row.layer or len(LAYERS) + 1, row.code))

    def halts(self) -> list[HaltStatistics]:
        """Return how many runs each detector has halted in each workflow, most first."""
        found = Counter(
            (code, self._runs[run_id].workflow) for code, run_ids in self._halted.items() for run_id in run_ids
        )
        most_first = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return [HaltStatistics(code=code, workflow=workflow, runs=count) for (code, workflow), count in most_first]

    def waste(self) -> WasteStatistics:
        """Return what the halted runs have used, and how much of it in a loop and after the halt. The last two are
        shares of the run's totals by turns: an estimate, as turns differ in cost."""
        used, looping, after = [0, 0, 0], [0, 0, 0], [0, 0, 0]
        for run in self._runs.values():
            if run.halt is None or run.halt.turn is None or not run.used[0]:
                continue
            turn, turns = run.halt.turn, run.used[0]
            onset = turn if run.halt.onset is None else run.halt.onset
            shares = (turns, max(0, min(turn + 1, turns) - onset), max(0, turns - turn - 1))
            for counts, share in zip((used, looping, after), shares, strict=True):
                for place, amount in enumerate(run.used):
                    counts[place] += amount * share // turns
        amounts = [AmountUsed(turns=one[0], tokens=one[1], cost_usd_micro=one[2]) for one in (used, looping, after)]
        return WasteStatistics(used=amounts[0], looping=amounts[1], after_halt=amounts[2])

    def acknowledgements(self) -> list[AcknowledgementStatistics]:
        """Return the halted runs, those without an acknowledgement first, then the slowest."""
        found = []
        for run_id, run in self._runs.items():
            if run.halt is None or run.halt.at is None:
                continue
            if run.acknowledged_ms is None:
                found.append(AcknowledgementStatistics(run_id=run_id, code=run.halt.code, seconds=None))
                continue
            seconds = (run.acknowledged_ms - read_time_ms(run.halt.at)) / 1000
            if seconds >= 0:  # an earlier one belongs to an earlier halt
                found.append(AcknowledgementStatistics(run_id=run_id, code=run.halt.code, seconds=seconds))
        return sorted(found, key=lambda one: (one.seconds is not None, -(one.seconds or 0), one.run_id))

    def ends(self) -> list[EndStatistics]:
        """Return how runs ended: all of them first (workflow `*`), then each workflow."""
        names = sorted({run.workflow for run in self._runs.values()})
        return [self._end("*", list(self._runs.values()))] + [
            self._end(name, [run for run in self._runs.values() if run.workflow == name]) for name in names
        ]

    def statistics(self) -> RunStatistics:
        """Return all counts."""
        ends = self.ends()
        share = ends[0].without_timeout
        return RunStatistics(
            objective=OBJECTIVE, met=None if share is None else share >= OBJECTIVE, ends=ends,
            detectors=self.detectors(), stop_reasons=dict(sorted(self._reasons.items())), halts=self.halts(),
            waste=self.waste(), lost=self.lost, acknowledgements=self.acknowledgements(),
        )  # fmt: skip

    def _end(self, workflow: str, runs: list[_Run]) -> EndStatistics:
        ended = sum(run.ended for run in runs)
        late = sum(run.timed_out and run.ended for run in runs)
        share = round((ended - late) / ended, 6) if ended else None
        halted = sum(run.halted for run in runs)
        return EndStatistics(
            workflow=workflow, runs=len(runs), ended=ended, halted=halted, timed_out=late, without_timeout=share
        )
