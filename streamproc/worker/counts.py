"""What a worker counts for its metrics. Turns cost nothing here: slices do, and what is rarer than turns."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from streamproc.core.decision import Decision
from streamproc.metrics.definitions import DELAY_BUCKETS_S, STEP_BUCKETS_S, WORKFLOWS_MAX
from streamproc.metrics.readings import BoundedNames, BucketCounts
from streamproc.model.provider_state import ProviderState
from streamproc.model.wire import Event


@dataclass(slots=True)
class ProcessorCounts:
    """Counts since the worker started."""

    records: int = 0
    repeated: int = 0
    decisions: int = 0
    halts: int = 0
    refused: int = 0
    failures: int = 0

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)


class DecisionTimes(NamedTuple):
    """When the event of a decision was appended to the log (ms, by the broker), and when the decision was made (s, by
    this machine)."""

    log_ms: int
    made_s: float


class WorkerCounts:
    """Counts since this run of the worker started."""

    def __init__(self, *, live: bool = True) -> None:
        self.records: Counter[int] = Counter()
        """Records of the turns topic, by partition."""
        self.others: Counter[tuple[int, type[Event]]] = Counter()
        """Those among them that are valid and no turns, by partition and type."""
        self.invalid: Counter[int] = Counter()
        """Those that are no valid event, by partition."""
        self.decisions: Counter[tuple[str, str, str]] = Counter()
        """By code, severity and workflow."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """Runs that ended, by outcome and workflow."""
        self.dead_letters: Counter[str] = Counter()
        """By reason."""
        self.provider_changes: Counter[tuple[str, str]] = Counter()
        """Changes of breakers, by provider and model, and by the new state."""
        self.permits: Counter[str] = Counter()
        """Permits for probes, by provider and model."""
        self.decided_s = 0.0
        """When the broker acknowledged a decision last, by this machine's clock."""
        self.changelog_bytes = 0
        """As they were sent to the broker, compressed."""
        self.step = BucketCounts(STEP_BUCKETS_S)
        self.delay = BucketCounts(DELAY_BUCKETS_S)
        self.wait = BucketCounts(DELAY_BUCKETS_S)
        self.publishing = BucketCounts(DELAY_BUCKETS_S)
        self._live = live  # the turns topic has the broker's time, not that of an imported log
        self._workflows = BoundedNames(WORKFLOWS_MAX)
        self._providers = BoundedNames(WORKFLOWS_MAX)

    def stepped(self, partition: int, records: int, seconds: float) -> None:
        """Count a slice of records, and the time that all of them took."""
        self.records[partition] += records
        if records:
            self.step.add(seconds / records, records)

    def decided(self, decision: Decision) -> None:
        """Count a decision."""
        self.decisions[decision.code, decision.severity, self._workflows.label(decision.workflow or "")] += 1

    def halted(self, decision: Decision) -> None:
        """Count a run that this decision has ended."""
        timed_out = decision.type == "run.timed_out" or decision.terminal_status == "timed_out"
        self.ended["timed_out" if timed_out else "halted", self._workflows.label(decision.workflow or "")] += 1

    def provider_label(self, name: str) -> str:
        """Return the name of a provider as a label: the first 50 that this worker sees."""
        return self._providers.label(name)

    def provider_changed(self, state: ProviderState, permits: int) -> None:
        """Count a new state of a breaker, in which so many permits were given."""
        name = self.provider_label(state.provider)
        self.provider_changes[name, state.state] += 1
        self.permits[name] += permits

    def finished(self, workflow: str) -> None:
        """Count a run that has ended by itself."""
        self.ended["finished", self._workflows.label(workflow)] += 1

    def times(self, log_ms: int | None) -> DecisionTimes | None:
        """Return the times of a decision made now about an event of this log time; None if that is not known."""
        return DecisionTimes(log_ms, time.time()) if log_ms is not None and self._live else None

    def acknowledged(self, decisions: Iterable[DecisionTimes | None], ahead_s: float) -> None:
        """Count the delays of decisions that the broker has just acknowledged; its clock is `ahead_s` ahead of ours."""
        now_s = time.time()
        for times in decisions:
            self.decided_s = now_s
            if times is not None:
                log_s = times.log_ms / 1000 - ahead_s
                self.delay.add(now_s - log_s)
                self.wait.add(times.made_s - log_s)
                self.publishing.add(now_s - times.made_s)
