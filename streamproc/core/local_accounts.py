"""The accounts of one process: what `scan` and `Monitor` have in place of the worker's spend topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from streamproc.core.accounts import Account, step_account
from streamproc.core.charges import statements

if TYPE_CHECKING:
    from streamproc.core.charges import Charge
    from streamproc.core.decision import Decision
    from streamproc.core.engine import Engine
    from streamproc.core.run_state import RunState
    from streamproc.model.wire import Event

ACCOUNTS_MAX: Final = 100_000  # accounts kept; past it, the one that was silent for the longest time goes


class LocalAccounts:
    """Steps runs, and their accounts right after the turn that charged them.

    `run_of` gives the state of a run that an account speaks to, or None where it is not known any more.
    """

    def __init__(self, engine: Engine, run_of: Callable[[str], RunState | None]) -> None:
        self._engine = engine
        self._run_of = run_of
        self._accounts: dict[str, Account] = {}
        self._booked = 0
        self._charges: list[Charge] = []
        engine.charges = self._charges

    def step(self, run: RunState, event: Event, at_ms: int | None) -> list[Decision]:
        """What `Engine.step` says, and then what the accounts lead to, for this run and for others."""
        self._booked += 1
        self._engine.place = self._booked
        decisions = self._engine.step(run, event, at_ms)
        if self._charges:
            decisions = decisions + self._settle()
        return decisions

    def _settle(self) -> list[Decision]:
        found: list[Decision] = []
        due = statements(self._charges, 0)
        self._charges.clear()
        for statement in due:
            account = self._accounts.pop(statement.account, None) or Account()
            self._accounts[statement.account] = account
            if len(self._accounts) > ACCOUNTS_MAX:
                del self._accounts[next(iter(self._accounts))]
            for _, reached in step_account(account, statement):
                run = self._run_of(reached.run_id)
                if run is not None:
                    found += self._engine.step(run, reached, reached.at)
        return found
