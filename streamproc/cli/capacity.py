"""How large a deployment must be for a load: partitions, workers, brokers, network, disk, and times of recovery.

Pure arithmetic on measured figures; only the death of workers is simulated. docs/scaling.md explains each formula and
where the limits of Kafka come from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

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

# The statuses on the topic `runs`, and the listeners that read them.
LISTENER_START_S: Final = 10.0  # `start_timeout_s` of HaltListener
TOMBSTONE: Final = 0.5  # what reading one costs a listener, of what a status costs: measured, less
FOR_EVER_S: Final = 365 * 86_400.0  # what is planned for where statuses are never removed
BUSY_MAX: Final = 0.95  # of the time between two readings, for writing tombstones
SHORTER: Final = ((12, 30), (6, 30), (3, 30), (1, 30), (1, 7), (1, 1))  # hours and days that a remedy may name

# The simulation of a takeover.
STEP_S: Final = 0.1  # at first; then a thousandth of the time that has passed
CAUGHT_UP_S: Final = 1.0  # a partition is caught up when its oldest turn has waited for less
LONGEST_S: Final = 86_400.0

SPLIT: Final = "split the fleet by tenant"
BROKER_REMEDIES: Final = {
    "replicas": "none needed",
    "partitions": f"take fewer partitions, or {SPLIT}",
    "processor time": "let publishers share a process, so that several turns share a request",
    "network": f"let many agents share a listener; {SPLIT}",
    "disk": "keep turns and decisions for a shorter time, or use tiered storage",
}


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

    @property
    def ended_per_s(self) -> float:
        """The runs that end in a second."""
        return self.turns_per_second / self.turns_per_run


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


class Takeover(NamedTuple):
    """The longest time that a turn waited for its step, and when every partition had caught up, in seconds after the
    death; None if that takes more than a day."""

    worst_delay_s: float
    caught_up_s: float | None


class CapacityPlan:
    """The deployment for a load. Rates are per second, sizes in bytes, times in seconds; reasons and traffic by name.

    Raises `ValueError` for more killed workers than can be survived.
    """

    def __init__(self, load: FleetLoad, cluster: Cluster, figures: MeasuredFigures) -> None:
        self._load, self._cluster, self._figures = load, cluster, figures
        on_disk = cluster.store == "rocksdb"
        self.runs_held = load.runs + load.ended_per_s * limits.FINISHED_KEEP_MS / 1_000
        self.turns_per_state = 1 + load.turns_per_second / load.runs * limits.STORE_LINGER_S
        self.worker_per_s = figures.turns_per_second * figures.event_us / self._event_us()
        runs_max = limits.RUNS_ON_DISK_MAX if on_disk else limits.RUNS_MAX
        self.workers_by = {
            "processor time": ceil(load.turns_per_second / self.worker_per_s / cluster.utilisation),
            "runs held, and one to spare": ceil(self.runs_held / runs_max) + 1,
            "one to take over": 2,
        }
        self.workers = max(self.workers_by.values())
        if load.killed >= self.workers:
            raise ValueError(f"{load.killed} workers cannot die of {self.workers}: one must survive")
        self._runs = self.runs_held / self.workers  # of one worker
        self.worker_memory = self._memory(self._runs)
        self.worker_disk = self._runs * figures.run_memory_bytes if on_disk else 0.0
        in_cluster = CLUSTER_PARTITIONS_MAX // len(TOPICS) // cluster.replicas
        self.partitions = max(self.workers, min(PARTITIONS_A_WORKER * self.workers, in_cluster))
        writes = load.turns_per_second / self.turns_per_state
        self._states = self.runs_held + writes * UNCOMPACTED_S  # on the changelog
        self.statuses, self.tombstones = kept_statuses(load)
        self.decisions_per_s = load.turns_per_second * figures.decisions_per_1000_turns / 1_000
        self._size_brokers(writes)
        self.changelog_records = self._states / self.workers  # of one worker's partitions
        # A worker that is back on its disk reads only what it had not stored there yet.
        unstored = writes / self.workers * limits.COMMIT_INTERVAL_S if on_disk else self.changelog_records
        self.restart_records = min(self.changelog_records, unstored)
        self.restart_s = figures.restart_s + self.restart_records / figures.recovered_per_second
        self.takeover = self._takeover() if load.killed else None
        self.outage_s = self._catch_up() if load.outage_s else None
        self.listener_start_s = listener_start_s(load, figures)
        self.listener_records = self.decisions_per_s + self.traffic_in["runs"] / figures.status_bytes
        self.bounds = sorted(self._bounds(), key=lambda one: one.share, reverse=True)  # the tightest first
        self.extrapolated = tuple(self._extrapolated())

    def as_json(self) -> dict[str, Any]:
        """Return every figure of the plan by its name."""
        shown = {name: value for name, value in vars(self).items() if name[0] != "_"}
        bounds = [bound._asdict() | {"share": bound.share} for bound in self.bounds]
        return shown | {"takeover": self.takeover and self.takeover._asdict(), "bounds": bounds}

    def _event_us(self) -> float:
        """Microseconds of a worker's processor time for an event: a part that each takes, and one that each written
        state takes, from two measurements. Never less than in the cheaper one."""
        figures = self._figures
        common, rare = 1 / figures.turns_per_state, 1 / figures.rare_turns_per_state  # states that a turn writes
        if rare <= common:
            return max(figures.event_us, figures.rare_event_us)
        state_us = max(0.0, (figures.rare_event_us - figures.event_us) / (rare - common))
        return figures.event_us + state_us * max(0.0, 1 / self.turns_per_state - common)

    def _memory(self, runs: float) -> float:
        """Bytes of a worker: what it takes without runs, and its runs, or the caches of RocksDB."""
        run_bytes = self._figures.run_memory_bytes
        base = max(0.0, self._figures.worker_memory_bytes - RECOVERED_RUNS * run_bytes)
        if self._cluster.store == "rocksdb":
            return base + limits.ROCKSDB_CACHE_BYTES + limits.ROCKSDB_BUFFER_BYTES + runs * ROCKSDB_RUN_BYTES
        return base + runs * run_bytes

    def _size_brokers(self, writes: float) -> None:
        load, cluster, figures, turns = self._load, self._cluster, self._figures, self._load.turns_per_second
        self.traffic_in = {  # what clients write, before replication, by topic
            "turns": turns * figures.turn_bytes,
            "changelog": writes * figures.state_bytes,
            "control": turns * figures.control_bytes,
            "runs": turns * figures.runs_bytes,
            # Compressed, it is less.
            "activity": min(load.runs / limits.ACTIVITY_INTERVAL_S, turns) * figures.status_bytes,
        }
        written = sum(self.traffic_in.values())
        heard = self.traffic_in["control"] + self.traffic_in["runs"]
        self.traffic_out = {  # what brokers send, by reader
            "workers": self.traffic_in["turns"],
            "listeners": load.listeners * heard,
            "listeners' idle fetches": load.listeners * FETCHES_PER_S * 3 * self.partitions * FETCH_PARTITION_BYTES,
            "page and notifier": 2 * heard + self.traffic_in["activity"],
            "replicas": written * (cluster.replicas - 1),
        }
        kept = {topic: self.traffic_in[topic] * retention_days(topic) * 86_400 for topic in ("turns", "control")}
        kept |= {"changelog": self._states * figures.state_bytes, "runs": self.statuses * figures.status_bytes}
        self.disk = {topic: size * cluster.replicas for topic, size in kept.items()}  # on all brokers, by topic
        network = written * cluster.replicas + sum(self.traffic_out.values())
        cores = turns * (figures.broker_us + figures.broker_publish_us / load.turns_per_request) / 1e6
        self._replicas = self.partitions * len(TOPICS) * cluster.replicas  # of partitions
        self.brokers_by = {
            "replicas": cluster.replicas,
            "partitions": ceil(self._replicas / cluster.broker_partitions),
            "processor time": ceil(cores / cluster.broker_cores / cluster.utilisation),
            "network": ceil(network / cluster.broker_bytes_per_s / cluster.utilisation),
            "disk": ceil(sum(self.disk.values()) / cluster.broker_disk_bytes),
        }
        self.brokers = max(self.brokers_by.values())

    def _takeover(self) -> Takeover:
        recovery_s = self._states / self.partitions / self._figures.recovered_per_second
        return simulate_takeover(
            self.partitions, self.workers, self._load.killed, self._load.turns_per_second, self.worker_per_s,
            self._figures.takeover_s, recovery_s,
        )  # fmt: skip

    def _catch_up(self) -> float:
        """Seconds from the end of an outage of all workers until no turn waits."""
        turns = self._load.turns_per_second
        waiting = turns * (self._load.outage_s + self.restart_s)
        return self.restart_s + waiting / (self.workers * self.worker_per_s - turns)

    def _bounds(self) -> Iterator[Bound]:
        load, figures = self._load, self._figures
        biggest = max(self.brokers_by, key=lambda name: self.brokers_by[name])
        brokers = f"brokers of one cluster, for {biggest}"
        yield Bound(brokers, self.brokers, CLUSTER_BROKERS_MAX, BROKER_REMEDIES[biggest])
        yield Bound("replicas of partitions in one cluster", self._replicas, CLUSTER_PARTITIONS_MAX, SPLIT)
        yield Bound(
            "s until a listener has started", self.listener_start_s, LISTENER_START_S, listener_remedy(load, figures)
        )
        own_part = f"{SPLIT}, so that a listener reads its tenants only"
        yield Bound("records/s for each listener", self.listener_records, figures.statuses_per_second, own_part)
        yield Bound("runs on a page", load.runs, PAGE_RUNS_MAX, f"{SPLIT}; the page omits finished runs first")
        yield Bound("decisions/s on a page", self.decisions_per_s, PAGE_DECISIONS_PER_S, SPLIT)
        shorter = "lower STREAMPROC_STATUS_FINISHED_HOURS, so that a reading is shorter; add workers"
        old = "statuses that grow old in a partition between two readings"
        yield Bound(old, self._old_at_once(), limits.STATUSES_DUE_MAX, shorter)

    def _old_at_once(self) -> float:
        """The statuses that grow old in a partition while a worker reads all of its own and waits for the next."""
        per_s, slices_per_s = self._load.ended_per_s, 1 / limits.STATUS_SWEEP_PAUSE_S
        read_s = (self.statuses + self.tombstones) / self.workers / (limits.STATUS_SWEEP_RECORDS * slices_per_s)
        writing = min(BUSY_MAX, per_s / self.workers / (limits.STATUS_SWEEP_WRITES * slices_per_s))
        return per_s / self.partitions * (read_s + limits.STATUS_SWEEP_INTERVAL_S) / (1 - writing)

    def _extrapolated(self) -> Iterator[str]:
        measured = self._figures.rare_turns_per_state
        if self.workers > WORKERS_MEASURED:
            yield f"{_spaced(self.workers)} workers: one to {WORKERS_MEASURED} were measured, on one machine"
        if self._runs > RECOVERED_RUNS:
            measured_with = f"recovery and memory were measured with {_spaced(RECOVERED_RUNS)}"
            yield f"{_spaced(self._runs)} runs in a worker: {measured_with}"
        if self._cluster.store == "rocksdb":
            yield "RocksDB: turns/s were measured with runs in memory"
        if self.turns_per_state < measured:
            yield f"{self.turns_per_state:.3g} turns share a state: measured down to {measured:.3g}"
        if self._cluster.replicas > 1:
            yield "brokers' processor time: measured on one broker without replicas, TLS, or listeners"
        if self._load.listeners > 1:
            yield "listeners' fetches: counted, not measured; under load there are more than idle ones"
        yield "not counted: runs without `run.finished` (held for 7 days), budgets across runs, admission, bursts"


def _spaced(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def retention_days(topic: str) -> float:
    """Return for how many days a topic keeps its records."""
    return int(TOPICS[topic].config["retention.ms"]) / DAY_MS


# The statuses that workers have not removed yet, and who has to read them.


def kept_statuses(load: FleetLoad) -> tuple[float, float]:
    """Return the statuses and the tombstones on the topic `runs`, without what compaction has removed."""
    finished_s = (load.status_finished_hours * 3_600 or FOR_EVER_S) + limits.STATUS_SWEEP_INTERVAL_S
    other_s = load.status_days * 86_400 or FOR_EVER_S
    settings = Settings.model_construct(status_finished_hours=load.status_finished_hours)
    tombstones_s = (tombstones_kept_ms(settings) + int(COMPACTED["max.compaction.lag.ms"])) / 1_000
    share = load.halted_share
    statuses = load.runs + load.ended_per_s * ((1 - share) * finished_s + share * other_s)
    return statuses, load.ended_per_s * tombstones_s if load.status_finished_hours else 0.0


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
    return f"lower STREAMPROC_STATUS_FINISHED_HOURS and _DAYS; raise start_timeout_s; {SPLIT}"


# The death of workers under load. Partitions are alike, and so are workers with the same number of own and of inherited
# partitions: one of each kind is simulated. Arithmetic is not enough, because a worker that recovers inherited
# partitions keeps its own waiting, and then shares its processor time between both.


@dataclass
class _Survivor:
    """A worker, with the turns that wait in one of its own and in one of its inherited partitions."""

    own: int
    inherited: int
    waiting_own: float = 0.0
    waiting_inherited: float = 0.0

    def step(self, turns: float) -> None:
        """Step so many turns: equal shares for all partitions in which turns wait."""
        partitions = self.own + self.inherited
        small = min(self.waiting_own, self.waiting_inherited, turns / partitions)
        left = turns - small * partitions
        self.waiting_own -= small
        self.waiting_inherited -= small
        if self.waiting_inherited > self.waiting_own:
            self.waiting_inherited = max(0.0, self.waiting_inherited - left / self.inherited)
        else:
            self.waiting_own = max(0.0, self.waiting_own - left / self.own)


def simulate_takeover(
    partitions: int, workers: int, killed: int, turns_per_s: float, worker_per_s: float,
    detected_s: float, recovery_s: float,
) -> Takeover:  # fmt: skip
    """Kill some of the workers at once. `worker_per_s` is the most that a worker steps, `detected_s` the time until the
    dead workers' partitions are assigned again, `recovery_s` that of one partition's states.

    Raises `ValueError` unless some worker survives and each worker has a partition.
    """
    if not 0 < killed < workers <= partitions:
        raise ValueError(f"{killed} of {workers} workers with {partitions} partitions: one must survive with some")
    if turns_per_s >= (workers - killed) * worker_per_s:
        return Takeover(float("inf"), None)
    survivors = [_Survivor(own, inherited) for own, inherited in _kinds(partitions, workers, killed)]
    each_s = turns_per_s / partitions  # that arrive in one partition
    now_s = worst = 0.0
    while now_s < LONGEST_S:
        step_s = max(STEP_S, now_s / 1_000)
        now_s += step_s
        for one in survivors:
            one.waiting_own += each_s * step_s
            one.waiting_inherited += each_s * step_s if one.inherited else 0.0
            if now_s <= detected_s:
                one.waiting_own = max(0.0, one.waiting_own - worker_per_s * step_s / one.own)
            elif now_s > detected_s + one.inherited * recovery_s:
                one.step(worker_per_s * step_s)
        delay = max(max(one.waiting_own, one.waiting_inherited) for one in survivors) / each_s
        worst = max(worst, delay)
        if delay < CAUGHT_UP_S and now_s > detected_s:
            return Takeover(worst, now_s)
    return Takeover(worst, None)


def _kinds(partitions: int, workers: int, killed: int) -> set[tuple[int, int]]:
    """Return how many own and inherited partitions a survivor may have. The first workers have one more than the
    others; of them die the first, and the first survivors inherit one more."""
    alive = workers - killed
    each, more_own = divmod(partitions, workers)
    inherited, more_inherited = divmod(killed * each + min(killed, more_own), alive)
    ranks = {0, more_inherited, max(0, more_own - killed)}
    return {(each + (killed + rank < more_own), inherited + (rank < more_inherited)) for rank in ranks if rank < alive}
