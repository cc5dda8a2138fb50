"""The metrics of all programs: name, kind, labels and meaning. Tables, alerts and collectors take them from here.

Labels are bounded: a partition, or a value of a closed list. Runs, users, tasks and nodes are never labels, because
every run would add series for ever. `workflow` and `provider` have the first 50
values that a process sees, and `other` for the rest.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Program = Literal["worker", "notify", "page", "otel", "publisher", "listener"]

WORKFLOWS_MAX: Final = 50
OTHER: Final = "other"
DECISION_LABELS: Final = ("code", "severity", "workflow")
FLEET_STATUSES: Final = ("CLEAR", "PAUSE", "STOP")
RUN_STATES: Final = ("held", "halted")
RUN_ENDS: Final = ("finished", "halted", "timed_out")
DEAD_LETTER_REASONS: Final = (
    "command", "engine", "key", "new_runs", "outdated", "poison", "signature", "statement", "token", "too_large",
    "unreadable",
)  # fmt: skip
WATCH_STATES: Final = ("watching", "unwatched", "disconnected", "unknown")
WORKER_STATES: Final = ("deciding", "restoring", "stopped", "silent")
SPAN_OUTCOMES: Final = ("turn", "usage", "ignored", "refused", "late")
PUBLISHER_OUTCOMES: Final = ("delivered", "dropped", "invalid")
NOTIFICATION_OUTCOMES: Final = ("sent", "lost")

STEP_BUCKETS_S: Final = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1)
DELAY_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class MetricDefinition(NamedTuple):
    """One metric, named as Prometheus shows it. Durations are in seconds; the values of a label are listed where they
    are few; `programs` show it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    programs: tuple[Program, ...]
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        """The name without the suffix of a counter, as `prometheus_client` wants it."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def otlp_name(self) -> str:
        """The name in OTLP, with dots after `streamproc` and its area: ``streamproc.otel.spans``.

        Without the suffixes of counters and units: Prometheus adds them again when it receives OTLP, and has the same
        name in the end.
        """
        words = self.family.split("_")
        if words[-1] in UNITS:
            words = words[:-1]
        head = 2 if len(words) > 2 and words[1] in AREAS else 1
        return ".".join([*words[:head], "_".join(words[head:])])

    @property
    def otlp_unit(self) -> str:
        """The unit in OTLP, in UCUM; empty for a number of things."""
        return UNITS.get(self.family.rpartition("_")[2], "")


UNITS: Final = {"seconds": "s", "bytes": "By"}
AREAS: Final = ("decision", "fleet", "lag", "listener", "otel", "provider", "publisher")


def _counter(name: str, labels: tuple[str, ...], meaning: str, *programs: Program) -> MetricDefinition:
    return MetricDefinition(name, "counter", labels, meaning, programs)


def _gauge(name: str, labels: tuple[str, ...], meaning: str, *programs: Program) -> MetricDefinition:
    return MetricDefinition(name, "gauge", labels, meaning, programs)


def _histogram(name: str, meaning: str, buckets: tuple[float, ...], *programs: Program) -> MetricDefinition:
    return MetricDefinition(name, "histogram", (), meaning, programs, buckets)


EVENTS: Final = _counter(
    "streamproc_events_total",
    ("partition", "type"),
    "Records of the turns topic that were processed, by the type of their event; `invalid` is no event",
    "worker",
)
DECISIONS: Final = _counter(
    "streamproc_decisions_total",
    DECISION_LABELS,
    "Decisions; those of severity `halt` halted a run, and those of FLEET codes answer fleet commands",
    "worker",
)
RUNS: Final = _gauge(
    "streamproc_runs", ("state",), "Runs that the worker keeps; `halted` is a part of `held`", "worker"
)
RUNS_ENDED: Final = _counter(
    "streamproc_runs_ended_total",
    ("outcome", "workflow"),
    "Runs that ended: `finished` by themselves, `halted`, or `timed_out` by the clock of the run",
    "worker",
)
STEP: Final = _histogram(
    "streamproc_step_seconds",
    "Time that an event took in the engine: the mean of each slice, counted once for each event of it",
    STEP_BUCKETS_S,
    "worker",
)
DECISION_DELAY: Final = _histogram(
    "streamproc_decision_delay_seconds",
    "From the log time of a turn until the broker acknowledged a decision about it",
    DELAY_BUCKETS_S,
    "worker",
)
DECISION_WAIT: Final = _histogram(
    "streamproc_decision_wait_seconds",
    "The part of the delay from the log time of the turn until the decision",
    DELAY_BUCKETS_S,
    "worker",
)
DECISION_PUBLISH: Final = _histogram(
    "streamproc_decision_publish_seconds",
    "The part of the delay from the decision until the broker acknowledged it",
    DELAY_BUCKETS_S,
    "worker",
)
LAG_RECORDS: Final = _gauge(
    "streamproc_lag_records", ("partition",), "Records of the turns topic that are not processed yet", "worker"
)
LAG_SECONDS: Final = _gauge(
    "streamproc_lag_seconds", ("partition",), "Age of the oldest record that is not processed yet, at most", "worker"
)
DEAD_LETTERS: Final = _counter(
    "streamproc_dead_letters_total", ("reason",), "Records that went to the dead-letter topic", "worker"
)
FAILURES: Final = _counter(
    "streamproc_failures_total",
    ("detector",),
    "Exceptions of a detector, or of the `engine`; the run continues without that detector",
    "worker",
)
EVICTED: Final = _counter("streamproc_evicted_total", (), "Runs forgotten because of the run limit", "worker")
REPEATED: Final = _counter(
    "streamproc_repeated_total", (), "Records that were read again and skipped, as their run had applied them", "worker"
)
DEADLINES: Final = _counter(
    "streamproc_deadlines_total", (), "Deadline events that were added to the turns topic", "worker"
)
CHANGELOG_BYTES: Final = _counter(
    "streamproc_changelog_bytes_total", (), "Bytes of states written to the changelogs, compressed", "worker"
)
PROVIDERS: Final = _gauge(
    "streamproc_provider_state",
    ("provider", "state"),
    "Breakers of providers and models that hold calls back, by the worker that has it: 1 while in this state",
    "worker",
)
PROVIDER_CHANGES: Final = _counter(
    "streamproc_provider_changes_total",
    ("provider", "state"),
    "New states of breakers of providers and models: `open`, `half_open`, `closed`",
    "worker",
)
PROVIDER_PERMITS: Final = _counter(
    "streamproc_provider_permits_total", ("provider",), "Permits that were given for probes of a provider", "worker"
)
FLEET_STATUS: Final = _gauge(
    "streamproc_fleet_status", ("status",), "The standing fleet command: 1 for one of the three", "worker", "page"
)
WATCH_STATE: Final = _gauge(
    "streamproc_watch_state",
    ("state",),
    "Whether workers decide, by their heartbeats: 1 for one of the four; `unknown`: this process has heard of none yet",
    "page",
    "notify",
)
UNWATCHED_PARTITIONS: Final = _gauge(
    "streamproc_unwatched_partitions", (), "Partitions of the turns topic on which no worker decides", "page", "notify"
)
WORKERS: Final = _gauge(
    "streamproc_workers", ("state",), "Workers by their heartbeats; a `silent` one is gone", "page", "notify"
)
WAITING_TURNS: Final = _gauge(
    "streamproc_waiting_turns", (), "Records of the turns topic on which no worker has decided yet", "page"
)
PUBLISHER_EVENTS: Final = _counter(
    "streamproc_publisher_events_total", ("outcome",), "Events given to publishers", "publisher", "otel"
)
PUBLISHER_WAITING: Final = _gauge(
    "streamproc_publisher_waiting", (), "Events that the broker has not acknowledged yet", "publisher", "otel"
)
LISTENER_CONNECTED: Final = _gauge(
    "streamproc_listener_connected", (), "1 if every listener of the process receives halts, else 0", "listener"
)
LISTENER_CAUGHT_UP: Final = _gauge(
    "streamproc_listener_caught_up",
    (),
    "1 if every listener of the process knows all earlier halts, else 0",
    "listener",
)
LISTENER_STATES: Final = ("watching", "unwatched", "disconnected", "unknown")
LISTENER_STATE: Final = _gauge(
    "streamproc_listener_state",
    ("state",),
    "Listeners of the process by what they hear of workers: `watching`, `unwatched` (no worker decides), "
    "`disconnected`, `unknown`",
    "listener",
)
SAVED: Final = _counter(
    "streamproc_saved_usd_total",
    ("code",),
    "An estimate: mean cost of a turn of each halted run, times the turns that its budget had left",
    "page",
)
OTEL_SPANS: Final = _counter(
    "streamproc_otel_spans_total",
    ("outcome",),
    "Spans received: a `turn`, the `usage` of another turn, `ignored` or `refused`; `late` turns count twice",
    "otel",
)
NOTIFICATIONS: Final = _counter(
    "streamproc_notifications_total", ("outcome",), "Notifications, once for each destination", "notify"
)
NOTIFICATIONS_WAITING: Final = _gauge(
    "streamproc_notifications_waiting", (), "Notifications in the queues, once for each destination", "notify"
)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, MetricDefinition))
BY_NAME: Final = {metric.name: metric for metric in METRICS}
"""The metrics by the name that Prometheus shows; the series of a histogram add `_bucket`, `_sum` and `_count`."""
