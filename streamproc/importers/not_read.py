"""Logs that are known by their content and not read: a message names them instead of calling them unknown."""

from __future__ import annotations

from typing import Any

from streamproc.importers.content import items, mapping
from streamproc.importers.log_file import Sample


def known_as(sample: Sample) -> str:
    """Return what a log is that no importer reads, and why; empty for any other."""
    document = mapping(sample.document)
    if {"history", "mistake_step"} <= document.keys():
        return "a failure of the Who&When data set, which has messages of agents and no calls"
    if {"simulations", "tasks", "info"} <= document.keys():
        return "results of tau2-bench, whose messages are nested in simulations"
    if document.get("type") == "TeamState" and "agent_states" in document:
        return "the state of an AutoGen team, and no log of its turns"
    rows = [mapping(row) for row in sample.rows]
    if any(row.get("type") == "OrchestrationEvent" and "source" in row for row in rows):
        return "a log of Magentic-One, which has messages of agents and no calls"
    if any(map(_is_of_cursor, rows)):
        return "a transcript of Cursor, which has no results of calls"
    return ""


def _is_of_cursor(row: dict[str, Any]) -> bool:
    content = items(mapping(row.get("message")).get("content"))
    return row.keys() <= {"role", "message"} and "role" in row and any("type" in mapping(block) for block in content)
