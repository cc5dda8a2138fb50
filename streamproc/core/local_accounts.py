"""Accounts within one process: `scan` and `Monitor` use them instead of the worker's spend topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.core.accounts import Account, step_account
from streamproc.core.charges import statements

if TYPE_CHECKING:
    from streamproc.core.charges import Charge
    from streamproc.core.decision import Decision
    from streamproc.core.engine import Engine
    from streamproc.core.run_state import RunState
    from streamproc.core.states import KeptRuns
    from streamproc.model.wire import Event

ACCOUNTS_MAX: Final = 100_000  # accounts kept; past it, the least recently charged one is dropped


class LocalAccounts:
    """Steps runs, and books charges on their accounts right after each event.

    An account notifies the runs that are still known.
    """

    def __init__(self, engine: Engine, runs: KeptRuns[str]) -> None:
        self._engine = engine
        self._runs = runs
        self._accounts: dict[str, Account] = {}
        self._steps = 0
        self._charges: list[Charge] = []
        engine.charges = self._charges

    def step(self, event: Event, at_ms: int | None) -> list[Decision]:
        """Return the decisions on an event of a run, then those that the accounts cause for this run and others."""
        self._steps += 1
        self._engine.event_offset = self._steps
        decisions = self._apply(self._runs.open(event.run_id), event, at_ms)
        if self._charges:
            decisions = decisions + self._book_charges()
        return decisions

    def _book_charges(self) -> list[Decision]:
        found: list[Decision] = []
        due = statements(self._charges, 0)
        self._charges.clear()
        for statement in due:
            account = self._accounts.pop(statement.account, None) or Account()
            self._accounts[statement.account] = account
            if len(self._accounts) > ACCOUNTS_MAX:
                del self._accounts[next(iter(self._accounts))]
            for _, reached in step_account(account, statement):
                run = self._runs.read(reached.run_id)
                if run is not None:
                    found += self._apply(run, reached, reached.at)
        return found

    def _apply(self, run: RunState, event: Event, at_ms: int | None) -> list[Decision]:
        try:
            decisions = self._engine.apply(run, event, at_ms)
        except BaseException:
            self._runs.drop()
            raise
        self._runs.close(event.run_id, run)
        return decisions
