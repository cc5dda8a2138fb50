"""What a preset locks: detectors that nothing on top of it turns off, and budgets that nothing on top of it raises.

A run cannot raise a locked budget either: not by declaring it, and not by naming a tier that has more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from streamproc.detectors import DETECTORS
from streamproc.model.budgets import budget_value, find_budget

Mistake = tuple[tuple[str, ...], str, str]  # path in the file, what is wrong, and the remedy


class LockedPart(Protocol):
    """A layer, or a part of one for a scope."""

    @property
    def detectors(self) -> dict[str, bool | dict[str, Any]]: ...

    @property
    def budgets(self) -> dict[str, Any]: ...


class Preset(Protocol):
    """A preset below a layer."""

    @property
    def name(self) -> str: ...

    @property
    def locked(self) -> list[str]: ...

    @property
    def budgets(self) -> dict[str, Any]: ...


def lock_problems(
    overlays: Iterable[tuple[tuple[str, ...], LockedPart]], presets: Sequence[Preset]
) -> Iterator[Mistake]:
    """Yield what the parts of a layer turn off, weaken or raise although a preset below it locks that."""
    parts = list(overlays)
    for preset in presets:
        most = {name: preset.budgets[name] for name in preset.locked if name in preset.budgets}
        for path, own in parts:
            for code in preset.locked:
                if code in own.detectors:
                    yield from _unlocked(code, own.detectors[code], (*path, "detectors", code), preset.name)
            for name, value in own.budgets.items():
                yield from _raised(name, value, most, (*path, "budgets", name), preset.name)


def _unlocked(code: str, setting: bool | dict[str, Any], path: tuple[str, ...], preset: str) -> Iterator[Mistake]:
    what = f"the preset {preset} keeps it on"
    if setting is False:
        yield path, f"cannot be turned off: {what}", "remove the line, or build on another preset"
    elif isinstance(setting, dict):
        usual = DETECTORS[code].Limits()
        for name, value in setting.items():
            most = getattr(usual, name, 0)
            if "halt" in name and most and isinstance(value, int) and not 0 < value <= most:
                yield (*path, name), f"cannot be {value}: {what}", f"use 1 to {most}, or build on another preset"


def _raised(name: str, value: Any, locked: Mapping[str, int], path: tuple[str, ...], preset: str) -> Iterator[Mistake]:
    limit, overridable = (
        (value.get("limit"), value.get("overridable")) if isinstance(value, Mapping) else (value, False)
    )
    try:
        budget = find_budget(name)
        amount = budget_value(budget, limit)
    except (KeyError, ValueError):
        return  # reported as such
    most = locked.get(budget.name)
    if most is None:
        return
    if overridable is True:
        yield path, f"the preset {preset} does not let a run raise it", "write the limit alone, without `overridable`"
    if amount > most:
        what = f"{amount} is above {most}, and the preset {preset} does not let it be raised"
        yield path, what, f"use at most {most}, or build on another preset"
