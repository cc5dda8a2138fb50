"""The fields of the publisher's keyword arguments, for editors and type checkers.

The rules are in `streamproc.model.raw_events`, which checks every event; every field is optional there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class EventFields(TypedDict, total=False):
    """What every event may carry. Scope (workflow, tenant, user, tier) is normally sent once, on ``run.started``."""

    event_id: str
    at: str | int | None
    seq: int | None
    workflow: str
    tenant: str
    user: str
    tier: str
    agent: str
    task_id: str
    session_id: str
    parent_run_id: str
    labels: Mapping[str, str] | None


class TurnFields(EventFields, total=False):
    """What a turn may carry besides `run_id` and `node`. `from_` is the wire's ``from``."""

    from_: str
    output: str | None
    structured_output: Any
    artifact: str | Mapping[str, str] | None
    docs: str | None
    tests: Mapping[str, Any] | None
    progress: Mapping[str, float] | None
    errors: Sequence[Mapping[str, Any] | str] | str | None
    tool_calls: Sequence[Mapping[str, Any]]
    query: str | None
    decision: Mapping[str, Any] | None
    round: int | None
    convergence: float | None
    consensus: float | None
    usage: Mapping[str, Any] | None
    model: str
    provider: str


class RunStartedFields(EventFields, total=False):
    """What ``run.started`` may carry besides `run_id`."""

    node: str
    graph: Any  # nodes and edges, a networkx.DiGraph, or a LangGraph graph
    budgets: Mapping[str, Any] | None


class NodeFields(EventFields, total=False):
    """What an event that may happen at a node may carry besides `run_id`."""

    node: str
