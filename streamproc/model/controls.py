"""Control events, as readers of the control topic receive them, and the latest status of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from streamproc.model.escaping import escape

ControlType = Literal[
    "loop.warning", "loop.halted", "budget.level", "run.timed_out", "information.none", "transition.blocked",
    "delegation.rejected", "task.ended", "task.escalated", "run.resumed", "fleet.state", "notification",
    "decision.recorded",
]  # fmt: skip
Severity = Literal["info", "warn", "halt"]
HaltReason = Literal["budget_exceeded", "stalled", "oscillating", "repeated_error", "user_stop"]
TerminalStatus = Literal[
    "aborted_stuck", "budget_exceeded", "timed_out", "blocked", "stalled", "escalated", "stopped"
]  # fmt: skip
Action = Literal[
    "warn", "pause", "switch_to_interactive", "spawn_reviewer", "retry_with_new_provider", "force_synthesis",
    "snitch", "ask_human", "done_partial", "halt", "kill", "spawn_reconciliation_node", "tighten_context_pack",
    "update_docs_contract",
]  # fmt: skip


class _Model(BaseModel):
    """Ignores unknown fields, so a newer worker does not break an older orchestrator."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Yield the fields that are set: most fields belong to other detectors."""
        return [(name, value) for name, value in self if value is not None and value != []]


class ControlRejection(_Model):
    """A verdict against a task."""

    validator: str = ""
    reason: str = Field("", description="redacted excerpt of the report")


class ControlSnapshot(_Model):
    """The last known state of a run that timed out, for saving or resuming its work."""

    turns: int = 0
    round: int | None = Field(None, description="the highest round that was reported")
    badge: str | None = Field(None, description="cycle iterations, such as `Loop 3/8`")
    failing_trend: list[int] | None = None
    total_tokens: int = 0
    cost_usd_micro: int = 0
    last_node: str | None = Field(None, description="node of the last turn; the name may be cut off")
    heard_at: str | None = Field(None, description="log time of the run's last event")


class ControlEvidence(_Model):
    """The evidence of a detector. Turns are indices from 0; hashes have 16 hex digits; lists end with the latest."""

    kind: str = Field(description="the detector's name, such as repeated_call")
    count: int | None = Field(None, description="how often it occurred in this loop")
    period: int | None = Field(None, description="length of the period, in steps")
    iteration: int | None = Field(None, description="iterations of the cycle so far")
    turns: list[int] | None = Field(None, description="turn indices of the occurrences counted")
    match: Literal["exact", "normalised"] | None = Field(None, description="how the occurrences match")
    tool: str | None = None
    args_hash: str | None = None
    args_excerpt: str | None = Field(
        None, description="redacted excerpt of the arguments, if the publisher sends content (`include_content`)"
    )
    result_hash: str | None = None
    hashes: list[str] | None = Field(None, description="content hashes of the loop")
    edge: list[str] | None = Field(None, description="the handover: from node, to node")
    cycles: list[list[str]] | None = Field(
        None,
        description="cycles of the declared graph without an exit, each by its first nodes; count has their number",
    )
    query: str | None = Field(None, description="redacted excerpt of a repeated query, where content is published")
    failing: int | None = Field(None, description="failing tests at the trigger")
    failing_tests: list[str] | None = Field(None, description="the first failing test ids")
    failing_trend: list[int] | None = Field(None, description="failing counts of the last results")
    best: float | None = Field(None, description="the best value so far")
    first_error: str | None = Field(None, description="redacted excerpt of the first error")
    used: int | None = Field(None, description="spent from a budget, in `unit`")
    limit: int | None = Field(None, description="the budget, in `unit`")
    limit_from: str | None = Field(
        None,
        description="who set the limit: run, tier, policy, grant (of an operator), delegation, session (another of its "
        "runs), detector (its parameters), hard_cap",
    )
    unit: str | None = Field(None, description="turns, iterations, ms, micro_usd, tokens")
    rung: str | None = Field(None, description="the level of a budget's escalation, such as restrict")
    account: str | None = Field(None, description="whose budget: session:ID, user:ID or tenant:ID")
    window: str | None = Field(None, description="total, or the last hour, day or month")
    per_minute: int | None = Field(None, description="current rate of spending, in `unit`")
    unpriced: int | None = Field(None, description="turns without a known price; `used` lacks their cost")
    by: str | None = Field(None, description="who issued the command")
    reason: str | None = Field(None, description="the reason of a command, or why a deliberation stops")
    grant: dict[str, int] | None = Field(None, description="amounts added to budgets, in their units")
    output_hashes: list[str] | None = Field(None, description="the last outputs of the run")
    artifact_hashes: list[str] | None = Field(None, description="the last artifacts of the run")
    failing_signatures: list[str] | None = Field(None, description="the last failing-test sets of the run")
    from_state: str | None = Field(None, description="the task's state before")
    to_state: str | None = Field(None, description="the state that the task entered, or should have entered")
    last_valid: str | None = Field(None, description="the task's current state on the board")
    guard: str | None = Field(None, description="the guard that the transition requires")
    missing: list[str] | None = Field(None, description="items of the guard that are missing or fail")
    attempts: int | None = Field(None, description="number of attempts")
    agent: str | None = Field(None, description="the agent that owns the task or made the attempt")
    module: str | None = None
    phase: str | None = None
    tasks: list[str] | None = Field(None, description="the tasks of a batch, or the failed tasks")
    root: str | None = Field(None, description="the task at which a chain is blocked")
    chain: list[str] | None = Field(None, description="the blocked tasks, starting at the root")
    priority: str | None = Field(None, description="the new priority of the root")
    failure_class: str | None = None
    validator: str | None = None
    rejections: list[ControlRejection] | None = Field(None, description="the verdicts against a task, oldest first")
    options: list[str] | None = Field(None, description="the choices of a person")
    snapshot: ControlSnapshot | None = Field(None, description="the last known state of a run that timed out")
    details: dict[str, str | int | float] | None = Field(
        None, description="facts of a plug-in, at most 16; texts are redacted excerpts of up to 256 characters"
    )


class ControlTrigger(_Model):
    """The event that caused a decision, and its position in the log."""

    event_id: str = ""
    turn: int | None = Field(None, description="turn index in the run, from 0")
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class ControlPolicy(_Model):
    """The policy that decided: its name, version and content hash."""

    name: str
    version: str
    hash: str


class ControlEvent(_Model):
    """A decision about a run. The same log and policy give the same `id`, so you can recognise duplicates."""

    id: str
    type: ControlType
    run_id: str
    code: str = Field(description="the detector's stable code, such as LOOP002")
    severity: Severity
    message: str = Field(description="one sentence for a person, and for the model in a nudge")
    workflow: str | None = None
    tenant: str | None = None
    user: str | None = None
    cycle_id: str | None = None
    node: str | None = None
    task_id: str | None = None
    halt_reason: HaltReason | None = None
    terminal_status: TerminalStatus | None = None
    stop_reason: str | None = Field(
        None,
        description="why the run stops, as a short name: cost_budget_exceeded, max_rounds, hard_cap_15_rounds, "
        "consensus (a good stop), recursion_limit, timeout, unsafe_cycle, or the kind of the evidence",
    )
    action: Action | None = Field(None, description="the action that the policy sets")
    suggested_actions: list[str] = Field([], description="alternative actions, best first")
    evidence: ControlEvidence | None = None
    trigger: ControlTrigger | None = None
    onset: int | None = Field(None, description="turn index at which the loop began")
    policy: ControlPolicy | None = None
    at: str | None = Field(None, description="log time of the trigger, RFC 3339")
    labels: dict[str, str] | None = None
    badge: str | None = Field(None, description="iterations of the cycle that has most, such as `Loop 3/8`")
    _traceparent: str = PrivateAttr("")

    @property
    def traceparent(self) -> str:
        """The span in which the event that caused this was published, by W3C's trace context; empty if not known.

        It comes from the header of a record on Kafka, and is no part of the decision.
        """
        return self._traceparent

    @property
    def halts(self) -> bool:
        """Whether this stops the run."""
        return self.severity == "halt"

    def __str__(self) -> str:
        """Say what was decided, why, and on which evidence, for a terminal or a log."""
        turn = self.trigger.turn if self.trigger is not None else None
        places = [f"run {self.run_id}", *([f"turn {turn}"] if turn is not None else [])]
        places += [f"node {self.node}"] if self.node else []
        lines = [f"{self.severity.upper()} {self.code}, {', '.join(places)}: {self.message}"]
        if self.evidence is not None:
            facts = [f"{name} {value}" for name, value in self.evidence.__repr_args__() if name != "kind"]
            lines.append(", ".join([f"  evidence: {self.evidence.kind}", *facts]))
        actions = dict.fromkeys([*([self.action] if self.action else []), *self.suggested_actions])
        if actions:
            lines.append(f"  to do: {', or '.join(actions)}")
        return "\n".join(escape(line) for line in lines)


class UnverifiedControlEvent(ControlEvent):
    """A control event that no worker has signed, although workers must: it may be forged."""

    verified: Literal[False] = False


class CycleStatus(_Model):
    """What a run keeps of one cycle of its graph."""

    cycle: str = Field(description="id of the cycle: a hash of its nodes and edges")
    iterations: int = Field(description="completed so far")
    runtime_ms: int = Field(0, description="of its own nodes, against `maxCycleRuntimeMs`")
    cost_usd_micro: int = Field(0, description="of its own nodes, against `maxCycleCost`")
    windows: dict[str, int] = Field(
        {},
        description="hashes in each of its windows (steps, statements, artifacts, narration); none as long as all "
        "turns belong to the cycle: its windows are those of the run",
    )


class EndedTask(_Model):
    """A task that has ended while its run goes on: guards for it, and for its agent, refuse work."""

    task_id: str
    terminal_status: TerminalStatus
    code: str = Field(description="of the rule that ended it")
    agent: str = Field("", description="that owns it; empty: not known")


class RunStatus(_Model):
    """The complete latest status of a run, as the compacted ``runs`` topic keeps it."""

    run_id: str
    status: Literal["running", "halted", "finished"]
    severity: Severity = Field("info", description="the highest so far; does not fall while the run is halted")
    workflow: str | None = None
    tenant: str | None = None
    user: str | None = None
    halt: ControlEvent | None = Field(None, description="the decision that halted the run")
    turns: int = 0
    badge: str | None = Field(None, description="cycle iterations, such as `Loop 3/8`")
    failing_trend: list[int] = []
    total_tokens: int = 0
    cost_usd_micro: int = 0
    at: str | None = None
    capped_budgets: list[str] = Field(
        [], description="budgets that the run declared above the policy's limit, which therefore applies"
    )
    loop_counters: dict[str, int] = Field(
        {},
        description="handovers in a row without progress on each edge, such as planner_to_researcher; "
        "counted where the policy counts each edge apart, as `planner` does",
    )
    ended_tasks: list[EndedTask] = Field(
        [], description="tasks that have ended while the run goes on, and were not resumed: at most eight"
    )
    cycles: list[CycleStatus] = Field([], description="cycles of its graph that it has entered")
    strangers: int = Field(0, description="events that were refused because they lack the token of the run")
    partition: int = Field(-1, description="partition of the turns topic; -1: not on Kafka")
    offset: int = Field(-1, description="offset of the run's last event there: a status with a lower one is older")
    unpublished: bool = Field(
        False, description="whether only commands name this run: no publisher has sent an event of it"
    )


def read_control(raw: bytes | str, traceparent: str = "") -> ControlEvent:
    """Read a control event from JSON, with the `traceparent` of its record. Raises `pydantic.ValidationError`."""
    control = ControlEvent.model_validate_json(raw)
    if traceparent:
        control._traceparent = traceparent
    return control


def public(decision: msgspec.Struct) -> ControlEvent:
    """Convert a decision of the core to a control event."""
    fields: dict[str, Any] = msgspec.to_builtins(decision)
    return ControlEvent.model_validate(fields)
