"""Findings of detectors, and the decisions that the engine makes of them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

OSCILLATING: Final = "oscillating"
STALLED: Final = "stalled"
REPEATED_ERROR: Final = "repeated_error"
BUDGET_EXCEEDED: Final = "budget_exceeded"
USER_STOP: Final = "user_stop"


class Level(IntEnum):
    """Escalation level of an episode."""

    INFO = 0
    WARN = 1
    HALT = 2


class Rejection(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A verdict against a task: the validator, and a redacted excerpt of its report."""

    validator: str = ""
    reason: str = ""


class Snapshot(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The last known status of a run, from which work can be saved and continued."""

    turns: int = 0
    round: int | None = None
    badge: str | None = None
    failing_trend: list[int] | None = None
    total_tokens: int = 0
    cost_usd_micro: int = 0
    last_node: str | None = None
    heard_at: str | None = None


class Evidence(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The evidence of a finding. Turns are indices from 0; hashes are 16 hex digits; the latest come last."""

    kind: str
    count: int | None = None
    period: int | None = None
    iteration: int | None = None
    turns: list[int] | None = None
    match: str | None = None
    tool: str | None = None
    args_hash: str | None = None
    args_excerpt: str | None = None
    result_hash: str | None = None
    hashes: list[str] | None = None
    edge: list[str] | None = None
    cycles: list[list[str]] | None = None
    failing: int | None = None
    failing_tests: list[str] | None = None
    failing_trend: list[int] | None = None
    best: float | None = None
    first_error: str | None = None
    used: int | None = None
    limit: int | None = None
    limit_from: str | None = None
    unit: str | None = None
    rung: str | None = None
    account: str | None = None
    window: str | None = None
    per_minute: int | None = None
    unpriced: int | None = None
    by: str | None = None
    reason: str | None = None
    grant: dict[str, int] | None = None
    output_hashes: list[str] | None = None
    artifact_hashes: list[str] | None = None
    failing_signatures: list[str] | None = None
    from_state: str | None = None
    to_state: str | None = None
    last_valid: str | None = None
    guard: str | None = None
    missing: list[str] | None = None
    attempts: int | None = None
    agent: str | None = None
    module: str | None = None
    phase: str | None = None
    tasks: list[str] | None = None
    root: str | None = None
    chain: list[str] | None = None
    priority: str | None = None
    failure_class: str | None = None
    validator: str | None = None
    rejections: list[Rejection] | None = None
    options: list[str] | None = None
    snapshot: Snapshot | None = None
    query: str | None = None
    details: dict[str, str | int | float] | None = None


class Finding(msgspec.Struct, kw_only=True):
    """The verdict of one detector on one turn or event."""

    code: str
    level: Level
    loop: int  # distinguishes the loops that one detector finds
    message: str
    evidence: Evidence
    reason: str
    status: str  # terminal status of the run if this halts it
    onset: int = -1  # turn in which the loop began; -1: not a loop but, say, a budget or a command
    type: str = ""  # of the decision, if it does not follow from level and reason
    action: str = ""  # if it does not follow from the policy
    anywhere: bool = False  # the turn in which it is found is chance, and no part of the decision's id
    task: str = ""  # task that it is about
    node: str = ""  # if it is not that of the event
    task_status: str = ""  # new status of the task, whatever happens to the run
    stop: str = ""  # short name of the reason to stop, if it is not the kind of the evidence of a halt
    remembered: bool = False  # recorded elsewhere: escalation reports it whenever it is found


class Trigger(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The event that caused a decision. The caller of the engine fills in topic, partition and offset."""

    event_id: str = ""
    turn: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class PolicyRef(msgspec.Struct):
    """The policy that decided."""

    name: str
    version: str
    hash: str


class Decision(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A control event, as the core creates it. Readers parse it as `streamproc.model.controls.ControlEvent`."""

    id: str
    type: str
    run_id: str
    code: str
    severity: str
    message: str
    workflow: str | None = None
    tenant: str | None = None
    user: str | None = None
    cycle_id: str | None = None
    node: str | None = None
    task_id: str | None = None
    halt_reason: str | None = None
    terminal_status: str | None = None
    stop_reason: str | None = None
    action: str | None = None
    suggested_actions: list[str] = []
    evidence: Evidence | None = None
    trigger: Trigger | None = None
    onset: int | None = None
    policy: PolicyRef | None = None
    at: str | None = None
    labels: dict[str, str] | None = None
    badge: str | None = None


def hex16(value: int) -> str:
    """Return a 64-bit hash as 16 hex digits."""
    return f"{value & 0xFFFFFFFFFFFFFFFF:016x}"


encode_decision = msgspec.json.Encoder().encode
