"""The task board of a run: its configuration and state, transitions and routes, guards and chains of blocked tasks,
cycles, failures, holds and owners."""

__all__ = (
    "chains",
    "change",
    "config",
    "cycles",
    "failures",
    "guards",
    "holds",
    "owners",
    "routes",
    "state",
    "transitions",
)
