"""The tool of scripted agents: it runs commands, of which `pytest` always fails in the same way."""

from __future__ import annotations

STEPS = 12  # of a model that would never end by itself
ran: list[str] = []  # by the present test


def run(cmd: str) -> str:
    """Run a command."""
    ran.append(cmd)
    return "2 failed: test_login, test_logout" if cmd == "pytest" else f"the result of {cmd}"
