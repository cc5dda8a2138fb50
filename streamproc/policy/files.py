"""Policy files: YAML, read with the line of every value, so each mistake is reported with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamproc.errors import InvalidPolicy, Problem, shown
from streamproc.model.bounded_file import bounded_text
from streamproc.model.budgets import BUDGETS, budget_value, find_budget
from streamproc.model.controls import Action
from streamproc.model.yaml_text import UnboundedYAML, compose, data_of
from streamproc.policy.boards import BoardSetting, GuardSetting, board_problems, merge_board
from streamproc.policy.locks import lock_problems
from streamproc.policy.places import DEPTH_MAX, Places, position_of
from streamproc.policy.plugins import Plugins, vars_of
from streamproc.policy.prices import PRICE_REMEDY, price_problems
from streamproc.policy.providers import ProviderSetting, provider_problems

ON_STALL: Final = ("pause", "switch_to_interactive", "spawn_reviewer", "retry_with_new_provider")
LIMIT_MAX: Final = 1_000_000_000  # a thousand USD in micro-USD; a larger value has the wrong unit
STANDARD: Final = "standard"  # the preset below all others
TEXT_MAX: Final = 256  # characters of a limit of a plug-in that is a text


def _unset(value: Any) -> bool:
    """Whether a setting is not part of a policy's content hash: it is newer than policies that have a hash already."""
    return value is None


def _empty(value: Any) -> bool:
    return not value


# Twice as long as a run may work without a new status on the topic `runs` (`fleet.lost_runs.STATUS_EVERY_MS`).
MISTAKES_MAX: Final = 50  # that are reported of a file; a long one could have thousands, each of which takes 1 ms
LOST_AFTER_S_MIN: Final = 1_200


class BudgetSetting(NamedTuple):
    """A budget of a policy: the limit as written, and whether a run may raise it."""

    limit: Any
    overridable: bool = False


def budget_setting(value: Any) -> BudgetSetting:
    """Read a budget: a limit, or a mapping with `limit` and `overridable`. Raises `ValueError`."""
    if not isinstance(value, Mapping):
        return BudgetSetting(value)
    unknown = [str(name) for name in value if name not in BudgetSetting._fields]
    if unknown or "limit" not in value or not isinstance(value.get("overridable", False), bool):
        raise ValueError(f"expected a whole number, USD, or {{limit: LIMIT, overridable: true}}, got {shown(value)}")
    return BudgetSetting(value["limit"], value.get("overridable", False))


class Overlay(BaseModel):
    """The settings of one layer of a policy; all of them optional."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    detectors: dict[str, bool | dict[str, Any]] = {}
    budgets: dict[str, Any] = {}
    actions: dict[str, Action] = {}
    on_stall: str | None = None
    children: Literal["stop", "finish", "continue"] | None = Field(None, exclude_if=_unset)
    suggested_actions: list[Action] | None = Field(None, exclude_if=_unset)
    lower_is_better: list[str] | None = None
    board: BoardSetting | None = None
    prices: dict[str, dict[str, Any]] = {}


class TenantOverlay(Overlay):
    """The settings for one tenant, with the tier that the policy assigns to it."""

    tier: str | None = Field(None, exclude_if=_unset)


class UserOverlay(BaseModel):
    """The settings for one user: that user's tier, and budgets over all runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budgets: dict[str, Any] = {}
    tier: str | None = Field(None, exclude_if=_unset)

    @property
    def overlay(self) -> Overlay:
        """Return the same settings in the form of any other layer."""
        return Overlay(budgets=self.budgets)


class Layer(Overlay):
    """A whole policy file, or a preset."""

    name: str = Field("policy", min_length=1, max_length=100)
    version: str | int | float = "1"
    presets: list[str] = []
    plugins: list[str] = Field([], exclude_if=_empty)
    locked: list[str] = Field([], exclude_if=_empty)
    tier_from: Literal["policy", "run"] | None = Field(None, exclude_if=_unset)
    providers: ProviderSetting | None = Field(None, exclude_if=_unset)
    # They decide nothing, so they are no part of the policy's hash.
    lost_after_s: int | None = Field(None, ge=0, exclude=True)
    evidence_excerpts: bool | None = Field(None, exclude=True)
    workflows: dict[str, Overlay] = {}
    tenants: dict[str, TenantOverlay] = {}
    tiers: dict[str, Overlay] = {}
    users: dict[str, UserOverlay] = {}

    def overlays(self) -> Iterator[tuple[tuple[str, ...], Overlay]]:
        """Yield every overlay of this layer with its path in the file."""
        yield (), self
        for section in ("workflows", "tenants", "tiers"):
            for name, overlay in getattr(self, section).items():
                yield (section, name), overlay
        for name, own in self.users.items():
            yield ("users", name), own.overlay


def preset_names() -> list[str]:
    """Return the names of the presets in the package."""
    folder = resources.files("streamproc.policy") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


@cache
def read_preset(name: str) -> Layer:
    """Return a preset of the package, read once. Raises `InvalidPolicy` for an unknown name."""
    if name not in preset_names():
        problem = Problem("presets", f"no preset {shown(name)}", f"there are: {', '.join(preset_names())}")
        raise InvalidPolicy([problem])
    text = (resources.files("streamproc.policy") / "presets" / f"{name}.yaml").read_text("utf-8")
    return read_layer(text, f"preset {name}")


def read_mapping(settings: Mapping[str, Any], plugins: Plugins | None = None) -> Layer:
    """Read a policy from a mapping with the content of a file, as `read_layer` does.

    Raises `InvalidPolicy` with every mistake.
    """
    try:
        text = yaml.safe_dump(dict(settings), sort_keys=False)
    except yaml.YAMLError:
        what = "has a value that a policy file cannot contain"
        problem = Problem("policy", what, "use only texts, numbers, lists and mappings")
        raise InvalidPolicy([problem]) from None
    return read_layer(text, "policy", plugins)


def read_layer(text: str, place: str, plugins: Plugins | None = None) -> Layer:
    """Read the text of a policy file, and add the plug-ins that it names to `plugins`, those of the caller. Raises
    `InvalidPolicy` with its mistakes, `MISTAKES_MAX` at most, and their lines."""
    places = Places(place)
    try:
        node = compose(text)
        places.record(node)
        data = data_of(node)
    except UnboundedYAML as error:
        raise InvalidPolicy([places.problem_at(position_of(error.mark), error.what, error.remedy)]) from None
    except (yaml.YAMLError, ValueError) as error:  # an impossible date or number is a ValueError
        mark = getattr(error, "problem_mark", None)
        what = f"not YAML: {getattr(error, 'problem', error)}"
        remedy = "correct the syntax; `streamproc policy show standard` prints an example"
        problem = places.problem_at(position_of(mark), what, remedy) if mark else Problem("policy", what, remedy, place)
        raise InvalidPolicy([problem]) from None
    if not isinstance(data, dict):
        remedy = "write `setting: value` lines; `streamproc policy show standard` prints an example"
        raise InvalidPolicy([Problem("policy", "expected a mapping of settings", remedy, place)])
    layer, invalid = None, None
    try:
        layer = Layer.model_validate(data)
    except ValidationError as error:
        invalid = error
    found = _mistakes(layer, invalid, data, places, plugins or Plugins())
    problems = sorted(islice(found, MISTAKES_MAX), key=lambda problem: problem.line or 0)
    if next(found, None) is not None:
        problems.append(Problem("policy", f"has more mistakes than these {MISTAKES_MAX}", "correct them first", place))
    if problems or layer is None:
        raise InvalidPolicy(problems)
    return layer


def _mistakes(
    layer: Layer | None, invalid: ValidationError | None, data: Any, places: Places, plugins: Plugins
) -> Iterator[Problem]:
    """Yield every mistake of a file. Each is found when it is asked for: what was meant takes long to guess."""
    for path in places.duplicates:
        yield places.problem(path, "is set twice", "keep one")
    for item in invalid.errors(include_url=False) if invalid is not None else ():
        yield _problem(item, places)
    for path, what, remedy in _check_values(layer or Layer.model_validate(_valid_parts(data)), places, plugins):
        yield places.problem(path, what, remedy)


def _valid_parts(value: Any, path: tuple[str, ...] = ()) -> Any:
    """Return the parts of a file with mistakes that can still be checked, so all mistakes are reported at once."""
    if _fits(value, path):
        return value
    if not isinstance(value, dict) or len(path) > DEPTH_MAX:
        return None
    parts = {key: _valid_parts(part, (*path, key)) for key, part in value.items()}
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


def _problem(item: Any, places: Places) -> Problem:
    path = tuple(part for part in item["loc"] if part not in _BRANCHES)
    if item["type"] == "extra_forbidden":
        known = _known(path)
        if len(path) == 1 and (budget := get_close_matches(path[0], [one.name for one in BUDGETS], n=1)):
            return places.problem(path, "unknown setting", f"did you mean budgets.{budget[0]}?")
        return places.problem(path, "unknown setting", f"{_meant(path[-1], known)}there are: {', '.join(known)}")
    return places.problem(path, f"{item['msg']}, got {shown(item['input'])}")


_BRANCHES: Final = ("bool", "dict[str,any]")  # pydantic's names for the members of a union


def _known(path: tuple[str | int, ...]) -> list[str]:
    """Return the settings of the mapping that this path leads into."""
    if "board" in path:
        model = GuardSetting if "guards" in path else BoardSetting
        return [field.alias or name for name, field in model.model_fields.items()]
    if path[0] == "providers":
        return list(ProviderSetting.model_fields)
    overlays: dict[str, type[BaseModel]] = {"tenants": TenantOverlay, "users": UserOverlay}
    return list((Layer if len(path) == 1 else overlays.get(str(path[0]), Overlay)).model_fields)


def _check_values(layer: Layer, places: Places, plugins: Plugins) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Check what types cannot express: that codes, limits, budgets and presets exist, and values are in bounds."""
    known = preset_names()
    for index, name in enumerate(layer.presets):
        if name not in known:
            yield ("presets", index), f"no preset {shown(name)}", f"there are: {', '.join(known)}"
    for index, name in enumerate(layer.plugins):
        for what, remedy in plugins.enable(name):
            yield ("plugins", index), what, remedy
    catalogue = plugins.catalogue
    yield from _check_users(layer)
    if 0 < (layer.lost_after_s or 0) < LOST_AFTER_S_MIN:
        what, remedy = f"{layer.lost_after_s} s are too few", f"set {LOST_AFTER_S_MIN} or more, or 0 for never"
        yield ("lost_after_s",), what, remedy
    if layer.locked and not places.file.startswith("preset "):
        yield ("locked",), "only a preset can lock", "remove the line"
    yield from provider_problems(layer.providers)
    below = [read_preset(name) for name in layer.presets if name in known]
    yield from _check_tiers(layer)
    yield from lock_problems(layer.overlays(), below)
    for path, overlay in layer.overlays():
        for rest, what, remedy in _check_overlay(overlay, catalogue):
            yield (*path, *rest), what, remedy
        for below_prices, what in price_problems(overlay.prices):
            yield (*path, "prices", *below_prices), what, PRICE_REMEDY
        for rest, what, remedy in _check_board(overlay, layer):
            yield (*path, "board", *rest), what, remedy


def _check_users(layer: Layer) -> Iterator[tuple[tuple[str, ...], str, str]]:
    for name, own in layer.users.items():
        for budget in own.budgets:
            if not budget.replace("_", "").lower().startswith("maxuser"):
                what = f"{budget} is not a budget of a user"
                yield ("users", name, "budgets", budget), what, "use one such as maxUserCostUsdPerDay"


def _check_tiers(layer: Layer) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Check that every assigned tier exists, in this layer or in a preset below it."""
    assigned = [(("tenants", name, "tier"), tenant.tier) for name, tenant in layer.tenants.items()]
    assigned += [(("users", name, "tier"), user.tier) for name, user in layer.users.items()]
    if not any(tier is not None for _, tier in assigned):
        return
    known = set(layer.tiers)
    for preset in [STANDARD, *(name for name in layer.presets if name in preset_names())]:
        known |= set(read_preset(preset).tiers)
    for path, tier in assigned:
        if tier is not None and tier.casefold() not in {name.casefold() for name in known}:
            yield path, f"no tier {shown(tier)}", f"there are: {', '.join(sorted(known))}; or add it to `tiers`"


def _check_board(overlay: Overlay, layer: Layer) -> list[tuple[tuple[str, ...], str, str]]:
    """Return the mistakes of a board; one without a path is checked on top of the board below it."""
    if overlay.board is None:
        return []
    below: dict[str, Any] = {}
    if overlay.board.path is None:
        below = merge_board(merge_board({}, read_preset(STANDARD).board), layer.board)
    return list(board_problems(merge_board(below, overlay.board)))


def _check_budget(name: str, value: Any) -> Iterator[tuple[tuple[str, ...], str, str]]:
    try:
        budget = find_budget(name)
        limit, overridable = budget_setting(value)
        amount = budget_value(budget, limit)
    except (KeyError, ValueError) as error:
        yield ("budgets", name), str(error.args[0]), ""
        return
    if overridable and not budget.declarable:
        what = f"a run cannot declare {budget.name}, so it cannot override it"
        yield ("budgets", name), what, f"write {budget.name}: {limit}"
    if budget.ceiling is not None and amount > budget.ceiling:
        what = f"{limit} is above the ceiling {budget.ceiling}"
        yield ("budgets", name), what, f"use at most {budget.ceiling}; no policy can raise the ceiling"
    elif amount < budget.floor:
        yield ("budgets", name), f"{limit} is below the floor {budget.floor}", f"use {budget.floor} or more"


def _check_overlay(overlay: Overlay, catalogue: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    if overlay.on_stall is not None and overlay.on_stall not in ON_STALL:
        yield ("on_stall",), f"{shown(overlay.on_stall)} is not a choice", f"use one of {', '.join(ON_STALL)}"
    for name, value in overlay.budgets.items():
        yield from _check_budget(name, value)
    for code in overlay.actions:
        if code not in catalogue:
            yield ("actions", code), "no such detector", _codes(code, catalogue)
    for code, setting in overlay.detectors.items():
        if code not in catalogue:
            yield ("detectors", code), "no such detector", _codes(code, catalogue)
        elif isinstance(setting, dict):
            yield from _check_limits(code, setting, catalogue[code].Limits)
        elif not setting and (cap := catalogue[code].hard_cap):
            yield ("detectors", code), f"cannot be turned off: it enforces the hard cap of {cap}", "remove the line"


def _codes(code: str, catalogue: Mapping[str, Any]) -> str:
    plugin = "a plug-in's entry point has to be named under `plugins`; " if "/" in code else ""
    return f"{plugin}{_meant(code.upper(), catalogue)}`streamproc explain` lists all codes"


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a question about what was meant with a name that is not known; empty if nothing is close."""
    close = get_close_matches(name, list(known), n=2)
    return f"did you mean {' or '.join(close)}? " if close else ""


def _check_limits(code: str, setting: dict[str, Any], limits: Any) -> Iterator[tuple[tuple[str, ...], str, str]]:
    known, valid = vars_of(limits()), True
    for name, value in setting.items():
        mistake = _limit_mistake(code, name, value, known)
        if mistake is not None:
            valid = False
            yield ("detectors", code, name), *mistake
    if valid and "/" in code:
        try:
            limits(**setting)
        except Exception as error:  # noqa: BLE001 (the checks of a plug-in)
            yield ("detectors", code), f"{type(error).__name__}: {error}", f"{code} refuses these limits"


def _limit_mistake(code: str, name: str, value: Any, known: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong with a limit, and the remedy. Its type is that of its default."""
    if name not in known:
        return "unknown limit", f"{code} has: {', '.join(known) or 'no limits of its own'}"
    default = known[name]
    if isinstance(default, StrEnum):
        if value not in (names := list(type(default))):
            return f"{shown(value)} is not a choice", f"use one of {', '.join(names)}"
    elif isinstance(default, bool | str):
        if type(value) is not type(default) or (isinstance(value, str) and len(value) > TEXT_MAX):
            what = "true or false" if isinstance(default, bool) else f"a text of at most {TEXT_MAX} characters"
            return f"expected {what}, got {shown(value)}", f"the default is {shown(default)}"
    elif isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LIMIT_MAX:
            return f"expected a number from 0 to {LIMIT_MAX}, got {shown(value)}", f"the default is {default}"
    elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LIMIT_MAX:
        remedy = "set a whole number; 0 turns the limit off"
        return f"expected a whole number from 0 to {LIMIT_MAX}, got {shown(value)}", remedy
    return None


def read_policy_file(path: Path, plugins: Plugins | None = None) -> Layer:
    """Read a policy file from disk, as `read_layer` does. Raises `InvalidPolicy`."""
    try:
        text = bounded_text(path)
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"name a readable file, or one of the presets {', '.join(preset_names())}"
        why = (error.strerror or "") if isinstance(error, OSError) else "not UTF-8"
        raise InvalidPolicy([Problem("policy", f"cannot be read: {why}", remedy, str(path))]) from None
    return read_layer(text, str(path), plugins)
