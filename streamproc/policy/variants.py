"""Variants of a policy: single settings changed, one by one or as a grid, by the names that a policy file has.

A setting is addressed as `policy show` prints it, with dots: ``detectors.LOOP003.halt``, ``budgets.maxSteps``,
``workflows.nightly.detectors.LOOP003.halt``, ``on_stall``. A detector's code or a budget's name alone is enough for
those of the whole policy: ``LOOP003.halt``, ``maxSteps``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import yaml

from streamproc.detectors import DETECTORS
from streamproc.errors import InvalidPolicy, Problem, shown
from streamproc.model.budgets import find_budget
from streamproc.policy.files import Layer, preset_names, read_mapping
from streamproc.policy.layers import Policy
from streamproc.policy.plugins import Plugins

COMBINATIONS_MAX: Final = 200
RANGE: Final = re.compile(r"(-?\d+)\.\.(-?\d+)\Z")
FORM: Final = "write CODE.key=2..5, CODE.key=2,4,8 or budgets.NAME=10,20"

Settings = Mapping[str, Any]
"""Values by the dotted names of their settings."""


class Sweep(NamedTuple):
    """A setting, and the values that it takes."""

    name: str
    values: tuple[Any, ...]


def read_sweep(text: str) -> Sweep:
    """Read ``LOOP003.halt=2..5`` or ``LOOP003.halt=2,4,8``. Raises `InvalidPolicy`."""
    name, equals, values = text.partition("=")
    if not equals or not name.strip() or not values.strip():
        raise _mistake(text, "expected a setting and its values", FORM)
    if (found := RANGE.match(values.strip())) is None:
        return Sweep(_whole_name(name.strip()), tuple(_value(text, one) for one in values.split(",")))
    first, last = int(found[1]), int(found[2])
    if last < first:
        raise _mistake(text, f"a range from {first} down to {last} is empty", f"write {last}..{first}")
    if last - first >= COMBINATIONS_MAX:
        raise _mistake(text, f"{last - first + 1} values, more than {COMBINATIONS_MAX}", "give single values: 2,4,8")
    return Sweep(_whole_name(name.strip()), tuple(range(first, last + 1)))


def grid(sweeps: Sequence[Sweep], policies: int = 1) -> list[Settings]:
    """Return each combination of the values. Raises `InvalidPolicy` for more than 200, over all policies together."""
    count = policies
    for sweep in sweeps:
        count *= len(sweep.values)
    if sweeps and count > COMBINATIONS_MAX:
        remedy = "give fewer values, such as 2,4,8, or sweep one setting after the other"
        raise _mistake("--set", f"{count} combinations, more than {COMBINATIONS_MAX}", remedy)
    names = [sweep.name for sweep in sweeps]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(one.values for one in sweeps))]


def variant(policy: Policy, settings: Settings) -> Policy:
    """Return a policy with settings changed, as if its file had them. Raises `InvalidPolicy`."""
    if not settings:
        return policy
    tree: dict[str, Any] = {"name": variant_name(policy, settings), "version": policy.version}
    for name, value in settings.items():
        _plant(tree, name, value)
    # A variant may not change what a preset below it has locked.
    tree["presets"] = [layer.name for layer in policy.layers if layer.name in preset_names()]
    plugins = Plugins()
    plugins.by_code.update({plugin.code: plugin for plugin in policy.plugins})
    try:
        layer: Layer = read_mapping(tree, plugins)
    except InvalidPolicy as error:
        raise InvalidPolicy([replace(problem, place="--set") for problem in error.problems]) from None
    return Policy([*policy.layers, layer], policy.plugins)


def variant_name(policy: Policy, settings: Settings) -> str:
    """Return ``standard LOOP003.halt=4``."""
    own = " ".join(f"{short_name(name)}={value}" for name, value in settings.items())
    return f"{policy.name} {own}"[:100]


def short_name(name: str) -> str:
    """Return the name of a setting as people write it."""
    return name.removeprefix("detectors.").removeprefix("budgets.")


def _whole_name(name: str) -> str:
    head = name.split(".", 1)[0]
    if head in DETECTORS or "/" in head:
        return f"detectors.{name}"
    if "." not in name:
        try:
            find_budget(name)
        except KeyError:
            return name
        return f"budgets.{name}"
    return name


def _value(text: str, written: str) -> Any:
    try:
        value = yaml.safe_load(written)
    except yaml.YAMLError:
        value = None
    if value is None or isinstance(value, list | dict):
        raise _mistake(text, f"{shown(written)} is no value", FORM)
    return value


def _plant(tree: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".")
    place = tree
    for part in path:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise _mistake(name, f"{part} is set as a whole by another --set", "set one of the two")
    place[last] = value


def _mistake(field: str, what: str, remedy: str) -> InvalidPolicy:
    return InvalidPolicy([Problem(field, what, remedy)])
