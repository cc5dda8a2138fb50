"""The engine in one process: no broker, no thread, no clock but the log's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from streamproc.core.decision import Decision
from streamproc.core.local_accounts import LocalAccounts
from streamproc.core.run_state import RunState
from streamproc.fingerprint import fingerprint
from streamproc.model.controls import ControlEvent, RunStatus, public
from streamproc.model.raw_events import parse_raw
from streamproc.policy import Policy, load_policy
from streamproc.policy.layers import Source

RUNS_MAX: Final = 100_000  # runs kept; past it, the one that was silent for the longest time goes


class Monitor:
    """Feed it raw turns, and it answers with control events.

    >>> monitor = Monitor()
    >>> for _ in range(3):
    ...     for control in monitor.feed(run_id="r1", node="coder", output="I will try again."):
    ...         print(control.severity, control.code)
    warn LOOP001
    halt LOOP001
    """

    def __init__(self, policy: Policy | Source | None = None, *, runs_max: int = RUNS_MAX) -> None:
        self.policy = policy if isinstance(policy, Policy) else load_policy(policy)
        self.evicted = 0
        self._engine = self.policy.engine()
        self._runs: dict[str, RunState] = {}
        self._books = LocalAccounts(self._engine, self._runs.get)
        self._halts: dict[str, Decision] = {}
        self._runs_max = runs_max

    def feed(self, turn: Mapping[str, Any] | None = None, /, **fields: Any) -> list[ControlEvent]:
        """Take in one raw turn (or another input of the contract), as a mapping or as keyword arguments.

        The answer may be about other runs, too: those that share a session, a user or a tenant with a budget.

        `from_` stands for the field ``from``, which Python does not allow as an argument. Raises `InvalidEvent`.
        """
        if "from_" in fields:
            fields["from"] = fields.pop("from_")
        raw = parse_raw({**(turn or {}), **fields})
        state = self._runs.pop(raw.run_id, None) or RunState()
        self._runs[raw.run_id] = state
        if len(self._runs) > self._runs_max:
            oldest = next(iter(self._runs))
            del self._runs[oldest]
            self._halts.pop(oldest, None)
            self.evicted += 1
        decisions = self._books.step(state, fingerprint(raw), raw.at)
        halts = [decision for decision in decisions if decision.severity == "halt"]
        at_start = raw.type == "run.started" and any(halt.run_id == raw.run_id for halt in halts)
        if state.halted < 0 or at_start:
            self._halts.pop(raw.run_id, None)  # of a run that had this id before, or was resumed
        for halt in halts:
            self._halts.setdefault(halt.run_id, halt)
        return [public(decision) for decision in decisions]

    def status(self, run_id: str) -> RunStatus | None:
        """What is known of a run."""
        state = self._runs.get(run_id)
        if state is None:
            return None
        return RunStatus.model_validate(
            msgspec.to_builtins(self._engine.status(state, run_id, self._halts.get(run_id)))
        )
