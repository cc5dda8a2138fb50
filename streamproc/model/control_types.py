"""Types of decisions with a meaning of their own for those who stop work."""

from __future__ import annotations

from typing import Final

ENDS_OF_TASKS: Final = frozenset({"task.ended", "task.escalated"})
"""After them a task is over, while its run goes on, if they name its new status and are no halt."""
ABOUT_NO_RUN: Final = frozenset({"fleet.state", "provider.state"})
"""They are about the fleet, or about a provider: their `run_id` names no run."""
PROVIDER_STATE: Final = "provider.state"
