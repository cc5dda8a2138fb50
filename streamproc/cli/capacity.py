"""How large a deployment must be for a load: partitions, workers, brokers, network, disk, and times of recovery.

Pure arithmetic on measured figures; the death of workers is simulated (`cli.takeover`). docs/scaling.md explains each
formula and where the limits of Kafka come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from streamproc.cli.kept_statuses import (
    LISTENER_START_S,
    FleetLoad,
    kept_statuses,
    listener_remedy,
    listener_start_s,
    old_at_once,
)
from streamproc.cli.takeover import Takeover, simulate_takeover
from streamproc.kafka.topics import COMPACTED, specs
from streamproc.model.formats import DAY_MS
from streamproc.settings import Settings
from streamproc.worker.limits import (
    ACTIVITY_INTERVAL_S,
    COMMIT_INTERVAL_S,
    FINISHED_KEEP_MS,
    ROCKSDB_BUFFER_BYTES,
    ROCKSDB_CACHE_BYTES,
    RUNS_MAX,
    RUNS_ON_DISK_MAX,
    STATUSES_DUE_MAX,
    STORE_LINGER_S,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.cli.measured_figures import MeasuredFigures

RECOVERED_RUNS: Final = 200_000  # of the worker whose memory was measured
WORKERS_MEASURED: Final = 4  # the most whose efficiency the benchmark measures
PARTITIONS_A_WORKER: Final = 4  # so that workers can be added later, and a dead worker's go to several
FETCHES_PER_S: Final = 2  # of an idle listener from each broker: a fetch waits for 500 ms
FETCH_PARTITION_BYTES: Final = 70  # of a partition in a fetch without data: 28 in the request, 42 in the response
ROCKSDB_RUN_BYTES: Final = 157  # in memory, of a run on disk: docs/operations.md, "Runs on disk"
DAY_S: Final = 86_400
TEMPLATE: Final = Settings.model_construct(topic_prefix="streamproc", group="", shadow="", replication_factor=3)
TOPICS: Final = {  # without `workers`, whose one partition does not count
    spec.name.rpartition(".")[2].rpartition("worker-")[2]: spec for spec in specs(TEMPLATE) if spec.partitions > 1
}
# What the cleaner of a compacted topic leaves alone: its active segment, and the youngest records behind it.
UNCOMPACTED_S: Final = (int(COMPACTED["segment.ms"]) + int(COMPACTED["min.compaction.lag.ms"])) / 1_000

# What a page holds, and the decisions at which it was tested.
PAGE_RUNS_MAX: Final = 250_000
PAGE_DECISIONS_PER_S: Final = 1_000

# Limits that others have published; docs/scaling.md names them.
CLUSTER_PARTITIONS_MAX: Final = 200_000
CLUSTER_BROKERS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the deployment is built. `utilisation` is the share of its most that a worker does at this load."""

    store: Literal["memory", "rocksdb"]
    utilisation: float
    replicas: int
    broker_cores: float
    broker_bytes_per_s: float  # in and out together
    broker_disk_bytes: float
    broker_partitions: int  # replicas that lead and that follow


class Bound(NamedTuple):
    """A limit: what this load needs of it, and what it allows, in the unit of `what`."""

    what: str
    needs: float
    allows: float
    remedy: str

    @property
    def share(self) -> float:
        """The need as a part of the limit; above 1 it breaks."""
        return self.needs / self.allows


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The answer. Rates are per second, sizes in bytes, times in seconds. Reasons and traffic are by name."""

    runs_held: float
    worker_per_s: float
    turns_per_state: float
    workers: int
    workers_by: dict[str, int]
    worker_memory: float
    worker_disk: float
    partitions: int
    brokers: int
    brokers_by: dict[str, int]
    traffic_in: dict[str, float]
    traffic_out: dict[str, float]
    disk: dict[str, float]
    decisions_per_s: float
    changelog_records: float  # of one worker's partitions
    restart_records: float  # of these, read by a worker that restarts
    restart_s: float
    takeover: Takeover | None
    outage_s: float | None
    statuses: float  # that the topic `runs` keeps
    tombstones: float
    listener_start_s: float
    listener_records: float  # per second, of the topics `control` and `runs`
    bounds: tuple[Bound, ...]  # the tightest first
    extrapolated: tuple[str, ...]


def make_plan(load: FleetLoad, cluster: Cluster, figures: MeasuredFigures) -> CapacityPlan:
    """Return the deployment for a load. Raises `ValueError` for more killed workers than can be survived."""
    held = load.runs + _finished(load)
    per_state = 1 + load.turns_per_second / load.runs * STORE_LINGER_S
    worker_per_s = figures.turns_per_second * figures.event_us / _event_us(per_state, figures)
    runs_max = RUNS_MAX if cluster.store == "memory" else RUNS_ON_DISK_MAX
    by = {
        "processor time": ceil(load.turns_per_second / worker_per_s / cluster.utilisation),
        "runs held, and one to spare": ceil(held / runs_max) + 1,
        "one to take over": 2,
    }
    workers = max(by.values())
    if load.killed >= workers:
        raise ValueError(f"{load.killed} workers cannot die of {workers}: one must survive")
    in_cluster = CLUSTER_PARTITIONS_MAX // len(TOPICS) // cluster.replicas
    partitions = max(workers, min(PARTITIONS_A_WORKER * workers, in_cluster))
    writes = load.turns_per_second / per_state
    records = (held + writes * UNCOMPACTED_S) / workers
    # A worker that is back on its disk reads only what it had not stored there yet.
    again = records if cluster.store == "memory" else min(records, writes / workers * COMMIT_INTERVAL_S)
    statuses, tombstones = kept_statuses(load)
    incoming = _incoming(load, figures, writes)
    disk = _disk(cluster, figures, incoming, held + writes * UNCOMPACTED_S, statuses)
    outgoing, brokers_by = _brokers(load, cluster, figures, incoming, sum(disk.values()), partitions)
    decisions = load.turns_per_second * figures.decisions_per_1000_turns / 1_000
    listener_s = listener_start_s(load, figures)
    heard = decisions + incoming["runs"] / figures.status_bytes
    return CapacityPlan(
        runs_held=held,
        worker_per_s=worker_per_s,
        turns_per_state=per_state,
        workers=workers,
        workers_by=by,
        worker_memory=_memory(held / workers, cluster, figures),
        worker_disk=held / workers * figures.run_memory_bytes if cluster.store == "rocksdb" else 0.0,
        partitions=partitions,
        brokers=max(brokers_by.values()),
        brokers_by=brokers_by,
        traffic_in=incoming,
        traffic_out=outgoing,
        disk=disk,
        decisions_per_s=decisions,
        changelog_records=records,
        restart_records=again,
        restart_s=figures.restart_s + again / figures.recovered_per_second,
        takeover=_takeover(load, workers, partitions, worker_per_s, records, figures),
        outage_s=_catch_up(load, workers, worker_per_s, again, figures),
        statuses=statuses,
        tombstones=tombstones,
        listener_start_s=listener_s,
        listener_records=heard,
        bounds=tuple(
            sorted(
                [
                    *_kafka_bounds(cluster, brokers_by, partitions),
                    *_reader_bounds(load, figures, listener_s, heard, decisions),
                    _sweep_bound(old_at_once(load, statuses + tombstones, workers, partitions)),
                ],
                key=lambda one: one.share,
                reverse=True,
            )
        ),
        extrapolated=tuple(_extrapolated(load, cluster, figures, workers, held / workers, per_state)),
    )


def _finished(load: FleetLoad) -> float:
    """The finished runs that workers still hold."""
    return load.turns_per_second / load.turns_per_run * FINISHED_KEEP_MS / 1_000


def _event_us(per_state: float, figures: MeasuredFigures) -> float:
    """Microseconds of a worker's processor time for an event: a part that each takes, and one that each written state
    takes, from two measurements. Never less than in the cheaper one."""
    common, rare = 1 / figures.turns_per_state, 1 / figures.rare_turns_per_state  # states that a turn writes
    if rare <= common:
        return max(figures.event_us, figures.rare_event_us)
    state_us = max(0.0, (figures.rare_event_us - figures.event_us) / (rare - common))
    return figures.event_us + state_us * max(0.0, 1 / per_state - common)


def _memory(runs: float, cluster: Cluster, figures: MeasuredFigures) -> float:
    """Bytes of a worker: what it takes without runs, and its runs, or the caches of RocksDB."""
    base = max(0.0, figures.worker_memory_bytes - RECOVERED_RUNS * figures.run_memory_bytes)
    if cluster.store == "rocksdb":
        return base + ROCKSDB_CACHE_BYTES + ROCKSDB_BUFFER_BYTES + runs * ROCKSDB_RUN_BYTES
    return base + runs * figures.run_memory_bytes


def _incoming(load: FleetLoad, figures: MeasuredFigures, writes: float) -> dict[str, float]:
    """Bytes per second that clients write, before replication, by topic."""
    turns = load.turns_per_second
    return {
        "turns": turns * figures.turn_bytes,
        "changelog": writes * figures.state_bytes,
        "control": turns * figures.control_bytes,
        "runs": turns * figures.runs_bytes,
        "activity": min(load.runs / ACTIVITY_INTERVAL_S, turns) * figures.status_bytes,  # compressed, it is less
    }


def _disk(
    cluster: Cluster, figures: MeasuredFigures, incoming: dict[str, float], states: float, statuses: float
) -> dict[str, float]:
    """Bytes on all brokers' disks, with replicas, by topic."""
    once = {
        "turns": incoming["turns"] * retention_days("turns") * DAY_S,
        "control": incoming["control"] * retention_days("control") * DAY_S,
        "changelog": states * figures.state_bytes,
        "runs": statuses * figures.status_bytes,
    }
    return {topic: size * cluster.replicas for topic, size in once.items()}


def _brokers(
    load: FleetLoad,
    cluster: Cluster,
    figures: MeasuredFigures,
    incoming: dict[str, float],
    disk: float,
    partitions: int,
) -> tuple[dict[str, float], dict[str, int]]:  # fmt: skip
    """The bytes per second that brokers send, by reader, and the brokers that each need asks for."""
    written = sum(incoming.values())
    each = incoming["control"] + incoming["runs"]
    outgoing = {
        "workers": incoming["turns"],
        "listeners": load.listeners * each,
        "listeners' idle fetches": load.listeners * FETCHES_PER_S * 3 * partitions * FETCH_PARTITION_BYTES,
        "page and notifier": 2 * each + incoming["activity"],
        "replicas": written * (cluster.replicas - 1),
    }
    network = written * cluster.replicas + sum(outgoing.values())
    turn_us = figures.broker_us + figures.broker_publish_us / load.turns_per_request
    cores = load.turns_per_second * turn_us / 1e6
    return outgoing, {
        "replicas": cluster.replicas,
        "partitions": ceil(partitions * len(TOPICS) * cluster.replicas / cluster.broker_partitions),
        "processor time": ceil(cores / cluster.broker_cores / cluster.utilisation),
        "network": ceil(network / cluster.broker_bytes_per_s / cluster.utilisation),
        "disk": ceil(disk / cluster.broker_disk_bytes),
    }


def _takeover(
    load: FleetLoad, workers: int, partitions: int, worker_per_s: float, records: float, figures: MeasuredFigures
) -> Takeover | None:
    if not load.killed:
        return None
    of_partition = records * workers / partitions
    return simulate_takeover(
        partitions, workers, load.killed, load.turns_per_second, worker_per_s, figures.takeover_s,
        of_partition / figures.recovered_per_second,
    )  # fmt: skip


def _catch_up(
    load: FleetLoad, workers: int, worker_per_s: float, records: float, figures: MeasuredFigures
) -> float | None:
    """Seconds from the end of an outage of all workers until no turn waits; None without an outage."""
    if not load.outage_s:
        return None
    started = figures.restart_s + records / figures.recovered_per_second
    waiting = load.turns_per_second * (load.outage_s + started)
    return started + waiting / (workers * worker_per_s - load.turns_per_second)


def _sweep_bound(old: float) -> Bound:
    return Bound(
        "statuses that grow old in a partition between two readings", old, STATUSES_DUE_MAX,
        "lower STREAMPROC_STATUS_FINISHED_HOURS, so that a reading is shorter; add workers",
    )  # fmt: skip


def _kafka_bounds(cluster: Cluster, brokers_by: dict[str, int], partitions: int) -> Iterator[Bound]:
    biggest = max(brokers_by, key=lambda name: brokers_by[name])
    replicas = partitions * len(TOPICS) * cluster.replicas
    yield Bound(
        f"brokers of one cluster, for {biggest}", max(brokers_by.values()), CLUSTER_BROKERS_MAX,
        _BROKER_REMEDIES[biggest],
    )  # fmt: skip
    yield Bound(
        "replicas of partitions in one cluster", replicas, CLUSTER_PARTITIONS_MAX, "split the fleet by tenant"
    )  # fmt: skip


def _reader_bounds(
    load: FleetLoad, figures: MeasuredFigures, listener_s: float, heard: float, decisions: float
) -> Iterator[Bound]:
    yield Bound(
        "s until a listener has started", listener_s, LISTENER_START_S,
        listener_remedy(load, figures),
    )  # fmt: skip
    yield Bound(
        "records/s for each listener", heard, figures.statuses_per_second,
        "split the fleet by tenant, so that a listener reads its tenants only",
    )  # fmt: skip
    yield Bound(
        "runs on a page", load.runs, PAGE_RUNS_MAX, "split the fleet by tenant; the page omits finished runs first"
    )
    yield Bound("decisions/s on a page", decisions, PAGE_DECISIONS_PER_S, "split the fleet by tenant")


_BROKER_REMEDIES: Final = {
    "replicas": "none needed",
    "partitions": "take fewer partitions, or split the fleet by tenant",
    "processor time": "let publishers share a process, so that several turns share a request",
    "network": "let many agents share a listener; split the fleet by tenant",
    "disk": "keep turns and decisions for a shorter time, or use tiered storage",
}


def _extrapolated(
    load: FleetLoad, cluster: Cluster, figures: MeasuredFigures, workers: int, runs: float, per_state: float
) -> Iterator[str]:
    if workers > WORKERS_MEASURED:
        yield f"{_n(workers)} workers: one to {WORKERS_MEASURED} were measured, on one machine"
    if runs > RECOVERED_RUNS:
        yield f"{_n(runs)} runs in a worker: recovery and memory were measured with {_n(RECOVERED_RUNS)}"
    if cluster.store == "rocksdb":
        yield "RocksDB: turns/s were measured with runs in memory"
    if per_state < figures.rare_turns_per_state:
        yield f"{per_state:.3g} turns share a state: measured down to {figures.rare_turns_per_state:.3g}"
    if cluster.replicas > 1:
        yield "brokers' processor time: measured on one broker without replicas, TLS, or listeners"
    if load.listeners > 1:
        yield "listeners' fetches: counted, not measured; under load there are more than idle ones"
    yield "not counted: runs without `run.finished` (held for 7 days), budgets across runs, admission, bursts"


def _n(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def retention_days(topic: str) -> float:
    """Return for how many days a topic keeps its records."""
    return int(TOPICS[topic].config["retention.ms"]) / DAY_MS
