"""What a plan expects on the topic `runs`: the statuses that workers have not removed yet, and who has to read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from streamproc.kafka.topics import COMPACTED, tombstones_kept_ms
from streamproc.settings import Settings
from streamproc.worker.limits import (
    STATUS_SWEEP_INTERVAL_S,
    STATUS_SWEEP_PAUSE_S,
    STATUS_SWEEP_RECORDS,
    STATUS_SWEEP_WRITES,
)

if TYPE_CHECKING:
    from streamproc.cli.measured_figures import MeasuredFigures

LISTENER_START_S: Final = 10.0  # `start_timeout_s` of HaltListener
TOMBSTONE: Final = 0.5  # what reading one costs a listener, of what a status costs: measured, less
FOR_EVER_S: Final = 365 * 86_400.0  # what is planned for where statuses are never removed
BUSY_MAX: Final = 0.95  # of the time between two readings, for writing tombstones
SHORTER: Final = ((12, 30), (6, 30), (3, 30), (1, 30), (1, 7), (1, 1))  # hours and days that a remedy may name


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """What the fleet does, and what is to be survived. Numbers are above 0, except `killed` and `outage_s`."""

    runs: int  # at a time
    turns_per_second: float
    turns_per_run: float
    listeners: int
    turns_per_request: float  # that a publisher sends together
    status_finished_hours: float  # how long statuses are kept, as in the settings
    status_days: float
    halted_share: float  # of all runs, with those that never finish
    killed: int
    outage_s: float


def kept_statuses(load: FleetLoad) -> tuple[float, float]:
    """Return the statuses and the tombstones on the topic `runs`, without what compaction has removed."""
    ended_per_s = load.turns_per_second / load.turns_per_run
    finished_s = (load.status_finished_hours * 3_600 or FOR_EVER_S) + STATUS_SWEEP_INTERVAL_S
    other_s = load.status_days * 86_400 or FOR_EVER_S
    settings = Settings.model_construct(status_finished_hours=load.status_finished_hours)
    tombstones_s = (tombstones_kept_ms(settings) + int(COMPACTED["max.compaction.lag.ms"])) / 1_000
    share = load.halted_share
    statuses = load.runs + ended_per_s * ((1 - share) * finished_s + share * other_s)
    return statuses, ended_per_s * tombstones_s if load.status_finished_hours else 0.0


def listener_start_s(load: FleetLoad, figures: MeasuredFigures) -> float:
    """Return the seconds until a listener has read the topic `runs`."""
    statuses, tombstones = kept_statuses(load)
    return (statuses + TOMBSTONE * tombstones) / figures.statuses_per_second


def listener_remedy(load: FleetLoad, figures: MeasuredFigures) -> str:
    """Return the longest retention with which a listener starts in time, if there is one, and what else helps."""
    for hours, days in SHORTER:
        shorter = replace(load, status_finished_hours=hours, status_days=min(days, load.status_days or days))
        if listener_start_s(shorter, figures) <= LISTENER_START_S:
            both = f" and STREAMPROC_STATUS_DAYS={days}" if shorter.status_days != load.status_days else ""
            return f"set STREAMPROC_STATUS_FINISHED_HOURS={hours}{both}, or raise start_timeout_s"
    return "lower STREAMPROC_STATUS_FINISHED_HOURS and _DAYS; raise start_timeout_s; split the fleet by tenant"


def old_at_once(load: FleetLoad, records: float, workers: int, partitions: int) -> float:
    """Return how many statuses grow old in a partition while a worker reads all of its own and waits for the next."""
    per_s = load.turns_per_second / load.turns_per_run
    read_s = records / workers / (STATUS_SWEEP_RECORDS / STATUS_SWEEP_PAUSE_S)
    writing = min(BUSY_MAX, per_s / workers / (STATUS_SWEEP_WRITES / STATUS_SWEEP_PAUSE_S))
    return per_s / partitions * (read_s + STATUS_SWEEP_INTERVAL_S) / (1 - writing)
