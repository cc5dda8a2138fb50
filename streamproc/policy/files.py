"""Policy files: YAML, read with the line of every value, so that each mistake is told with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamproc.detectors import BY_CODE
from streamproc.errors import InvalidPolicy, Problem, shown
from streamproc.model.budgets import budget_value, find_budget
from streamproc.model.controls import Action
from streamproc.policy.boards import BoardSetting, GuardSetting, complaints, laid_over
from streamproc.policy.prices import PRICE_REMEDY, price_problems

ON_STALL: Final = ("pause", "switch_to_interactive", "spawn_reviewer", "retry_with_new_provider")
LIMIT_MAX: Final = 1_000_000_000  # a thousand USD in micro-USD; beyond it somebody has mistaken the unit
STANDARD: Final = "standard"  # the preset that is below all others
DEPTH_MAX: Final = 8  # levels of a file; five have a meaning, and a YAML anchor may contain itself

Lines = dict[tuple[str | int, ...], int]


class Overlay(BaseModel):
    """What one layer of a policy says; all of it optional."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    detectors: dict[str, bool | dict[str, Any]] = {}
    budgets: dict[str, Any] = {}
    actions: dict[str, Action] = {}
    on_stall: str | None = None
    lower_is_better: list[str] | None = None
    board: BoardSetting | None = None
    prices: dict[str, dict[str, Any]] = {}


class UserOverlay(BaseModel):
    """What a policy says of one user: the budgets of that user over all runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budgets: dict[str, Any] = {}

    @property
    def overlay(self) -> Overlay:
        """The same as any other layer says it."""
        return Overlay(budgets=self.budgets)


class Layer(Overlay):
    """A whole policy file, or a preset."""

    name: str = Field("policy", min_length=1, max_length=100)
    version: str | int | float = "1"
    presets: list[str] = []
    workflows: dict[str, Overlay] = {}
    tenants: dict[str, Overlay] = {}
    tiers: dict[str, Overlay] = {}
    users: dict[str, UserOverlay] = {}

    def overlays(self) -> Iterator[tuple[tuple[str, ...], Overlay]]:
        """Everything that is said in this layer, with where it stands."""
        yield (), self
        for section in ("workflows", "tenants", "tiers"):
            for name, overlay in getattr(self, section).items():
                yield (section, name), overlay
        for name, own in self.users.items():
            yield ("users", name), own.overlay


def preset_names() -> list[str]:
    """The presets that are shipped."""
    folder = resources.files("streamproc.policy") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


@cache
def read_preset(name: str) -> Layer:
    """A shipped preset, read once: every policy stands on one. Raises `InvalidPolicy` where there is none of that
    name."""
    if name not in preset_names():
        problem = Problem("presets", f"no preset {shown(name)}", f"there are: {', '.join(preset_names())}")
        raise InvalidPolicy([problem])
    text = (resources.files("streamproc.policy") / "presets" / f"{name}.yaml").read_text("utf-8")
    return read_layer(text, f"preset {name}")


def read_mapping(said: Mapping[str, Any]) -> Layer:
    """What a policy file would say, as a mapping. Raises `InvalidPolicy` with every mistake."""
    try:
        text = yaml.safe_dump(dict(said), sort_keys=False)
    except yaml.YAMLError:
        problem = Problem("policy", "holds what no policy file can say", "use texts, numbers, lists and mappings")
        raise InvalidPolicy([problem]) from None
    return read_layer(text, "policy")


def read_layer(text: str, place: str) -> Layer:
    """A policy file's text. Raises `InvalidPolicy` with every mistake and its line."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # a date or a number that is none is a ValueError
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}" if mark else place
        raise InvalidPolicy([Problem("policy", f"not YAML: {getattr(error, 'problem', error)}", place=where)]) from None
    except RecursionError:
        remedy = "five levels have a meaning; look for brackets that are not closed"
        raise InvalidPolicy([Problem("policy", "is nested too deeply", remedy, place)]) from None
    if not isinstance(data, dict):
        raise InvalidPolicy([Problem("policy", "expected a mapping of settings", "see a preset", place=place)])
    lines: Lines = {}
    twice: list[tuple[str | int, ...]] = []
    _note_lines(node, (), lines, twice)
    problems = [Problem(_dotted(path), "is set twice", "keep one", _at(path, lines, place)) for path in twice]
    layer = None
    try:
        layer = Layer.model_validate(data)
    except ValidationError as error:
        problems += [_problem(item, lines, place) for item in error.errors(include_url=False)]
    problems += _check_meaning(layer or Layer.model_validate(_salvage(data)), lines, place)
    if problems or layer is None:
        raise InvalidPolicy(sorted(problems, key=lambda problem: _line_of(problem.place)))
    return layer


def _line_of(place: str) -> int:
    number = place.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _salvage(value: Any, path: tuple[str, ...] = ()) -> Any:
    """What can still be checked of a file with mistakes, part by part, so that all of them are told at once."""
    if _fits(value, path):
        return value
    if not isinstance(value, dict) or len(path) > DEPTH_MAX:
        return None
    parts = {key: _salvage(part, (*path, key)) for key, part in value.items()}
    kept = {key: part for key, part in parts.items() if part is not None}
    return kept if _fits(kept, path) else None


def _fits(value: Any, path: tuple[str, ...]) -> bool:
    for key in reversed(path):
        value = {key: value}
    try:
        Layer.model_validate(value)
    except ValidationError:
        return False
    return True


def _note_lines(node: Any, path: tuple[str | int, ...], lines: Lines, twice: list[tuple[str | int, ...]]) -> None:
    """Note the line of every value; keys that stand twice in one mapping go to `twice`."""
    if node is None or len(path) > DEPTH_MAX:
        return
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(key.value))
            if below in lines:
                twice.append(below)
            lines[below] = key.start_mark.line + 1
            _note_lines(value, below, lines, twice)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _note_lines(value, (*path, index), lines, twice)


def _at(path: tuple[str | int, ...], lines: Lines, place: str) -> str:
    while path and path not in lines:
        path = path[:-1]
    return f"{place}:{lines.get(path, 1)}"


def _problem(item: Any, lines: Lines, place: str) -> Problem:
    path = tuple(part for part in item["loc"] if part not in _BRANCHES)
    if item["type"] == "extra_forbidden":
        known = _known(path)
        return Problem(_dotted(path), "unknown setting", f"there are: {', '.join(known)}", _at(path, lines, place))
    return Problem(_dotted(path), f"{item['msg']}, got {shown(item['input'])}", place=_at(path, lines, place))


_BRANCHES: Final = ("bool", "dict[str,any]")  # pydantic's words for choices


def _known(path: tuple[str | int, ...]) -> list[str]:
    """The settings that there are in the mapping that this path leads into."""
    if "board" in path:
        model = GuardSetting if "guards" in path else BoardSetting
        return [field.alias or name for name, field in model.model_fields.items()]
    return [name for name in Layer.model_fields if len(path) == 1 or name in Overlay.model_fields]


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path)) or "policy"


def _check_meaning(layer: Layer, lines: Lines, place: str) -> list[Problem]:
    """What types cannot say: codes, limits, budgets and presets that exist, values within bounds."""
    found: list[tuple[tuple[str | int, ...], str, str]] = []
    known = preset_names()
    for index, name in enumerate(layer.presets):
        if name not in known:
            found.append((("presets", index), f"no preset {shown(name)}", f"there are: {', '.join(known)}"))
    for name, own in layer.users.items():
        for budget in own.budgets:
            if not budget.replace("_", "").lower().startswith("maxuser"):
                what = f"{budget} is no budget of a user"
                found.append((("users", name, "budgets", budget), what, "there are: maxUserCostUsdPerDay and its like"))
    for path, overlay in layer.overlays():
        found += [((*path, *rest), what, remedy) for rest, what, remedy in _check_overlay(overlay)]
        found += [((*path, "prices", *rest), what, PRICE_REMEDY) for rest, what in price_problems(overlay.prices)]
        found += [((*path, "board", *rest), what, remedy) for rest, what, remedy in _check_board(overlay, layer)]
    return [Problem(_dotted(path), what, remedy, _at(path, lines, place)) for path, what, remedy in found]


def _check_board(overlay: Overlay, layer: Layer) -> list[tuple[tuple[str, ...], str, str]]:
    """What is wrong with a board; one without a path changes the one below it, at last that of the first preset."""
    if overlay.board is None:
        return []
    below: dict[str, Any] = {}
    if overlay.board.path is None:
        below = laid_over(laid_over({}, read_preset(STANDARD).board), layer.board)
    return list(complaints(laid_over(below, overlay.board)))


def _check_overlay(overlay: Overlay) -> Iterator[tuple[tuple[str, ...], str, str]]:
    if overlay.on_stall is not None and overlay.on_stall not in ON_STALL:
        yield ("on_stall",), f"{shown(overlay.on_stall)} is not a choice", f"use one of {', '.join(ON_STALL)}"
    for name, value in overlay.budgets.items():
        try:
            budget = find_budget(name)
            amount = budget_value(budget, value)
            if budget.ceiling is not None and amount > budget.ceiling:
                yield ("budgets", name), f"{value} is above the ceiling {budget.ceiling}", "no policy can lift it"
        except (KeyError, ValueError) as error:
            yield ("budgets", name), str(error.args[0]), ""
    for code in overlay.actions:
        if code not in BY_CODE:
            yield ("actions", code), "no such detector", f"there are: {', '.join(BY_CODE)}"
    for code, setting in overlay.detectors.items():
        if code not in BY_CODE:
            yield ("detectors", code), "no such detector", f"there are: {', '.join(BY_CODE)}"
        elif isinstance(setting, dict):
            yield from _check_limits(code, setting)
        elif not setting and (cap := getattr(BY_CODE[code], "HARD_CAP", None)):
            yield ("detectors", code), f"cannot be turned off: it holds the hard cap of {cap}", "leave the line out"


def _check_limits(code: str, setting: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    known = [field.name for field in fields(BY_CODE[code].Limits)]
    for name, value in setting.items():
        path = ("detectors", code, name)
        if name not in known:
            yield path, "unknown limit", f"{code} has: {', '.join(known) or 'no limits of its own'}"
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LIMIT_MAX:
            yield path, f"expected a whole number from 0 (off) to {LIMIT_MAX}, got {shown(value)}", ""


def read_policy_file(path: Path) -> Layer:
    """A policy file from disk. Raises `InvalidPolicy`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"give a file, or one of the presets {', '.join(preset_names())}"
        raise InvalidPolicy([Problem("policy", f"cannot be read: {error}", remedy, str(path))]) from None
    return read_layer(text, str(path))
