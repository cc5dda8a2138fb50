"""How large a deployment must be for a load: arithmetic on measured figures, as rows of one table.

docs/scaling.md explains each row, and says where the limits of Kafka come from.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.kafka.topics import COMPACTED, specs, tombstones_kept_ms
from streamproc.model.formats import DAY_MS
from streamproc.settings import Settings
from streamproc.worker import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.cli.measured_figures import MeasuredFigures

RECOVERED_RUNS: Final = 200_000  # of the worker whose memory was measured
WORKERS_MEASURED: Final = 4  # the most whose efficiency the benchmark measures
PARTITIONS_A_WORKER: Final = 4  # so that workers can be added later, and a dead worker's go to several
FETCHES_PER_S: Final = 2  # of an idle listener from each broker: a fetch waits for 500 ms
FETCH_PARTITION_BYTES: Final = 70  # of a partition in a fetch without data: 28 in the request, 42 in the response
ROCKSDB_RUN_BYTES: Final = 157  # in memory, of a run on disk: docs/operations.md, "Runs on disk"
HALTED_SHARE: Final = 0.02  # of the runs: those that are halted, or end without `run.finished`
TOMBSTONE: Final = 0.5  # what reading one costs a listener, of what a status costs: measured, less
FOR_EVER_S: Final = 365 * 86_400.0  # what is planned for where statuses are never removed
TEMPLATE: Final = Settings.model_construct(topic_prefix="streamproc", group="", shadow="", replication_factor=3)
TOPICS: Final = {  # without `workers`, whose one partition does not count
    spec.name.rpartition(".")[2].rpartition("worker-")[2]: spec for spec in specs(TEMPLATE) if spec.partitions > 1
}
# What the cleaner of a compacted topic leaves alone: its active segment, and the youngest records behind it.
UNCOMPACTED_S: Final = (int(COMPACTED["segment.ms"]) + int(COMPACTED["min.compaction.lag.ms"])) / 1_000

# A broker, and limits that others have published: docs/scaling.md names them.
BROKER_CORES: Final = 16
BROKER_BYTES_PER_S: Final = 750e6  # received and sent
BROKER_DISK_BYTES: Final = 16e12
BROKER_PARTITIONS: Final = 4_000  # replicas that lead and that follow
CLUSTER_PARTITIONS_MAX: Final = 200_000
CLUSTER_BROKERS_MAX: Final = 60
LISTENER_START_S: Final = 10.0  # `start_timeout_s` of HaltListener
PAGE_RUNS_MAX: Final = 250_000
PAGE_DECISIONS_PER_S: Final = 1_000  # at which the page was tested

SPLIT: Final = "split the fleet by tenant"
SHORTER: Final = "lower STREAMPROC_STATUS_FINISHED_HOURS and _DAYS, raise start_timeout_s"


class Load(NamedTuple):
    """What the fleet does, and how it is deployed. Numbers are above 0; 0 hours or days of statuses: for ever."""

    runs: float  # at a time
    turns_per_second: float
    turns_per_run: float
    listeners: float
    on_disk: bool  # runs are kept in RocksDB
    utilisation: float  # share of its most that a worker or broker does
    replicas: float
    status_finished_hours: float
    status_days: float

    @property
    def ended_per_s(self) -> float:
        """The runs that end in a second."""
        return self.turns_per_second / self.turns_per_run


class PlanRow(NamedTuple):
    """A line of the table. The unit is one of bytes, bytes/s, s, or empty for a number."""

    name: str
    value: float
    unit: str
    why: str


class Bound(NamedTuple):
    """A limit: what this load needs of it, what it allows, both in the unit of `what`, and what helps."""

    what: str
    needs: float
    allows: float
    remedy: str

    @property
    def share(self) -> float:
        """The need as a part of the limit; above 1 it breaks."""
        return self.needs / self.allows


class Plan(NamedTuple):
    """The deployment for a load, its limits with the tightest first, and what is not measured at this size."""

    rows: list[PlanRow]
    bounds: list[Bound]
    extrapolated: list[str]


def plan_for(load: Load, figures: MeasuredFigures) -> Plan:
    """Plan the deployment for a load."""
    turns, ended = load.turns_per_second, load.ended_per_s
    held = load.runs + ended * limits.FINISHED_KEEP_MS / 1_000
    shared = 1 + turns / load.runs * limits.STORE_LINGER_S  # turns that share a written state
    worker_per_s = figures.turns_per_second * figures.event_us / _event_us(figures, shared)
    workers_by = {
        "processor time": ceil(turns / worker_per_s / load.utilisation),
        "runs held, and one to spare": ceil(held / (limits.RUNS_ON_DISK_MAX if load.on_disk else limits.RUNS_MAX)) + 1,
        "one to take over": 2,
    }
    workers = max(workers_by.values())
    runs = held / workers  # of one worker
    in_cluster = CLUSTER_PARTITIONS_MAX // len(TOPICS) // ceil(load.replicas)
    partitions = max(workers, min(PARTITIONS_A_WORKER * workers, in_cluster))
    writes = turns / shared
    states = held + writes * UNCOMPACTED_S  # on the changelog
    statuses, tombstones = kept_statuses(load)
    decisions = turns * figures.decisions_per_1000_turns / 1_000

    written, read = _traffic(load, figures, writes, partitions)
    disk = {topic: written[topic] * retention_days(topic) * 86_400 for topic in ("turns", "control")}
    disk |= {"changelog": states * figures.state_bytes, "runs": statuses * figures.status_bytes}
    stored = sum(disk.values()) * load.replicas
    network = sum(written.values()) * load.replicas + sum(read.values())
    cores = turns * (figures.broker_us + figures.broker_publish_us) / 1e6
    replicas = partitions * len(TOPICS) * load.replicas  # of partitions
    brokers_by = {
        "replicas": ceil(load.replicas),
        "partitions": ceil(replicas / BROKER_PARTITIONS),
        "processor time": ceil(cores / BROKER_CORES / load.utilisation),
        "network": ceil(network / BROKER_BYTES_PER_S / load.utilisation),
        "disk": ceil(stored / BROKER_DISK_BYTES),
    }
    brokers = max(brokers_by.values())
    changelog = states / workers  # records of one worker's partitions
    # A worker that is back on its disk reads only what it had not stored there yet.
    unstored = min(changelog, writes / workers * limits.COMMIT_INTERVAL_S) if load.on_disk else changelog
    start_s = (statuses + TOMBSTONE * tombstones) / figures.statuses_per_second
    listener_records = decisions + written["runs"] / figures.status_bytes

    rows = [
        PlanRow("runs held", held, "", "in progress, or finished within the hour"),
        PlanRow("workers", workers, "", _because(workers_by)),
        PlanRow("turns/s of a worker", worker_per_s, "", f"{shared:.3g} turns share a written state"),
        PlanRow("memory of a worker", _memory(load, figures, runs), "bytes", ""),
        PlanRow("disk of a worker", runs * figures.run_memory_bytes if load.on_disk else 0, "bytes", "in RocksDB"),
        PlanRow("partitions", partitions, "", "of each topic; they cannot change later"),
        PlanRow("brokers", brokers, "", _because(brokers_by)),
        PlanRow("written", sum(written.values()), "bytes/s", _parts(written)),
        PlanRow("read", sum(read.values()), "bytes/s", _parts(read)),
        PlanRow("disk of all brokers", stored, "bytes", f"with replicas: {_parts(disk)}"),
        PlanRow("a worker restarts in", figures.restart_s + unstored / figures.recovered_per_second, "s",
            "until it steps turns"),
        PlanRow("a death is taken over in", figures.takeover_s + changelog / (workers - 1) /
            figures.recovered_per_second, "s", "its session ends, and the others read its states"),
        PlanRow("a listener starts in", start_s, "s", f"it reads {thousands(statuses)} statuses"),
        PlanRow("records/s of a listener", listener_records, "", f"of them {thousands(decisions)} decisions"),
    ]  # fmt: skip
    bounds = [
        Bound("brokers of one cluster", brokers, CLUSTER_BROKERS_MAX, f"share listeners, or {SPLIT}"),
        Bound("replicas of partitions in one cluster", replicas, CLUSTER_PARTITIONS_MAX, SPLIT),
        Bound("s until a listener has started", start_s, LISTENER_START_S, f"{SHORTER}, or {SPLIT}"),
        Bound("records/s for each listener", listener_records, figures.statuses_per_second, SPLIT),
        Bound("runs on a page", load.runs, PAGE_RUNS_MAX, f"{SPLIT}; the page omits finished runs first"),
        Bound("decisions/s on a page", decisions, PAGE_DECISIONS_PER_S, SPLIT),
    ]
    bounds.sort(key=lambda one: one.share, reverse=True)
    return Plan(rows, bounds, list(_extrapolated(load, figures, workers, runs, shared)))


def _traffic(
    load: Load, figures: MeasuredFigures, writes: float, partitions: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the bytes/s that clients write, by topic, and that brokers send, by reader."""
    turns = load.turns_per_second
    written = {  # before replication
        "turns": turns * figures.turn_bytes,
        "changelog": writes * figures.state_bytes,
        "control": turns * figures.control_bytes,
        "runs": turns * figures.runs_bytes,
        "activity": min(load.runs / limits.ACTIVITY_INTERVAL_S, turns) * figures.status_bytes,  # less when compressed
    }
    heard = written["control"] + written["runs"]
    read = {
        "workers": written["turns"],
        "listeners": load.listeners * heard,
        "listeners' idle fetches": load.listeners * FETCHES_PER_S * 3 * partitions * FETCH_PARTITION_BYTES,
        "page and notifier": 2 * heard + written["activity"],
        "replicas": sum(written.values()) * (load.replicas - 1),
    }
    return written, read


def _event_us(figures: MeasuredFigures, shared: float) -> float:
    """Microseconds of a worker's processor time for an event: a part that each takes, and one that each written state
    takes, from two measurements. Never less than in the cheaper one."""
    common, rare = 1 / figures.turns_per_state, 1 / figures.rare_turns_per_state  # states that a turn writes
    if rare <= common:
        return max(figures.event_us, figures.rare_event_us)
    state_us = max(0.0, (figures.rare_event_us - figures.event_us) / (rare - common))
    return figures.event_us + state_us * max(0.0, 1 / shared - common)


def _memory(load: Load, figures: MeasuredFigures, runs: float) -> float:
    """Bytes of a worker: what it takes without runs, and its runs, or the caches of RocksDB."""
    base = max(0.0, figures.worker_memory_bytes - RECOVERED_RUNS * figures.run_memory_bytes)
    if load.on_disk:
        return base + limits.ROCKSDB_CACHE_BYTES + limits.ROCKSDB_BUFFER_BYTES + runs * ROCKSDB_RUN_BYTES
    return base + runs * figures.run_memory_bytes


def retention_days(topic: str) -> float:
    """Return for how many days a topic keeps its records."""
    return int(TOPICS[topic].config["retention.ms"]) / DAY_MS


def kept_statuses(load: Load) -> tuple[float, float]:
    """Return the statuses and the tombstones on the topic `runs`, without what compaction has removed."""
    finished_s = (load.status_finished_hours * 3_600 or FOR_EVER_S) + limits.STATUS_SWEEP_INTERVAL_S
    other_s = load.status_days * 86_400 or FOR_EVER_S
    settings = Settings.model_construct(status_finished_hours=load.status_finished_hours)
    tombstones_s = (tombstones_kept_ms(settings) + int(COMPACTED["max.compaction.lag.ms"])) / 1_000
    statuses = load.runs + load.ended_per_s * ((1 - HALTED_SHARE) * finished_s + HALTED_SHARE * other_s)
    return statuses, load.ended_per_s * tombstones_s if load.status_finished_hours else 0.0


def _extrapolated(load: Load, figures: MeasuredFigures, workers: int, runs: float, shared: float) -> Iterator[str]:
    if workers > WORKERS_MEASURED:
        yield f"{thousands(workers)} workers: one to {WORKERS_MEASURED} were measured, on one machine"
    if runs > RECOVERED_RUNS:
        yield f"{thousands(runs)} runs in a worker: recovery and memory were measured with {thousands(RECOVERED_RUNS)}"
    if load.on_disk:
        yield "RocksDB: turns/s were measured with runs in memory"
    if shared < figures.rare_turns_per_state:
        yield f"{shared:.3g} turns share a state: measured down to {figures.rare_turns_per_state:.3g}"
    if load.replicas > 1:
        yield "brokers' processor time: measured on one broker without replicas, TLS, or listeners"
    yield "not counted: runs without `run.finished` (held for 7 days), budgets across runs, admission, bursts"


def _because(by: dict[str, int]) -> str:
    """List reasons, the deciding one first."""
    ordered = sorted(by.items(), key=lambda one: one[1], reverse=True)
    return "; ".join(f"{name} {thousands(count)}" for name, count in ordered)


def _parts(sizes: dict[str, float]) -> str:
    ordered = sorted(sizes.items(), key=lambda one: one[1], reverse=True)
    return ", ".join(f"{name} {size / sum(sizes.values()):.0%}" for name, size in ordered)


def thousands(value: float) -> str:
    """Format with three significant digits below 100, whole and grouped above: 0.05, 12.5, 1 250."""
    return f"{value:.3g}" if abs(value) < 100 else f"{float(f'{value:.4g}'):,.0f}".replace(",", " ")
