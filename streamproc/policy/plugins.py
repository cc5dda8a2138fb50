"""Detectors of others: read, checked, and named in a policy's content hash.

A plug-in comes from `load_policy(..., detectors=[...])`, or from the entry-point group `streamproc.detectors` if the
policy file names it under `plugins`. An installed package whose entry point no policy names does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from streamproc.detectors import DETECTORS
from streamproc.detectors.base import Detector
from streamproc.errors import InvalidPolicy, Problem, shown
from streamproc.model.controls import ControlEvidence
from streamproc.policy.plugin_detector import PluginDetector

GROUP: Final = "streamproc.detectors"
CODE: Final = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")
CODE_MAX: Final = 32  # characters: a run's state keeps it beside the memory of the plug-in
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
KINDS_END: Final = 1 << 31  # bits of `core.kind` are below it
ATTRIBUTES: Final = ("code", "name", "kinds", "Limits", "check")
GUIDE: Final = "see docs/extending.md"

Mistake = tuple[str, str]  # what is wrong, and the remedy


class Plugins:
    """The plug-ins of one policy, in the order in which they are asked."""

    def __init__(self, detectors: Iterable[Any] = ()) -> None:
        """Take detectors of the caller. Raises `InvalidPolicy` with every mistake."""
        self.by_code: dict[str, PluginDetector] = {}
        problems = [
            Problem(f"detectors.{index}", what, remedy, "load_policy")
            for index, detector in enumerate(detectors)
            for what, remedy in self._add(detector, "")
        ]
        if problems:
            raise InvalidPolicy(problems)

    @property
    def catalogue(self) -> Mapping[str, Detector | PluginDetector]:
        """All detectors by code, ours and theirs."""
        return DETECTORS | self.by_code

    def enable(self, name: str) -> list[Mistake]:
        """Load the plug-in with this entry-point name, and return the mistakes."""
        found = list({(one.value, _owner(one)): one for one in entry_points(group=GROUP, name=name)}.values())
        if not found:
            installed = ", ".join(sorted({one.name for one in entry_points(group=GROUP)})) or "none"
            remedy = f"install the package that has it, where this program runs; installed: {installed}"
            return [(f"no plug-in {shown(name)} is installed", remedy)]
        if len(found) > 1:
            owners = " and ".join(sorted(map(_owner, found)))
            return [(f"{shown(name)} is a plug-in of {owners}", "uninstall all but one of them")]
        [entry] = found
        try:
            detector = entry.load()
        except Exception as error:  # noqa: BLE001 (whatever the import of foreign code raises)
            what = f"the plug-in {shown(name)} cannot be imported: {type(error).__name__}: {error}"
            return [(what, f"correct {entry.value}, or install {_owner(entry)} again")]
        return self._add(detector, entry.dist.version if entry.dist is not None else "")

    def _add(self, detector: Any, version: str) -> list[Mistake]:
        """Take a detector, or the class of one, and return what is wrong with it."""
        if isinstance(detector, type):
            try:
                detector = detector()
            except Exception as error:  # noqa: BLE001 (foreign code)
                what = f"{detector.__name__}() raises {type(error).__name__}: {error}"
                return [(what, "the class of a plug-in takes no arguments")]
        mistakes = _mistakes(detector)
        if not mistakes and detector.code in self.by_code:
            mistakes = [(f"the code {detector.code} is used twice", "give each plug-in a code of its own")]
        if not mistakes:
            self.by_code[detector.code] = PluginDetector(detector, getattr(detector, "version", version))
        return mistakes


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _mistakes(detector: Any) -> list[Mistake]:
    kind = type(detector).__name__
    missing = [name for name in ATTRIBUTES if not hasattr(detector, name)]
    if missing:
        return [(f"{kind} has no {', '.join(missing)}", f"a detector has {', '.join(ATTRIBUTES)}; {GUIDE}")]
    found: list[Mistake] = []
    code, name, kinds, version = detector.code, detector.name, detector.kinds, getattr(detector, "version", "")
    if not isinstance(code, str) or CODE.fullmatch(code) is None or len(code) > CODE_MAX:
        remedy = f"use NAMESPACE/NAME of lower-case letters, digits and hyphens, at most {CODE_MAX} characters"
        found.append((f"{kind}.code is {shown(code)}", f"{remedy}, such as acme/same-city"))
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        remedy = "use lower-case letters, digits and underscores, such as same_city"
        found.append((f"{kind}.name is {shown(name)}", remedy))
    if type(kinds) is not int or not 0 < kinds < KINDS_END:
        remedy = "join bits of streamproc.core.kind, such as kind.LONG for every turn"
        found.append((f"{kind}.kinds is {shown(kinds)}", remedy))
    if not callable(detector.check):
        found.append((f"{kind}.check is no method", f"write check(self, view, limits); {GUIDE}"))
    if not isinstance(version, str):
        found.append((f"{kind}.version is {shown(version)}", "use a text"))
    return found + _evidence_mistakes(kind, getattr(detector, "evidence", ())) + _limits_mistakes(kind, detector.Limits)


def _evidence_mistakes(kind: str, declared: Any) -> list[Mistake]:
    if not isinstance(declared, tuple):
        return [(f"{kind}.evidence is {shown(declared)}", 'use a tuple of names, such as ("count", "details")')]
    known = ControlEvidence.__struct_fields__
    return [
        (f"{kind}.evidence has {shown(name)}, which evidence does not have", f"use {', '.join(known)}")
        for name in declared
        if name not in known
    ]


def _limits_mistakes(kind: str, limits: Any) -> list[Mistake]:
    if not isinstance(limits, type) or not is_dataclass(limits) or not limits.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return [(f"{kind}.Limits is no frozen dataclass", "write @dataclass(frozen=True, slots=True) above it")]
    try:
        values = vars_of(limits())
    except Exception as error:  # noqa: BLE001 (foreign code)
        return [(f"{kind}.Limits() raises {type(error).__name__}: {error}", "give every field a valid default")]
    wrong = [name for name, value in values.items() if not isinstance(value, int | float | str)]
    return [(f"{kind}.Limits.{name} is no number, text or truth value", "give it such a default") for name in wrong]


def vars_of(limits: Any) -> dict[str, Any]:
    """Return the fields of a detector's limits with their values."""
    return {name: getattr(limits, name) for name in limits.__dataclass_fields__}
