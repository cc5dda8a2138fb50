"""Accounts within one process: `scan` and `Monitor` use them instead of the worker's spend topic."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from streamproc.core.account_names import tree_name
from streamproc.core.accounts import Account, step_account
from streamproc.core.charges import statements
from streamproc.core.scope import short_name
from streamproc.core.tree_step import refusal_of
from streamproc.model.wire import ModelCalled

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.core.charges import Charge
    from streamproc.core.decision import Decision
    from streamproc.core.kept_runs import KeptRuns
    from streamproc.core.local_providers import LocalProviders
    from streamproc.core.session_tree import TreeEntry, TreeRules
    from streamproc.model.wire import Event

ACCOUNTS_MAX: Final = 100_000  # accounts kept; past it, the least recently charged one is dropped


class LocalAccounts:
    """Steps runs, and books charges on their accounts right after each event.

    An account notifies the runs that are still known. With `providers`, the calls of models reach their breakers. Where
    accounts are `stored`, one that was dropped is read again, and none is dropped before it is `written`.
    """

    def __init__(
        self,
        runs: KeptRuns[str],
        providers: LocalProviders | None = None,
        *,
        stored: Callable[[str], Account | None] | None = None,
    ) -> None:
        self._runs = runs
        self._stored = stored
        self._providers = providers
        self.known: dict[str, Account] = {}
        """The accounts, by name; the least recently charged one is the first."""
        self.changed: set[str] = set()
        """Accounts that were charged, for a caller that stores them and says so (`written`)."""
        self._steps = 0

    def step(self, event: Event, at_ms: int | None, position: int | None = None) -> list[Decision]:
        """Return the decisions on an event of a run, then those that the accounts cause for this run and others.

        `position` is that of the event in the caller's log; without one, events are counted.
        """
        self._steps += 1
        states = [] if self._providers is None else self._providers.step(event, at_ms)
        if type(event) is ModelCalled:
            return states
        outcome = self._runs.step(event.run_id, event, at_ms, self._steps if position is None else position)
        decisions = outcome.decisions + self._book(outcome.charges) if outcome.charges else outcome.decisions
        return decisions + states if states else decisions

    def spawn_refusal(self, session: str, entry: TreeEntry, rules: TreeRules, pending: int = 0) -> str:
        """Return why a session, whose runs show no proof, may not start a run now; empty if it may."""
        name = tree_name(short_name(session), 0)
        account = self.known.get(name) or self._read(name)
        return "" if account is None or account.tree is None else refusal_of(account.tree, entry, rules, pending)

    def written(self) -> None:
        """Drop accounts until few enough are left: what has changed was stored."""
        self.changed.clear()
        while len(self.known) > ACCOUNTS_MAX:
            del self.known[next(iter(self.known))]

    def _read(self, name: str) -> Account | None:
        return None if self._stored is None else self._stored(name)

    def _book(self, charges: list[Charge]) -> list[Decision]:
        found: list[Decision] = []
        due = deque(statements(charges, 0))
        while due:
            statement = due.popleft()
            account = self.known.pop(statement.account, None) or self._read(statement.account) or Account()
            self.known[statement.account] = account
            self.changed.add(statement.account)
            if self._stored is None and len(self.known) > ACCOUNTS_MAX:
                oldest = next(iter(self.known))
                del self.known[oldest]
                self.changed.discard(oldest)
            for _, reached in step_account(account, statement):
                if self._runs.read(reached.run_id) is not None:
                    outcome = self._runs.step(reached.run_id, reached, reached.at)
                    found += outcome.decisions
                    due += statements(outcome.charges, 0)  # a halt of the run concerns its tree
        return found
