"""Control events and statuses of runs: what the engine decides, and what readers of those topics receive.

One declaration serves both: the engine fills these types, msgspec encodes them, and the JSON Schemas are made of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from streamproc.model.escaping import escape
from streamproc.model.provider_state import ProviderState
from streamproc.model.published import Known, PublishedRecord, about

ControlType = Literal[
    "loop.warning", "loop.halted", "budget.level", "run.timed_out", "information.none", "transition.blocked",
    "delegation.rejected", "task.ended", "task.escalated", "run.resumed", "fleet.state", "notification",
    "decision.recorded", "provider.state",
]  # fmt: skip
Severity = Literal["info", "warn", "halt"]
Match = Literal["exact", "normalised"]
HaltReason = Literal["budget_exceeded", "stalled", "oscillating", "repeated_error", "user_stop"]
TerminalStatus = Literal[
    "aborted_stuck", "budget_exceeded", "timed_out", "blocked", "stalled", "escalated", "stopped"
]  # fmt: skip
Action = Literal[
    "warn", "pause", "switch_to_interactive", "spawn_reviewer", "retry_with_new_provider", "force_synthesis",
    "snitch", "ask_human", "done_partial", "halt", "kill", "spawn_reconciliation_node", "tighten_context_pack",
    "update_docs_contract",
]  # fmt: skip


class ControlRejection(PublishedRecord, kw_only=True, frozen=True):
    """A verdict against a task."""

    validator: str = ""
    reason: Annotated[str, about("redacted excerpt of the report")] = ""


class ControlSnapshot(PublishedRecord, kw_only=True, frozen=True):
    """The last known state of a run that timed out, for saving or resuming its work."""

    turns: int = 0
    round: Annotated[int | None, about("the highest round that was reported")] = None
    badge: Annotated[str | None, about("cycle iterations, such as `Loop 3/8`")] = None
    failing_trend: list[int] | None = None
    total_tokens: int = 0
    cost_usd_micro: int = 0
    last_node: Annotated[str | None, about("node of the last turn; the name may be cut off")] = None
    heard_at: Annotated[str | None, about("log time of the run's last event")] = None


class ControlEvidence(PublishedRecord, kw_only=True, frozen=True):
    """The evidence of a detector. Turns are indices from 0; hashes have 16 hex digits; lists end with the latest."""

    kind: Annotated[str, about("the detector's name, such as repeated_call")]
    count: Annotated[int | None, about("how often it occurred in this loop")] = None
    period: Annotated[int | None, about("length of the period, in steps")] = None
    iteration: Annotated[int | None, about("iterations of the cycle so far")] = None
    turns: Annotated[list[int] | None, about("turn indices of the occurrences counted")] = None
    match: Annotated[Known[Match] | None, about("how the occurrences match")] = None
    tool: str | None = None
    args_hash: str | None = None
    args_excerpt: Annotated[
        str | None,
        about("redacted excerpt of the arguments, if the publisher sends content (`include_content`)"),
    ] = None
    result_hash: str | None = None
    hashes: Annotated[list[str] | None, about("content hashes of the loop")] = None
    edge: Annotated[list[str] | None, about("the handover: from node, to node")] = None
    cycles: Annotated[
        list[list[str]] | None,
        about("cycles of the declared graph without an exit, each by its first nodes; count has their number"),
    ] = None
    failing: Annotated[int | None, about("failing tests at the trigger")] = None
    failing_tests: Annotated[list[str] | None, about("the first failing test ids")] = None
    failing_trend: Annotated[list[int] | None, about("failing counts of the last results")] = None
    best: Annotated[float | None, about("the best value so far")] = None
    first_error: Annotated[str | None, about("redacted excerpt of the first error")] = None
    used: Annotated[int | None, about("spent from a budget, in `unit`")] = None
    limit: Annotated[int | None, about("the budget, in `unit`")] = None
    limit_from: Annotated[
        str | None,
        about(
            "who set the limit: run, tier, policy, grant (of an operator), delegation, session (another of its runs), "
            "detector (its parameters), hard_cap"
        ),
    ] = None
    unit: Annotated[str | None, about("turns, iterations, ms, micro_usd, tokens, or what a session's tree counts")] = (
        None
    )
    rung: Annotated[str | None, about("the level of a budget's escalation, such as restrict")] = None
    account: Annotated[str | None, about("whose budget, or who is killed: session:ID, user:ID or tenant:ID")] = None
    window: Annotated[str | None, about("total, or the last hour, day or month")] = None
    per_minute: Annotated[int | None, about("current rate of spending, in `unit`")] = None
    unpriced: Annotated[int | None, about("turns without a known price; `used` lacks their cost")] = None
    about: Annotated[str | None, about("the run of the session that it is about, such as a halted child")] = None
    runs: Annotated[list[str] | None, about("other runs of the session: siblings that have finished")] = None
    by: Annotated[str | None, about("who issued the command")] = None
    reason: Annotated[str | None, about("the reason of a command, or why a deliberation stops")] = None
    grant: Annotated[dict[str, int] | None, about("amounts added to budgets, in their units")] = None
    output_hashes: Annotated[list[str] | None, about("the last outputs of the run")] = None
    artifact_hashes: Annotated[list[str] | None, about("the last artifacts of the run")] = None
    failing_signatures: Annotated[list[str] | None, about("the last failing-test sets of the run")] = None
    from_state: Annotated[str | None, about("the task's state before")] = None
    to_state: Annotated[str | None, about("the state that the task entered, or should have entered")] = None
    last_valid: Annotated[str | None, about("the task's current state on the board")] = None
    guard: Annotated[str | None, about("the guard that the transition requires")] = None
    missing: Annotated[list[str] | None, about("items of the guard that are missing or fail")] = None
    attempts: Annotated[int | None, about("number of attempts")] = None
    agent: Annotated[str | None, about("the agent that owns the task or made the attempt")] = None
    module: str | None = None
    phase: str | None = None
    tasks: Annotated[list[str] | None, about("the tasks of a batch, or the failed tasks")] = None
    root: Annotated[str | None, about("the task at which a chain is blocked")] = None
    chain: Annotated[list[str] | None, about("the blocked tasks, starting at the root")] = None
    priority: Annotated[str | None, about("the new priority of the root")] = None
    failure_class: str | None = None
    validator: str | None = None
    rejections: Annotated[list[ControlRejection] | None, about("the verdicts against a task, oldest first")] = None
    options: Annotated[list[str] | None, about("the choices of a person")] = None
    snapshot: Annotated[ControlSnapshot | None, about("the last known state of a run that timed out")] = None
    signs: Annotated[list[str] | None, about("the codes of different warnings about one node, the latest last")] = None
    query: Annotated[str | None, about("redacted excerpt of a repeated query, where content is published")] = None
    details: Annotated[
        dict[str, str | int | float] | None,
        about("further facts, at most 16; of a plug-in, texts are redacted excerpts of up to 256 characters"),
    ] = None


class ControlTrigger(PublishedRecord, kw_only=True, frozen=True):
    """The event that caused a decision, and its position in the log."""

    event_id: str = ""
    turn: Annotated[int | None, about("turn index in the run, from 0")] = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class ControlPolicy(PublishedRecord, kw_only=True, frozen=True):
    """The policy that decided: its name, version and content hash."""

    name: str
    version: str
    hash: str


class ControlEvent(PublishedRecord, kw_only=True, frozen=True, dict=True):
    """A decision about a run. The same log and policy give the same `id`, so you can recognise duplicates."""

    id: str
    type: Known[ControlType]
    run_id: str
    code: Annotated[str, about("the detector's stable code, such as LOOP002")]
    severity: Known[Severity]
    message: Annotated[str, about("one sentence for a person, and for the model in a nudge")]
    workflow: str | None = None
    tenant: str | None = None
    user: str | None = None
    cycle_id: str | None = None
    node: str | None = None
    task_id: str | None = None
    halt_reason: Known[HaltReason] | None = None
    terminal_status: Known[TerminalStatus] | None = None
    stop_reason: Annotated[
        str | None,
        about(
            "why the run stops, as a short name: cost_budget_exceeded, max_rounds, hard_cap_15_rounds, "
            "consensus (a good stop), recursion_limit, timeout, unsafe_cycle, or the kind of the evidence"
        ),
    ] = None
    action: Annotated[Known[Action] | None, about("the action that the policy sets")] = None
    suggested_actions: Annotated[list[str], about("alternative actions, best first")] = []
    evidence: ControlEvidence | None = None
    trigger: ControlTrigger | None = None
    onset: Annotated[int | None, about("turn index at which the loop began")] = None
    policy: ControlPolicy | None = None
    at: Annotated[str | None, about("log time of the trigger, RFC 3339")] = None
    labels: dict[str, str] | None = None
    badge: Annotated[str | None, about("iterations of the cycle that has most, such as `Loop 3/8`")] = None
    provider: Annotated[
        ProviderState | None, about("the new state of a provider's breaker; `run_id` is then provider:NAME")
    ] = None

    @property
    def traceparent(self) -> str:
        """The span in which the event that caused this was published, by W3C's trace context; empty if not known.

        It comes from the header of a record on Kafka, and is no part of the decision.
        """
        return str(self.__dict__.get("traceparent", ""))

    @property
    def halts(self) -> bool:
        """Whether this stops the run."""
        return self.severity == "halt"

    @property
    def turn(self) -> int | None:
        """Index of the turn that caused this; None if no turn did."""
        return self.trigger.turn if self.trigger is not None else None

    def __str__(self) -> str:
        """Say what was decided, why, and on which evidence, for a terminal or a log."""
        places = [f"run {self.run_id}", *([f"turn {self.turn}"] if self.turn is not None else [])]
        places += [f"node {self.node}"] if self.node else []
        lines = [f"{self.severity.upper()} {self.code}, {', '.join(places)}: {self.message}"]
        if self.evidence is not None:
            facts = [f"{name} {value}" for name, value in self.evidence.facts() if name != "kind"]
            lines.append(", ".join([f"  evidence: {self.evidence.kind}", *facts]))
        actions = dict.fromkeys([*([self.action] if self.action else []), *self.suggested_actions])
        if actions:
            lines.append(f"  to do: {', or '.join(actions)}")
        return "\n".join(escape(line) for line in lines)


class UnverifiedControlEvent(ControlEvent, kw_only=True, frozen=True):
    """A control event that no worker has signed, although workers must: it may be forged."""

    verified: Literal[False] = False


class CycleStatus(PublishedRecord, kw_only=True, frozen=True):
    """What a run keeps of one cycle of its graph."""

    cycle: Annotated[str, about("id of the cycle: a hash of its nodes and edges")]
    iterations: Annotated[int, about("completed so far")]
    runtime_ms: Annotated[int, about("of its own nodes, against `maxCycleRuntimeMs`")] = 0
    cost_usd_micro: Annotated[int, about("of its own nodes, against `maxCycleCost`")] = 0
    windows: Annotated[
        dict[str, int],
        about(
            "hashes in each of its windows (steps, statements, artifacts, narration); none as long as all "
            "turns belong to the cycle: its windows are those of the run"
        ),
    ] = {}


class EndedTask(PublishedRecord, kw_only=True, frozen=True):
    """A task that has ended while its run goes on: guards for it, and for its agent, refuse work."""

    task_id: str
    terminal_status: Known[TerminalStatus]
    code: Annotated[str, about("of the rule that ended it")]
    agent: Annotated[str, about("that owns it; empty: not known")] = ""


class RunStatus(PublishedRecord, kw_only=True, frozen=True):
    """The complete latest status of a run, as the compacted ``runs`` topic keeps it."""

    run_id: str
    status: Known[Literal["running", "halted", "finished"]]
    severity: Annotated[Known[Severity], about("the highest so far; does not fall while the run is halted")] = (
        msgspec.field(default_factory=lambda: "info")
    )  # not omitted
    workflow: str | None = None
    tenant: str | None = None
    user: str | None = None
    halt: Annotated[ControlEvent | None, about("the decision that halted the run")] = None
    turns: int = 0
    badge: Annotated[str | None, about("cycle iterations, such as `Loop 3/8`")] = None
    failing_trend: list[int] = []
    total_tokens: int = 0
    cost_usd_micro: int = 0
    at: str | None = None
    capped_budgets: Annotated[
        list[str], about("budgets that the run declared above the policy's limit, which therefore applies")
    ] = []
    strangers: Annotated[int, about("events that were refused because they lack the token of the run")] = 0
    loop_counters: Annotated[
        dict[str, int],
        about(
            "handovers in a row without progress on each edge, such as planner_to_researcher; "
            "counted where the policy counts each edge apart, as `planner` does"
        ),
    ] = {}
    cycles: Annotated[list[CycleStatus], about("cycles of its graph that it has entered")] = []
    ended_tasks: Annotated[
        list[EndedTask],
        about("tasks that have ended while the run goes on, and were not resumed: at most eight"),
    ] = []
    partition: Annotated[int, about("partition of the turns topic; -1: not on Kafka")] = -1
    offset: Annotated[int, about("offset of the run's last event there: a status with a lower one is older")] = -1
    unpublished: Annotated[bool, about("whether only commands name this run: no publisher has sent an event of it")] = (
        False
    )
    session: Annotated[
        str | None, about("session that it belongs to; none: it is the root of its own, if it has children")
    ] = None
    parent_run_id: Annotated[str | None, about("run that started it")] = None


def read_control(raw: bytes | str, traceparent: str = "") -> ControlEvent:
    """Read a control event from JSON, with the `traceparent` of its record. Raises `ValueError`."""
    control = ControlEvent.model_validate_json(raw)
    if traceparent:
        control.__dict__["traceparent"] = traceparent
    return control
