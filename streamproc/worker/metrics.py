"""The metrics and the readiness of a worker, read from its parts when they are asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from streamproc.fleet.command_events import ISSUED, REFUSED
from streamproc.metrics import definitions
from streamproc.metrics.readings import Reading, status_readings
from streamproc.model.wire import Turn
from streamproc.worker.eviction import HALTED, STUB

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator

    from streamproc.worker.composition import Worker
    from streamproc.worker.counts import WorkerCounts

# Series that exist before they count anything: a rate sees only the growth of a series that it has seen before.
FLEET_DECISIONS = ((ISSUED, "halt"), (ISSUED, "warn"), (ISSUED, "info"), (REFUSED, "warn"))


class WorkerMetrics:
    """Reads a worker. It exists before the worker, which waits for its broker, and is given the worker then."""

    def __init__(self, stop: asyncio.Event) -> None:
        self.worker: Worker | None = None
        self._stop = stop

    def missing(self) -> list[str]:
        """Return what the worker still waits for, in words; nothing if it is ready."""
        worker = self.worker
        if self._stop.is_set():
            return ["stopping"]
        if worker is None:
            return ["waiting for the broker and its topics"]
        fleet = [] if worker.fleet_commands.caught_up.is_set() else ["reading the fleet commands"]
        trouble = worker.fleet_commands.trouble
        return [*worker.lag.missing(), *fleet, *([str(trouble)] if trouble is not None else [])]

    def read(self) -> Iterator[Reading]:
        """Yield all metrics; none before there is a worker."""
        worker = self.worker
        if worker is None:
            return
        yield from _events(worker.counts, worker.store.partitions)
        yield from _decisions(worker)
        yield from _states(worker)
        yield from _troubles(worker)
        yield from _providers(worker)
        for partition, records, seconds in worker.lag.lags():
            yield Reading(definitions.LAG_RECORDS, records, (str(partition),))
            yield Reading(definitions.LAG_SECONDS, seconds, (str(partition),))


def _events(counts: WorkerCounts, partitions: Iterable[int]) -> Iterator[Reading]:
    turn = str(Turn.__struct_config__.tag)
    by_type = Counter({(partition, turn): 0 for partition in partitions})
    for (partition, kind), times in counts.others.items():
        by_type[partition, str(kind.__struct_config__.tag)] += times
    for partition, times in counts.invalid.items():
        by_type[partition, "invalid"] += times
    not_turns: Counter[int] = Counter()
    for (partition, _), times in by_type.items():
        not_turns[partition] += times
    for partition, times in counts.records.items():
        by_type[partition, turn] = times - not_turns[partition]
    for (partition, event_type), times in sorted(by_type.items()):
        yield Reading(definitions.EVENTS, times, (str(partition), event_type))
    yield Reading(definitions.STEP, counts.step)


def _decisions(worker: Worker) -> Iterator[Reading]:
    counts = worker.counts
    decisions = Counter({(code, severity, ""): 0 for code, severity in FLEET_DECISIONS})
    decisions.update(counts.decisions)
    yield from _series(definitions.DECISIONS, decisions)
    ended = Counter({(outcome, ""): 0 for outcome in definitions.RUN_ENDS})
    ended.update(counts.ended)
    yield from _series(definitions.RUNS_ENDED, ended)
    yield Reading(definitions.DECISION_DELAY, counts.delay)
    yield Reading(definitions.DECISION_WAIT, counts.wait)
    yield Reading(definitions.DECISION_PUBLISH, counts.publishing)


def _states(worker: Worker) -> Iterator[Reading]:
    ranks = [runs.ranks() for runs in worker.store.partitions.values()]
    yield Reading(definitions.RUNS, sum(map(sum, ranks)), ("held",))
    yield Reading(definitions.RUNS, sum(rank[HALTED] + rank[STUB] for rank in ranks), ("halted",))
    if worker.fleet_commands.caught_up.is_set():
        yield from status_readings(worker.fleet_commands.fleet.status)


def _troubles(worker: Worker) -> Iterator[Reading]:
    counts, processor = worker.counts, worker.processor.counts
    for reason in definitions.DEAD_LETTER_REASONS:
        yield Reading(definitions.DEAD_LETTERS, counts.dead_letters[reason], (reason,))
    failures = dict.fromkeys(worker.detectors, 0) | worker.faults | {"engine": processor.failures}
    for detector, times in failures.items():
        yield Reading(definitions.FAILURES, times, (detector,))
    yield Reading(definitions.EVICTED, worker.store.run_limits.evicted)
    yield Reading(definitions.REPEATED, processor.repeated)
    yield Reading(definitions.DEADLINES, worker.deadlines.appended)
    yield Reading(definitions.CHANGELOG_BYTES, counts.changelog_bytes)


def _providers(worker: Worker) -> Iterator[Reading]:
    counts = worker.counts
    for state in worker.provider_clock.states():
        yield Reading(definitions.PROVIDERS, 1, (counts.provider_label(state.provider), state.state))
    yield from _series(definitions.PROVIDER_CHANGES, counts.provider_changes)
    for provider, times in sorted(counts.permits.items()):
        yield Reading(definitions.PROVIDER_PERMITS, times, (provider,))


def _series(metric: definitions.MetricDefinition, counts: Counter[Any]) -> Iterator[Reading]:
    for labels, times in sorted(counts.items()):
        yield Reading(metric, times, labels)
