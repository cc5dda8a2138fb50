"""The values of a policy that counted for a run, and where each of them stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamproc.model.budgets import USD_MICRO, find_budget
from streamproc.policy import Policy
from streamproc.policy.files import Layer, preset_names, read_preset
from streamproc.policy.places import Lines, lines_of
from streamproc.report.model import PolicyValue

RUN_VALUE: Final = "run.started"
_SECTIONS: Final = ("workflows", "tenants", "tiers", "users")


class PolicyScope(NamedTuple):
    """Who a run belongs to."""

    workflow: str = ""
    tenant: str = ""
    tier: str = ""
    user: str = ""


class PolicyPlaces:
    """Finds the line of each value of a policy. `source` is what the policy was loaded from, as for `load_policy`."""

    def __init__(self, policy: Policy, source: Any = None) -> None:
        self._policy = policy
        self._texts = [_text_of(layer, source) for layer in policy.layers]
        self._lines: dict[int, Lines] = {}

    def values(self, codes: Iterable[str], scope: PolicyScope, declared: Mapping[str, int]) -> Iterator[PolicyValue]:
        """Yield the limits of these detectors, their actions, and the budgets in force; `declared` are the run's."""
        found = self._policy.effective(scope.workflow, scope.tenant, scope.tier, scope.user)
        for code in dict.fromkeys(codes):
            for name, value in (found["detectors"].get(code) or {}).items():
                yield PolicyValue(
                    name=f"{code}.{name}", value=str(value), place=self._at(scope, "detectors", code, name)
                )
            if code in found["actions"]:
                place = self._at(scope, "actions", code)
                yield PolicyValue(name=f"actions.{code}", value=found["actions"][code], place=place)
        yield PolicyValue(name="on_stall", value=found["on_stall"], place=self._at(scope, "on_stall"))
        for name, limit in (found["budgets"] | declared).items():
            shown = f"{limit / USD_MICRO:g} USD" if find_budget(name).unit == "micro_usd" else str(limit)
            place = RUN_VALUE if name in declared else self._at(scope, "budgets", name)
            yield PolicyValue(name=name, value=shown, place=place)

    def _at(self, scope: PolicyScope, *path: str) -> str:
        """Return the place of a value in the last layer that sets it, such as `policy.yaml:12`; empty: in none."""
        named = [()] + [(section, name) for section, name in zip(_SECTIONS, scope, strict=True) if name]
        for prefix in reversed(named):
            for number in reversed(range(len(self._policy.layers))):
                lines = self._lines_of(number)
                line = lines.get((*prefix, *path)) or _budget_line(lines, prefix, path)
                if line:
                    return f"{self._texts[number][0]}:{line}"
        return ""

    def _lines_of(self, number: int) -> Lines:
        if number not in self._lines:
            text = self._texts[number][1]
            self._lines[number] = lines_of(text) if text else {}
        return self._lines[number]


def _budget_line(lines: Lines, prefix: tuple[str, ...], path: tuple[str, ...]) -> int | None:
    """Return the line of a budget that a file calls by another of its names."""
    if path[0] != "budgets":
        return None
    for at, line in lines.items():
        if at[:-1] == (*prefix, "budgets") and find_budget(str(at[-1])).name == path[1]:
            return line
    return None


def _text_of(layer: Layer, source: Any) -> tuple[str, str]:
    """Return the name and the text of the file of a layer; without a file, an empty text."""
    if layer.name in preset_names() and layer == read_preset(layer.name):
        folder = resources.files("streamproc.policy") / "presets"
        return f"preset {layer.name}", (folder / f"{layer.name}.yaml").read_text("utf-8")
    if isinstance(source, (str, Path)):
        try:
            return str(source), Path(source).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return str(source), ""
    return "policy", ""
