"""What commands print with ``--json`` and no other part of streamproc sends: one object a line."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class DoctorCheck(msgspec.Struct):
    """A line of `streamproc doctor --json`."""

    status: Literal["ok", "warn", "fail"]
    what: str
    remedy: str = ""


class TopicState(msgspec.Struct, kw_only=True):
    """A line of `streamproc topics check --json` and `topics apply --json`."""

    state: Literal["created", "present", "missing", "differs", "hidden"]
    topic: str  # and, if it differs, how


class KafkaRight(msgspec.Struct, kw_only=True):
    """A line of `streamproc topics acls --json`."""

    role: str
    resource: Literal["topic", "group"]
    name: str
    operations: tuple[str, ...]


class DetectorSummary(msgspec.Struct, kw_only=True):
    """A line of `streamproc explain --json`; `text` is there for a single detector."""

    code: str
    name: str
    summary: str
    text: str = ""


class GraphCycle(msgspec.Struct, kw_only=True):
    """A line of `streamproc graph check --json`."""

    nodes: tuple[str, ...]
    has_exit: bool
    anchor: str = ""
    over: str = ""


class PublishedCounts(msgspec.Struct, kw_only=True):
    """What `streamproc publish --json` prints."""

    events: int
    delivered: int
    lost: int
    seconds: float


class BaselineOfWorkflow(msgspec.Struct, kw_only=True):
    """A line of `streamproc baseline --json`; 0 means that nothing was recorded."""

    workflow: str
    runs: int  # with times
    p99_s: int  # of their runtimes
    turns: int  # with a cost
    micro_usd_per_turn: int  # the median of these
    agreed: int = 0  # deliberations that reached agreement
    rounds: int = 0  # that they need


class FeedbackGiven(msgspec.Struct, kw_only=True):
    """What `streamproc feedback RUN VERDICT --json` prints, and a line of `feedback --list --json`."""

    run_id: str
    verdict: str
    decision: str
    by: str
    reason: str
    event_id: str


class CommandAnswer(msgspec.Struct, kw_only=True):
    """What `stop-all`, `pause-all`, `clear`, `kill`, `resume` and `acknowledge` print with ``--json``.

    `state` says how far the command has come, `place` where its record is. `decision` is the one that answered it, a
    ``control-event``; `previous` the command that it replaced, a ``fleet-order``. `expected` runs are to stop (null:
    not counted).
    """

    id: str
    verb: str
    scope: str
    by: str
    reason: str
    grant: dict[str, Any]
    state: str
    note: str
    place: str
    decision: dict[str, Any] | None
    previous: dict[str, Any] | None
    expected: int | None
    stopped: int | None
    not_stopped: list[str]


class PolicyMistake(msgspec.Struct, kw_only=True):
    """A mistake in a policy file."""

    line: int | None
    column: int | None
    field: str
    message: str
    remedy: str


class PolicyCheck(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What `streamproc policy check --json` prints of each file; a valid one has name, version and hash."""

    source: str | None
    valid: bool
    name: str = ""
    version: str = ""
    hash: str = ""
    problems: list[PolicyMistake]


class PolicyName(msgspec.Struct, kw_only=True):
    """A policy, as decisions name it."""

    name: str
    version: str
    hash: str


class ReplayDifference(msgspec.Struct, kw_only=True):
    """A line of `streamproc replay --diff --json`: a decision that differs from the published one, and why.

    `kind` is missing, extra, earlier, later or other-id.
    """

    kind: str
    run_id: str
    code: str
    severity: str
    turn: int | None
    published_turn: int | None
    id: str | None
    published_id: str | None
    why: str
    detail: str
    message: str


class ReplaySummary(msgspec.Struct, kw_only=True, tag_field="kind", tag="summary"):
    """The last line of `streamproc replay --diff --json`: how many decisions differ, in which runs."""

    identical: int
    under_another_policy: int
    missing: int
    extra: int
    earlier: int
    later: int
    other_id: int
    pending: int
    outside: int
    repeated: int
    runs: list[str]
    policy: PolicyName
    published_policies: list[PolicyName]


class ComparedHalt(msgspec.Struct, kw_only=True):
    """A run that a policy halts, or the first policy did; null: not halted."""

    run_id: str
    change: str
    code: str | None
    turn: int | None
    turns_saved: int
    first_code: str | None
    first_turn: int | None


class HeldCallsStatistics(msgspec.Struct, kw_only=True):
    """What the breakers of a policy's providers would have held back: how often they open, for how long, and calls of
    the log in that time. `openings` are by provider and model."""

    opened: int
    held_seconds: float
    failed_calls: int
    answered_calls: int
    openings: dict[str, int]


class PolicyComparison(msgspec.Struct, kw_only=True):
    """A line of `streamproc backtest --json`: a policy, compared with the first one. Money is USD as text.

    `settings` are those of a variant. `false_halts` and `right_halts` are null without labels. `providers` is null
    where published decisions are compared.
    """

    policy: PolicyName
    settings: dict[str, Any]
    runs: int
    turns: int
    halted: int
    same: int
    earlier: int
    later: int
    never: int
    new: int
    warned: int
    turns_saved: int
    tokens_saved: int
    cost_usd_saved: str | None
    false_halts: list[str] | None
    right_halts: list[str] | None
    healthy_runs: int
    stuck_runs: int
    halts: list[ComparedHalt]
    providers: HeldCallsStatistics | None = None


class DetectorStatistics(msgspec.Struct, kw_only=True):
    """The decisions of a detector, by severity, and how many runs it has halted."""

    code: str
    name: str
    layer: int | None
    info: int
    warn: int
    halt: int
    runs_halted: int


class EndStatistics(msgspec.Struct, kw_only=True):
    """How the runs of a workflow ended (``*``: of all). `without_timeout` is a share; null: none has ended."""

    workflow: str
    runs: int
    ended: int
    halted: int
    timed_out: int
    without_timeout: float | None


class HaltStatistics(msgspec.Struct, kw_only=True):
    """How many runs of a workflow a detector has halted."""

    code: str
    workflow: str
    runs: int


class AmountUsed(msgspec.Struct, kw_only=True):
    """Turns, tokens and micro-USD."""

    turns: int
    tokens: int
    cost_usd_micro: int


class WasteStatistics(msgspec.Struct, kw_only=True):
    """What halted runs have used: in all, between the onset of their loop and their halt, and after it."""

    used: AmountUsed
    looping: AmountUsed
    after_halt: AmountUsed


class AcknowledgementStatistics(msgspec.Struct, kw_only=True):
    """How long a halted run waited for a person; null: it still waits."""

    run_id: str
    code: str
    seconds: float | None


class RunStatistics(msgspec.Struct, kw_only=True):
    """What `streamproc stats --json` prints. `objective` is the share of runs that are to end without a timeout, `met`
    whether they do (null: no run has ended)."""

    objective: float
    met: bool | None
    ends: list[EndStatistics]
    detectors: list[DetectorStatistics]
    stop_reasons: dict[str, int]
    halts: list[HaltStatistics]
    waste: WasteStatistics
    lost: int
    acknowledgements: list[AcknowledgementStatistics]


def printed(row: dict[str, Any], struct: type[msgspec.Struct]) -> str:
    """Return an object as it is printed. Raises `msgspec.ValidationError` if its schema does not say so."""
    return msgspec.json.encode(msgspec.convert(row, struct, from_attributes=True)).decode()


PRINTED: dict[str, type[msgspec.Struct]] = {
    "doctor-check": DoctorCheck,
    "topic-state": TopicState,
    "kafka-right": KafkaRight,
    "detector-summary": DetectorSummary,
    "graph-cycle": GraphCycle,
    "delivery": PublishedCounts,
    "workflow-baseline": BaselineOfWorkflow,
    "feedback-given": FeedbackGiven,
    "command-answer": CommandAnswer,
    "policy-check": PolicyCheck,
    "replay-difference": ReplayDifference,
    "replay-summary": ReplaySummary,
    "policy-comparison": PolicyComparison,
    "run-statistics": RunStatistics,
}
"""By the name of their schema."""
