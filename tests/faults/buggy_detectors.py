"""Detectors with a bug: each raises at certain turns, which depend only on the log."""

from __future__ import annotations

from copy import copy
from typing import Any, Final

from streamproc.detectors.base import View, kind
from streamproc.policy import Policy
from tests.feeding import Feed

INSTALL: Final = "from tests.faults.buggy_detectors import install; install()"
"""The code that a worker runs first."""


class Buggy:
    """A detector that raises at every n-th turn of a run."""

    def __init__(self, original: Any, every: int, raised: list[str]) -> None:
        self._original = original
        self._every = every
        self._raised = raised

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def check(self, view: View, limits: Any) -> Any:
        """Raise at every n-th turn, else call the original."""
        if view.run.turns % self._every == 0:
            self._raised.append(self._original.code)
            raise ZeroDivisionError
        return self._original.check(view, limits)


class BuggyPolicy:
    """A policy whose detectors raise. `raised` lists the code of the detector, once for each time.

    Account detectors are excluded: the turn at which an account's breach reaches its run is random.
    """

    def __init__(self, original: Policy) -> None:
        self._original = original
        self.raised: list[str] = []

    def rules(self, workflow: str, tenant: str, tier: str) -> Any:
        """Return the rules for a scope."""
        rules = copy(self._original.rules(workflow, tenant, tier))  # other policies of the process share them
        rules._by_kinds = {}
        rules._detectors = tuple(
            (Buggy(detector, 2 + place % 5, self.raised) if not detector.kinds & kind.ACCOUNT else detector, limits)
            for place, (detector, limits) in enumerate(rules._detectors)
        )
        return rules

    def engine(self) -> Any:
        """Return an engine under this policy."""
        return Feed(self).engine


def install() -> None:
    """Give every policy of this process the bug."""
    original = Policy.engine

    def engine(policy: Policy) -> Any:
        made = BuggyPolicy(policy).engine()
        made.on_fault = original(policy).on_fault
        return made

    Policy.engine = engine  # type: ignore[method-assign]
