"""What commands print with ``--json`` and no other part of streamproc sends: one object a line."""

from __future__ import annotations

from typing import Literal

import msgspec


class DoctorCheck(msgspec.Struct, kw_only=True):
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
    runs: int
    p99_s: int
    turns: int
    micro_usd_per_turn: int
    agreed: int = 0
    rounds: int = 0


PRINTED: dict[str, type[msgspec.Struct]] = {
    "doctor-check": DoctorCheck,
    "topic-state": TopicState,
    "kafka-right": KafkaRight,
    "detector-summary": DetectorSummary,
    "graph-cycle": GraphCycle,
    "delivery": PublishedCounts,
    "workflow-baseline": BaselineOfWorkflow,
}
"""By the name of their schema."""
