"""Detectors with a bug: each of them raises now and then, at turns that follow from the log alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamproc.core import kind
from streamproc.core.engine import Engine
from streamproc.policy import Policy

if TYPE_CHECKING:
    from streamproc.core.rules import Rules
    from streamproc.core.view import View

PLANT: Final = "from tests.faults.bug import plant; plant()"
"""What a worker is told to run first."""


class Buggy:
    """A detector that raises at every so many turns of a run."""

    def __init__(self, honest: Any, every: int, raised: list[str]) -> None:
        self._honest = honest
        self._every = every
        self._raised = raised

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def check(self, view: View, limits: Any) -> Any:
        """As the honest one, if at all."""
        if view.run.turns % self._every == 0:
            self._raised.append(self._honest.code)
            raise ZeroDivisionError
        return self._honest.check(view, limits)


class BuggyPolicy:
    """A policy whose detectors have a bug; `raised` holds the code of each one that raised, once for each time.

    But for those of accounts: at which turn an account speaks to its run is chance.
    """

    def __init__(self, honest: Policy) -> None:
        self._honest = honest
        self.raised: list[str] = []

    def rules(self, workflow: str, tenant: str, tier: str) -> Rules:
        """The rules for a scope."""
        rules = self._honest.rules(workflow, tenant, tier)
        rules._detectors = tuple(
            (Buggy(detector, 2 + place % 5, self.raised) if not detector.kinds & kind.ACCOUNT else detector, limits)
            for place, (detector, limits) in enumerate(rules._detectors)
        )
        return rules

    def engine(self) -> Engine:
        """An engine under this policy."""
        return Engine(self)


def plant() -> None:
    """Let every policy of this process have the bug."""
    honest = Policy.engine

    def engine(policy: Policy) -> Engine:
        made = BuggyPolicy(policy).engine()
        made.on_fault = honest(policy).on_fault
        return made

    Policy.engine = engine  # type: ignore[method-assign]
