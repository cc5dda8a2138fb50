"""Types of the publisher's keyword arguments, for editors and type checkers.

`streamproc.model.raw_events` has the rules and validates every event; every field is optional there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class EventFields(TypedDict, total=False):
    """Fields of every event. Scope (workflow, tenant, user, tier) is normally sent once, on ``run.started``."""

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
    """Fields of a turn besides `run_id` and `node`. `from_` is ``from`` on the wire."""

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
    request: Any  # what the turn answers: a prompt, an item, a command
    decision: Mapping[str, Any] | None
    round: int | None
    convergence: float | None
    consensus: float | None
    usage: Mapping[str, Any] | None
    model: str
    provider: str
    stop_reason: str  # why the model's answer ended, in the word of its API
    findings: Sequence[Mapping[str, Any] | str] | None  # of a review: all that are open


class NodeFields(EventFields, total=False):
    """Fields of an event that may name a node, besides `run_id`."""

    node: str


class RunStartedFields(NodeFields, total=False):
    """Fields of ``run.started`` besides `run_id`."""

    graph: Any  # nodes and edges, a networkx.DiGraph, or a LangGraph graph
    budgets: Mapping[str, Any] | None
    prompt: str | None  # what the run is asked to do; only hashes are sent
