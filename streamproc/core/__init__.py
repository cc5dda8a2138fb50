"""The pure engine: no clock, no randomness, no input or output, no logging, no async.

Import the modules: this package imports none of them, so `compiled` can choose where they come from first.
"""

__all__ = (
    "accounts",
    "board",
    "charges",
    "compiled",
    "deadlines",
    "decision",
    "engine",
    "escalation",
    "graph",
    "kind",
    "local_accounts",
    "names",
    "observer",
    "prices",
    "resume",
    "rules",
    "run_state",
    "signals",
    "size_budget",
    "status",
    "view",
)
