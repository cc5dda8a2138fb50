"""What the read model answers, as data. Text in it comes from runs and people: escape it before you show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

DELIBERATE: Final = frozenset({"OPERATOR001"})  # codes of halts that a person has issued
RunGroup = Literal["halted", "warned", "others", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """One run, as its latest status and the decisions since say. Times are log times in ms; money is in millionths of
    a US dollar."""

    run_id: str
    status: str  # running, halted, finished
    severity: str  # info, warn, halt
    workflow: str = ""
    tenant: str = ""
    user: str = ""
    badge: str = ""  # `Loop 3/8`
    code: str = ""  # of the latest decision that is in force
    message: str = ""  # its sentence
    failing_trend: tuple[int, ...] = ()
    turns: int = 0
    total_tokens: int = 0
    cost_usd_micro: int = 0
    at_ms: int = 0  # its last sign of life
    started_ms: int = 0  # its first one that was read; 0: none was
    halted_at_ms: int = 0  # 0: it is not halted
    partition: int = -1
    offset: int = -1  # of its last event that changed the status
    capped_budgets: tuple[str, ...] = ()
    trace_id: str = ""  # of the last of its events that was published in a span
    doing: str = ""  # of a running one: node and last call of its last turn, such as `coder: bash`
    session: str = ""  # that it belongs to; empty: it is the root of its own
    parent: str = ""  # the run that has started it
    lost: bool = False  # its publisher seems to be gone: no event for the time of the policy

    @property
    def stopped(self) -> bool:
        """Whether a person has issued its halt."""
        return self.status == "halted" and self.code in DELIBERATE

    @property
    def group(self) -> RunGroup:
        """The group of the fleet view that it is in, however long ago it was halted."""
        if self.status == "halted":
            return "halted"
        if self.lost:
            return "lost"
        return "warned" if self.status == "running" and self.severity != "info" else "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to show. Empty fields match all; `text` is searched in run, workflow, user, code and sentence.

    `since` and `until` are times or ages (`model.time_range`): runs that were at work in between.
    """

    workflow: str = ""
    tenant: str = ""
    user: str = ""
    code: str = ""
    text: str = ""
    status: str = ""
    since: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage:
    """Runs of one group, the most urgent first: halted ones by time, warned ones by time, others by spend."""

    rows: tuple[LiveRun, ...]
    total: int  # that match, also those that are not in `rows`


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCounts:
    """The strip above the runs, as of `at_ms` (wall clock)."""

    at_ms: int
    fleet_status: str = "CLEAR"  # CLEAR, PAUSE, STOP
    fleet_by: str = ""
    fleet_why: str = ""
    working: int = 0  # warned ones included
    warned: int = 0
    halted: int = 0
    stopped: int = 0  # of the halted ones, those that people have stopped
    lost: int = 0  # running runs without an event for the time of the policy; they are not among the others
    turns_per_second: float = 0.0
    spend_usd_micro_per_hour: int = 0  # the rate of the last 15 minutes
    delay_ms: int | None = None  # from a turn to its decision, the median of the last minute; None: no decision
    behind_records: int = 0  # how far the model is behind its topics
    caught_up: bool = False
    read_share: float = 0.0  # of what was there at the start, 0 to 1, while not caught up


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """One control event. `body` is its JSON, as published."""

    id: str
    run_id: str
    at_ms: int
    code: str
    severity: str
    action: str
    message: str
    turn: int | None = None
    workflow: str = ""
    tenant: str = ""
    user: str = ""
    partition: int = -1
    offset: int = -1
    policy_hash: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Which decisions to show, the newest first; `before` is the id at which the page before ended. `since` and `until`
    are times or ages (`model.time_range`)."""

    run_id: str = ""
    workflow: str = ""
    tenant: str = ""
    code: str = ""
    severity: str = ""
    text: str = ""
    since: str = ""
    until: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """A command of a person, as the commands topic has it: the standing one of its scope, a replaced or refused one."""

    id: str
    scope: str
    status: str
    by: str
    why: str
    at_ms: int
    state: Literal["standing", "replaced", "refused"]
    reason: str = ""  # why it was refused
    obeyed_runs: int = 0  # runs whose decision names this command


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    """The spend of a session, user or tenant. `limit` 0: none is known."""

    scope: str  # `user:ada`, `tenant:acme`, `session:…`
    budget: str
    spent: float
    limit: float = 0.0
    unit: str = ""
    window_s: int = 0  # 0: since it began
    per_hour: float = 0.0
    limit_at_ms: int | None = None  # when the limit comes at this rate; None: not in a day
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A policy that control events name."""

    name: str
    version: str
    hash: str
    first_ms: int
    last_ms: int
    decisions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A record of the dead-letter topic: its headers, never its content."""

    partition: int
    offset: int
    at_ms: int
    reason: str
    field_path: str = ""
    source_topic: str = ""
    source_partition: int = -1
    source_offset: int = -1
    headers: tuple[tuple[str, str], ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """How far the model has read one partition. `topic` is the role, such as `turns`."""

    topic: str
    partition: int
    position: int  # of the next record to read
    end: int = -1  # of the log, when the broker was last asked; -1: not known
    last_ms: int = 0  # the broker's time of the last record that was read

    @property
    def behind(self) -> int:
        """Records that are not read yet, deleted ones included."""
        return max(0, self.end - self.position)


@dataclass(slots=True, kw_only=True)
class Changes:
    """What a batch of records, or all since a subscriber last asked, has changed."""

    run_ids: set[str] = field(default_factory=set)
    decisions: bool = False
    commands: bool = False
    accounts: bool = False
    refused: bool = False

    def __bool__(self) -> bool:
        return bool(self.run_ids) or self.decisions or self.commands or self.accounts or self.refused

    def add(self, other: Changes) -> None:
        """Add the changes of another batch."""
        self.run_ids |= other.run_ids
        self.decisions |= other.decisions
        self.commands |= other.commands
        self.accounts |= other.accounts
        self.refused |= other.refused
