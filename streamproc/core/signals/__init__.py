"""Signals: one module for each kind of evidence, with the memory it needs, its caps and the function that updates it.

Import the modules. `core.observer` calls them for each turn, in the order in which they depend on each other.
"""

__all__ = (
    "artifacts",
    "calls",
    "cycles",
    "failing_tests",
    "handovers",
    "metrics",
    "monologues",
    "node_errors",
    "novelty",
    "open_turns",
    "pace",
    "periods",
    "queries",
    "similarity",
    "spend",
    "statements",
    "streaks",
    "task_attempts",
    "task_tokens",
    "tools",
)
