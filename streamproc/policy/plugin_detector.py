"""A detector of others, as the engine calls it: its findings are checked.

The engine counts what is wrong as a fault of the plug-in, as if it had raised (`Engine.faults`): its finding is
dropped, its memory stays as it was, and all other detectors decide as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from math import isfinite
from typing import Any, Final, get_args

import msgspec

from streamproc.core.deadlines import Due
from streamproc.core.decision import Finding, Level
from streamproc.core.marks import BUDGET_KINDS, KINDS, NEVER
from streamproc.core.run_state import RunState
from streamproc.core.scope import Scope
from streamproc.core.view import View
from streamproc.detectors.base import RuleSettings
from streamproc.model.controls import Action, ControlType, HaltReason, Match, TerminalStatus
from streamproc.model.redaction import redact

MESSAGE_MAX: Final = 500  # characters
DETAILS_MAX: Final = 16
DETAIL_NAME_MAX: Final = 64  # characters
DETAIL_MAX: Final = 256  # characters
EXACT_MAX: Final = 2**53  # a reader in JavaScript has no larger whole numbers

_OURS: Final = {"run.resumed", "fleet.state", "notification", "decision.recorded"}
_CHOICES: Final[dict[str, frozenset[str]]] = {
    "reason": frozenset(get_args(HaltReason)),
    "status": frozenset(("", *get_args(TerminalStatus))),
    "task_status": frozenset(("", *get_args(TerminalStatus))),
    "type": frozenset(("", *get_args(ControlType))) - _OURS,
    "action": frozenset(("", *get_args(Action))),
}


class PluginDetector:
    """A plug-in: the detector as it was written, its version, and `check` as the engine needs it.

    Its limits concern its own `check` alone: it sets nothing else in the rules, and a policy can turn it off.
    """

    hard_cap = 0
    gated = ""

    def __init__(self, detector: Any, version: str) -> None:
        self.code: str = detector.code
        self.name: str = detector.name
        self.kinds: int = detector.kinds
        self.evidence: tuple[str, ...] = tuple(getattr(detector, "evidence", ()))
        self.Limits: Any = detector.Limits
        self.version = version
        self.written = detector
        if hasattr(detector, "due"):
            self.due = self._due
        if hasattr(detector, "marks"):
            self.marks = self._marks
        if hasattr(detector, "budget_marks"):
            self.budget_marks = self._budget_marks

    def settings(self, _: Any) -> RuleSettings:
        return {}

    def _due(self, run: RunState, budgets: Mapping[str, int], limits: Any) -> list[Due]:
        """Return its deadlines. Raises as `check` does."""
        found = list(self.written.due(run, budgets, limits))
        if wrong := [one for one in found if not isinstance(one, Due) or one.about != self.code]:
            raise TypeError(f"due returned {wrong[0]!r}, and no Due about {self.code}")
        return [msgspec.convert(tuple(one), Due) for one in found]  # raises for fields of other types

    def _marks(self, limits: Any) -> dict[str, int]:
        return _known(lambda: self.written.marks(limits), KINDS)

    def _budget_marks(self, limits: Any, budgets: Mapping[str, int], scope: Scope) -> dict[str, int]:
        given = _known(lambda: self.written.budget_marks(limits, budgets, scope), BUDGET_KINDS)
        return given or {name: 0 for name, bit in BUDGET_KINDS.items() if self.kinds & bit}

    def check(self, view: View, limits: Any) -> tuple[Finding, ...] | None:
        """Ask the plug-in, and return its findings as they may be published. Raises what the plug-in raises, and
        `ValueError` or `TypeError` for a finding that readers could not read."""
        found = self.written.check(view, limits)
        several = () if found is None else found if isinstance(found, tuple) else (found,)
        return tuple([self._checked(one, view) for one in several]) or None

    def _checked(self, finding: Any, view: View) -> Finding:
        """Return a finding that every reader can read."""
        if not isinstance(finding, Finding):
            raise TypeError(f"check returned {type(finding).__name__}, and no Finding")
        evidence = msgspec.structs.replace(finding.evidence, details=_bounded(finding.evidence.details))
        found = msgspec.structs.replace(finding, message=redact(_text(finding.message), MESSAGE_MAX), evidence=evidence)
        found = msgspec.convert(msgspec.to_builtins(found), Finding)  # raises for fields of other types
        if found.code != self.code:
            raise ValueError(f"a finding of {self.code} has the code {found.code}")
        for name, choices in _CHOICES.items():
            if (value := getattr(found, name)) not in choices:
                raise ValueError(f"the {name} of a finding is {value!r}; it can be {', '.join(sorted(choices))}")
        if found.level == Level.HALT and not found.status:
            raise ValueError("a halt has a status, in which the run ends")
        if found.evidence.match not in (None, *get_args(Match)):
            raise ValueError(f"the match of its evidence is {found.evidence.match!r}; it is one of {get_args(Match)}")
        if not -1 <= found.onset <= view.index:
            raise ValueError(f"the onset {found.onset} is no turn of the run")
        return found


def _known(marks: Callable[[], Any], names: Container[str]) -> dict[str, int]:
    """Return the marks of a plug-in; none if any is wrong, so it is asked from the first."""
    try:
        given = dict(marks())
    except Exception:  # noqa: BLE001 (foreign code)
        return {}
    valid = all(name in names and type(value) is int and 0 <= value <= NEVER for name, value in given.items())
    return given if valid else {}


def _bounded(details: Any) -> dict[str, str | int | float] | None:
    """Return facts for the evidence, within their bounds: texts are cut and redacted. Raises `TypeError`."""
    if not details:
        return None
    if len(details) > DETAILS_MAX:
        raise ValueError(f"{len(details)} details; the limit is {DETAILS_MAX}")
    return {_text(name)[:DETAIL_NAME_MAX]: _value(name, value) for name, value in details.items()}


def _value(name: str, value: Any) -> str | int | float:
    if isinstance(value, str):
        return redact(_text(value), DETAIL_MAX)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"the detail {name} is {type(value).__name__}, and no text or number")
    if not isfinite(value) or abs(value) > EXACT_MAX:
        return str(value)
    return value


def _text(text: str) -> str:
    """Return a text that JSON can contain."""
    return text.encode("utf-8", "replace").decode()
