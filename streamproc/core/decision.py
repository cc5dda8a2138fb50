"""What the engine answers: findings of detectors, and the decisions that the ladder makes of them."""

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
    """How far an episode has gone up the ladder."""

    INFO = 0
    WARN = 1
    HALT = 2


class Rejection(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A verdict against a task: whose it was, and a redacted excerpt of the report."""

    validator: str = ""
    reason: str = ""


class Snapshot(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was last known of a run: so much is there to be saved, and gone on with."""

    turns: int = 0
    round: int | None = None
    badge: str | None = None
    failing_trend: list[int] | None = None
    total_tokens: int = 0
    cost_usd_micro: int = 0
    last_node: str | None = None
    heard_at: str | None = None


class Evidence(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a detector saw. Turns are indices from 0; hashes are 16 hex digits; the last ones come last."""

    kind: str
    count: int | None = None
    period: int | None = None
    iteration: int | None = None
    turns: list[int] | None = None
    match: str | None = None
    tool: str | None = None
    args_hash: str | None = None
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


class Finding(msgspec.Struct, kw_only=True):
    """One detector's verdict on one turn. `loop` tells one loop from another; `onset` is the turn index at which
    it began, or -1 where the finding is not a loop (a budget, an order). `type` and `action` are set where they do
    not follow from level, reason and policy. A finding about a task names it; `task_status` is what becomes of the
    task, whatever becomes of the run. What is `remembered` elsewhere is told whenever it is found. `anywhere`: at
    which turn of the run it is told is chance, and no part of the decision's identity. `node` is set where it is not
    that of the event."""

    code: str
    level: Level
    loop: int
    message: str
    evidence: Evidence
    reason: str
    status: str
    onset: int = -1
    type: str = ""
    action: str = ""
    anywhere: bool = False
    task: str = ""
    node: str = ""
    task_status: str = ""
    remembered: bool = False


class Trigger(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The event that caused a decision. The carrier of the event fills in topic, partition and offset."""

    event_id: str = ""
    turn: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class PolicyRef(msgspec.Struct):
    """Which policy decided."""

    name: str
    version: str
    hash: str


class Decision(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A control event, as the core makes it. `streamproc.model.controls.ControlEvent` is the same for readers."""

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
    action: str | None = None
    suggested_actions: list[str] = []
    evidence: Evidence | None = None
    trigger: Trigger | None = None
    onset: int | None = None
    policy: PolicyRef | None = None
    at: str | None = None
    labels: dict[str, str] | None = None


def hex16(value: int) -> str:
    """A 64-bit hash as people see it."""
    return f"{value & 0xFFFFFFFFFFFFFFFF:016x}"


encode_decision = msgspec.json.Encoder().encode
