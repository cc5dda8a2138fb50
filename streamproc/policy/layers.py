"""Thresholds, budgets and actions: preset → global → workflow → tenant → tier → run. Later layers win.

A policy is an input of the engine, and every decision carries its content hash.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import orjson
import xxhash

from streamproc.core import session_tree as tree
from streamproc.core.accounts import TOTAL, UNITS, Mark
from streamproc.core.board.config import BoardConfig
from streamproc.core.charges import SESSION_BUDGETS, AccountRules
from streamproc.core.decision import PolicyRef, hex16
from streamproc.core.engine import Engine
from streamproc.core.prices import Price
from streamproc.core.rules import Rules
from streamproc.core.session_tree import TreeRules
from streamproc.core.signals.novelty import Gate, Gates
from streamproc.core.spend_windows import WINDOWS
from streamproc.core.tiers import TierRules
from streamproc.detectors import DETECTORS
from streamproc.detectors.base import Detector
from streamproc.model.budgets import BUDGETS, USD_MICRO, account_budget, budget_value, find_budget
from streamproc.policy.boards import merge_board
from streamproc.policy.files import (
    STANDARD,
    Layer,
    Overlay,
    budget_setting,
    preset_names,
    read_mapping,
    read_policy_file,
    read_preset,
)
from streamproc.policy.plugin_detector import PluginDetector
from streamproc.policy.plugins import Plugins, vars_of
from streamproc.policy.prices import price_of
from streamproc.policy.providers import provider_rules

DEFAULT: Final = STANDARD
# The longest pause of 417 recorded runs was 20 minutes: three times as long. A run that waits longer for a person is
# shown as lost until its next event.
LOST_AFTER_S: Final = 3_600
_ACCOUNT_BUDGETS: Final = {budget.name for budget in BUDGETS if not budget.declarable}
_DECLARABLE: Final = {budget.name for budget in BUDGETS if budget.declarable}
_SECTIONS: Final = ("workflows", "tenants", "tiers")
_UNNAMED: Final = "\0"  # stands for every name without a section: no policy file can contain it
_TREES: Final = "TREE"  # begins the codes of the detectors of sessions as trees
_RULES_MAX: Final = 1_024  # scopes with resolved rules, 20 KB each; past it, the oldest is dropped
_PERIODS: Final = tuple(window for window in WINDOWS if window != "burn")


log = logging.getLogger("streamproc.detectors")


def _log_fault(code: str, times: int, problem: Exception) -> None:
    """Log the first, second, fourth … fault: a defect that recurs with every turn must not fill the log."""
    if times & (times - 1) == 0:
        log.error(
            "detector %s raised an exception (%d so far); it skipped this event, all other detectors ran. "
            "Report the error, or turn the detector off in the policy.", code, times, exc_info=problem,
        )  # fmt: skip


class Policy:
    """A policy: its layers from the presets up, which it resolves for a scope."""

    def __init__(self, layers: list[Layer], plugins: Iterable[PluginDetector] = ()) -> None:
        self.layers = tuple(layers)
        self.plugins = tuple(plugins)
        """The detectors of others that are in force, unless a layer turns them off."""
        self._catalogue: dict[str, Detector | PluginDetector] = DETECTORS | {one.code: one for one in self.plugins}
        own = layers[-1]
        parts: list[Any] = [layer.model_dump(mode="json") for layer in layers]
        parts += [["plugin", plugin.code, plugin.name, plugin.version] for plugin in self.plugins]
        content = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
        self._named = [{name for layer in layers for name in getattr(layer, section)} for section in _SECTIONS]
        self._rules: dict[tuple[str, ...], Rules] = {}
        self.ref = PolicyRef(name=own.name, version=str(own.version), hash=hex16(xxhash.xxh3_64_intdigest(content)))
        self.tiers = _tier_rules(self.layers)
        self.providers = provider_rules(layer.providers for layer in layers)
        """The limits of the breakers of providers and models."""
        self.lost_after_s = next(
            (one.lost_after_s for one in reversed(self.layers) if one.lost_after_s is not None), LOST_AFTER_S
        )
        """After how many seconds without an event a running run is shown as lost; 0: never."""
        self.evidence_excerpts = next(
            (one.evidence_excerpts for one in reversed(self.layers) if one.evidence_excerpts is not None), False
        )
        """Whether guards are to report redacted excerpts of what halted runs said last."""

    @property
    def name(self) -> str:
        return self.ref.name

    @property
    def version(self) -> str:
        return self.ref.version

    @property
    def hash(self) -> str:
        return self.ref.hash

    def engine(self) -> Engine:
        """Return an engine under this policy. It logs the faults of detectors."""
        engine = Engine(self)
        engine.on_fault = _log_fault
        return engine

    def effective(self, workflow: str = "", tenant: str = "", tier: str = "", user: str = "") -> dict[str, Any]:
        """Return the settings in force in a scope: limits of each detector (None: off), budgets, those of them that a
        run may raise, actions.

        `tier` is the one that a run names. As in the engine, it counts in full only if runs are believed; otherwise
        that of the tenant or user counts, or, without one, the lower budgets of the named tier.
        """
        tier = self.tiers.known(tier)
        assigned = self.tiers.assigned(tenant, user) or (tier if self.tiers.believed else "")
        found = self._in_force(self._overlays(workflow, tenant, assigned, user))
        if not assigned:
            budgets = found["budgets"]
            lower = self.tiers.budgets.get(tier, {}).items()
            found["budgets"] = budgets | {name: min(value, budgets.get(name, value)) for name, value in lower}
        return found

    def _in_force(self, overlays: list[Overlay]) -> dict[str, Any]:
        detectors: dict[str, dict[str, Any] | None] = {code: {} for code in self._catalogue}
        budgets: dict[str, int] = {}
        overridable: set[str] = set()
        actions: dict[str, str] = {}
        prices: dict[str, Price] = {}
        on_stall, children, suggested = "switch_to_interactive", tree.FINISH, list[str]()
        lower: list[str] = []
        board: dict[str, Any] = {}
        for overlay in overlays:
            for code, setting in overlay.detectors.items():
                own = detectors[code] or {}
                detectors[code] = own | setting if isinstance(setting, dict) else own if setting else None
            budgets |= (own_budgets := _values(overlay))
            overridable = (overridable - own_budgets.keys()) | _overridable(overlay)
            actions |= overlay.actions
            prices |= {model: price_of(price) for model, price in overlay.prices.items()}
            on_stall, children = overlay.on_stall or on_stall, overlay.children or children
            suggested = suggested if overlay.suggested_actions is None else [*overlay.suggested_actions]
            board = merge_board(board, overlay.board)
            lower = overlay.lower_is_better if overlay.lower_is_better is not None else lower
        return {
            "detectors": {
                code: None if own is None else vars_of(self._catalogue[code].Limits(**own))
                for code, own in detectors.items()
            },
            "budgets": budgets,
            "overridable": sorted(overridable),
            "actions": actions,
            "on_stall": on_stall,
            "children": children,
            "suggested_actions": suggested,
            "lower_is_better": lower,
            "board": board,
            "prices": prices,
        }

    def rules(self, workflow: str, tenant: str, tier: str) -> Rules:
        """Return the rules of a scope, as the engine uses them; the tier is one that counts (`TierRules`).

        Names without a section of their own share their rules.
        """
        names = zip((workflow, tenant, tier), self._named, strict=True)
        scope = tuple([name if name in named else _UNNAMED for name, named in names])
        rules = self._rules.get(scope)
        if rules is None:
            if len(self._rules) >= _RULES_MAX:
                del self._rules[next(iter(self._rules))]
            rules = self._rules[scope] = self._resolve(*scope)
        return rules

    def _resolve(self, workflow: str, tenant: str, tier: str) -> Rules:
        found = self._in_force(self._overlays(workflow, tenant, tier, ""))
        catalogue, limits = self._catalogue, found["detectors"].items()
        own = {code: catalogue[code].Limits(**values) for code, values in limits if values is not None}
        settings: dict[str, Any] = {}
        for code, detector in catalogue.items():
            settings |= detector.settings(own.get(code))
        gates = {catalogue[code].gated: Gate(one.gate) for code, one in own.items() if catalogue[code].gated}
        budgets = _with_lower(found["budgets"], settings.pop("budgets", {}))
        percents = settings.pop("session_percents", ()), settings.pop("account_percents", ())
        tree = _tree_rules(found, settings)
        watched = any(code.startswith(_TREES) for code in own)
        return Rules(
            self.ref,
            [(catalogue[code], one) for code, one in own.items()],
            {name: value for name, value in budgets.items() if name not in _ACCOUNT_BUDGETS},
            on_stall=found["on_stall"],
            suggested=found["suggested_actions"],
            actions=found["actions"],
            lower_is_better=frozenset(found["lower_is_better"]),
            prices=found["prices"],
            accounts=self._accounts(found, *percents, tree if watched else None),
            gates=Gates(**gates),
            overridable=frozenset(found["overridable"]),
            tiers=self.tiers,
            board=BoardConfig(found["board"], frozenset(own)),
            **settings,
        )

    def admission(self, workflow: str = "", tenant: str = "", tier: str = "", user: str = "") -> dict[str, Any]:
        """Return the limits of a scope for `Admission(limits=…)`, so detection and admission share one policy."""
        budgets = self.effective(workflow, tenant, tier, user)["budgets"]
        limits: dict[str, Any] = {
            "run": _limit(budgets, {"micro_usd": "maxCostUsd"}),
            "session": _limit(budgets, dict(SESSION_BUDGETS)),
        }
        for owner in ("user", "tenant"):
            periods = {
                window: _limit(budgets, {unit: account_budget(owner, unit, window) for unit in UNITS})
                for window in _PERIODS
            }
            limits[owner] = {window: limit for window, limit in periods.items() if limit}
        return {level: limit for level, limit in limits.items() if limit}

    def births(self, workflow: str = "", tenant: str = "", tier: str = "") -> dict[str, int]:
        """Return the limits of a scope on the runs of a session, for `Admission(births=…)`."""
        budgets = self.effective(workflow, tenant, tier)["budgets"]
        return {name: budgets[name] for name in tree.BUDGETS.values() if name in budgets}

    def _accounts(
        self, found: dict[str, Any], session: Sequence[int], account: Sequence[int], tree: TreeRules | None
    ) -> AccountRules:
        """Return the limits for sessions, and for users and tenants; each has none without percentages."""
        budgets = found["budgets"]
        users: dict[str, dict[str, int]] = {}
        for layer in self.layers:
            for name, own in layer.users.items():
                users[name] = users.get(name, budgets) | _values(own.overlay)
        return AccountRules(
            session=[Mark(TOTAL, unit, budgets[name]) for unit, name in SESSION_BUDGETS if session and name in budgets],
            session_percents=session,
            session_overridable=[unit for unit, name in SESSION_BUDGETS if name in found["overridable"]],
            user=_marks("user", budgets) if account else (),
            users={name: _marks("user", own) for name, own in users.items()} if account else None,
            tenant=_marks("tenant", budgets) if account else (),
            percents=account,
            tree=tree,
        )

    def _overlays(self, workflow: str, tenant: str, tier: str, user: str) -> list[Overlay]:
        scoped = [
            overlay
            for section, name in zip(_SECTIONS, (workflow, tenant, tier), strict=True)
            for layer in self.layers
            if (overlay := getattr(layer, section).get(name)) is not None
        ]
        own = [layer.users[user].overlay for layer in self.layers if user in layer.users]
        return [*self.layers, *scoped, *own]


def _tree_rules(found: dict[str, Any], settings: dict[str, Any]) -> TreeRules:
    """Return the rules for the trees of sessions; takes the settings of their detectors."""
    budgets, overridable = found["budgets"], found["overridable"]
    levels = {unit: tuple(own) for unit in tree.BUDGETS if (own := settings.pop(f"tree_{unit}", ()))}
    return TreeRules(
        limits={unit: budgets[name] for unit, name in tree.BUDGETS.items() if unit in levels and name in budgets},
        levels=levels,
        overridable=[unit for unit, name in tree.BUDGETS.items() if name in overridable],
        children=found["children"],
        pace=settings.pop("tree_pace", []),
        loops=settings.pop("tree_loops", []),
    )


def _values(overlay: Overlay) -> dict[str, int]:
    """Return the budgets that an overlay sets, by canonical name, in their units."""
    found = ((find_budget(name), budget_setting(value).limit) for name, value in overlay.budgets.items())
    return {budget.name: budget_value(budget, value) for budget, value in found}


def _overridable(overlay: Overlay) -> set[str]:
    """Return the canonical names of the budgets that an overlay lets runs raise."""
    return {find_budget(name).name for name, value in overlay.budgets.items() if budget_setting(value).overridable}


def _tier_rules(layers: tuple[Layer, ...]) -> TierRules:
    """Return whom the policy believes about tiers, and the tiers that it assigns. Later layers win."""
    believed = [layer.tier_from for layer in layers if layer.tier_from]
    tenants: dict[str, str] = {}
    users: dict[str, str] = {}
    budgets: dict[str, dict[str, int]] = {}
    for layer in layers:
        tenants |= {name: one.tier for name, one in layer.tenants.items() if one.tier}
        users |= {name: one.tier for name, one in layer.users.items() if one.tier}
        for name, tier in layer.tiers.items():
            own = {budget: value for budget, value in _values(tier).items() if budget in _DECLARABLE}
            budgets[name] = budgets.get(name, {}) | own
    names = {name.casefold(): name for name in budgets}
    tiers = TierRules(believed[-1:] == ["run"], budgets=budgets, names=names)
    return tiers._replace(
        tenants={name: tiers.known(tier) for name, tier in tenants.items()},
        users={name: tiers.known(tier) for name, tier in users.items()},
    )


def _marks(owner: str, budgets: dict[str, int]) -> list[Mark]:
    """Return the limits of users or tenants in each window."""
    names = [(window, unit, account_budget(owner, unit, window)) for window in _PERIODS for unit in UNITS]
    return [Mark(window, unit, budgets[name]) for window, unit, name in names if name in budgets]


def _limit(budgets: dict[str, int], names: dict[str, str]) -> dict[str, Any]:
    """Return one limit in the form of admission: USD as decimal text, and tokens."""
    limit: dict[str, Any] = {}
    if (cost := budgets.get(names["micro_usd"])) is not None:
        limit["cost_usd"] = str(Decimal(cost) / USD_MICRO)
    if (tokens := budgets.get(names.get("tokens", ""))) is not None:
        limit["tokens"] = tokens
    return limit


def _with_lower(budgets: dict[str, int], limits: dict[str, int]) -> dict[str, int]:
    """Return budgets with the limits of detectors on them, where those are lower."""
    return budgets | {name: min(limit, budgets.get(name, limit)) for name, limit in limits.items()}


Source = str | Path | Mapping[str, Any]
"""The name of a preset, a policy file, or a mapping with the content of one."""


def load_policy(source: Source | None = None, *, detectors: Iterable[Any] = ()) -> Policy:
    """Load a policy from a file, a preset by its name, or a mapping with the content of a file.

    `detectors` are detectors of yours, or their classes, that the policy uses besides ours; plug-ins of installed
    packages are named in the file, under `plugins`. Raises `InvalidPolicy` with every mistake and its place.
    """
    plugins = Plugins(detectors)
    if isinstance(source, Mapping):
        layers = _with_presets(read_mapping(source, plugins), [DEFAULT])
    elif source is None or str(source) in preset_names():
        layers = _with_presets(read_preset(str(source or DEFAULT)), [])
    else:
        layers = _with_presets(read_policy_file(Path(source), plugins), [DEFAULT])
    return Policy(layers, plugins.by_code.values())


def _with_presets(layer: Layer, default: list[str]) -> list[Layer]:
    """Return a layer on top of the presets it names (else of `default`), each on top of its own; each preset once."""
    found: list[Layer] = []
    for name in layer.presets or default:
        for below in _with_presets(read_preset(name), []):
            if below.name not in {known.name for known in found}:
                found.append(below)
    return [*found, layer]
