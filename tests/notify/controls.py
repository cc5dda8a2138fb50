"""Control events as the engine makes them."""

from __future__ import annotations

from typing import Any

from streamproc.model.controls import ControlEvent

_LOOP: dict[str, Any] = {
    "type": "loop.halted", "run_id": "r1", "code": "LOOP003", "severity": "halt",
    "message": "pytest was called 3 times and answered the same.", "node": "coder", "task_id": "T-7",
    "halt_reason": "stalled", "terminal_status": "aborted_stuck", "action": "switch_to_interactive",
    "suggested_actions": ["switch_to_interactive", "ask_human"],
    "evidence": {"kind": "repeated_call", "tool": "pytest", "args_hash": "00ff", "turns": [3, 5, 7], "count": 3},
    "trigger": {"event_id": "e7", "turn": 7}, "at": "2026-01-01T00:00:00.000Z",
}  # fmt: skip


def control(number: int = 0, **fields: Any) -> ControlEvent:
    """A halt for a loop, changed by `fields`; each number has its own id."""
    return ControlEvent.model_validate(_LOOP | {"id": f"c{number}"} | fields)


def budget(code: str, used: int, limit: int = 100, severity: str = "warn", **fields: Any) -> ControlEvent:
    """A level of a budget."""
    spent = {"kind": "budget", "used": used, "limit": limit, "unit": "tokens"} | fields.pop("evidence", {})
    halts = {"halt_reason": "budget_exceeded", "terminal_status": "budget_exceeded"} if severity == "halt" else {}
    silent = {"halt_reason": None, "terminal_status": None}
    kind = "loop.halted" if severity == "halt" else "budget.level"
    named = {"code": code, "type": kind, "severity": severity, "evidence": spent}
    return control(**(named | silent | halts | fields))
