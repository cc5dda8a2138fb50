"""Thresholds, budgets and actions: preset → global → workflow → tenant → tier → run. Later layers win.

A policy is an input of the engine: its content hash is in every decision.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import xxhash

from streamproc.budgets import budget_value, find_budget
from streamproc.core.board_law import BoardLaw
from streamproc.core.decision import PolicyRef, hex16
from streamproc.core.engine import Engine
from streamproc.core.prices import Price
from streamproc.core.rules import Rules
from streamproc.detectors import BY_CODE, MODULES
from streamproc.policy_board import laid_over
from streamproc.policy_file import STANDARD, Layer, Overlay, preset_names, read_policy_file, read_preset
from streamproc.policy_prices import price_of

DEFAULT: Final = STANDARD


class Policy:
    """A policy: its layers from the presets up, ready to be resolved for a scope."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = tuple(layers)
        own = layers[-1]
        content = orjson.dumps([layer.model_dump(mode="json") for layer in layers], option=orjson.OPT_SORT_KEYS)
        self.ref = PolicyRef(own.name, str(own.version), hex16(xxhash.xxh3_64_intdigest(content)))

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
        """An engine under this policy."""
        return Engine(self)

    def effective(self, workflow: str = "", tenant: str = "", tier: str = "") -> dict[str, Any]:
        """What is in force in a scope: limits of each detector (None: off), budgets, actions."""
        overlays = self._overlays(workflow, tenant, tier)
        detectors: dict[str, dict[str, int] | None] = {code: {} for code in BY_CODE}
        budgets: dict[str, int] = {}
        actions: dict[str, str] = {}
        prices: dict[str, Price] = {}
        on_stall = "switch_to_interactive"
        lower: list[str] = []
        board: dict[str, Any] = {}
        for overlay in overlays:
            for code, setting in overlay.detectors.items():
                own = detectors[code] or {}
                detectors[code] = own | setting if isinstance(setting, dict) else own if setting else None
            for name, value in overlay.budgets.items():
                budget = find_budget(name)
                budgets[budget.name] = budget_value(budget, value)
            actions |= overlay.actions
            prices |= {model: price_of(price) for model, price in overlay.prices.items()}
            on_stall = overlay.on_stall or on_stall
            board = laid_over(board, overlay.board)
            lower = overlay.lower_is_better if overlay.lower_is_better is not None else lower
        return {
            "detectors": {code: None if own is None else _limits(code, own) for code, own in detectors.items()},
            "budgets": budgets,
            "actions": actions,
            "on_stall": on_stall,
            "lower_is_better": lower,
            "board": board,
            "prices": prices,
        }

    def rules(self, workflow: str, tenant: str, tier: str) -> Rules:
        """The rules of a scope, as the engine uses them."""
        found = self.effective(workflow, tenant, tier)
        limits = found["detectors"]
        repeats = BY_CODE["LOOP003"].Limits(**(limits["LOOP003"] or {}))
        return Rules(
            self.ref,
            [
                (module.DETECTOR, module.Limits(**limits[module.DETECTOR.code]))
                for module in MODULES
                if limits[module.DETECTOR.code] is not None
            ],
            _with_own_clock(found["budgets"], limits["BUDGET006"]),
            on_stall=found["on_stall"],
            actions=found["actions"],
            lower_is_better=frozenset(found["lower_is_better"]),
            live_repeats_min=repeats.live_repeats_min,
            live_standstills=repeats.live_standstills,
            prices=found["prices"],
            board=BoardLaw(found["board"], frozenset(code for code, own in limits.items() if own is not None)),
        )

    def _overlays(self, workflow: str, tenant: str, tier: str) -> list[Overlay]:
        scoped = [
            overlay
            for section, name in (("workflows", workflow), ("tenants", tenant), ("tiers", tier))
            for layer in self.layers
            if (overlay := getattr(layer, section).get(name)) is not None
        ]
        return [*self.layers, *scoped]


def _limits(code: str, own: dict[str, int]) -> dict[str, int]:
    limits = BY_CODE[code].Limits(**own)
    return {name: getattr(limits, name) for name in limits.__slots__}


def _with_own_clock(budgets: dict[str, int], clock: dict[str, int] | None) -> dict[str, int]:
    """A multiple of what is usual is a budget, too: then BUDGET006 is asked at every turn."""
    usual_ms = clock["p99_s"] * clock["p99_multiple"] * 1000 if clock else 0
    if not usual_ms:
        return budgets
    return budgets | {"maxRuntimeMs": min(usual_ms, budgets.get("maxRuntimeMs", usual_ms))}


def load_policy(source: str | Path | None = None) -> Policy:
    """A policy from a file, or a preset by its name. Raises `InvalidPolicy` with every mistake and its place."""
    if source is None or str(source) in preset_names():
        return Policy(_with_presets(read_preset(str(source or DEFAULT)), []))
    return Policy(_with_presets(read_policy_file(Path(source)), [DEFAULT]))


def _with_presets(layer: Layer, unnamed: list[str]) -> list[Layer]:
    """A layer on top of the presets it names (or of `unnamed`), each on top of its own; each preset once."""
    found: list[Layer] = []
    for name in layer.presets or unnamed:
        for below in _with_presets(read_preset(name), []):
            if below.name not in {known.name for known in found}:
                found.append(below)
    return [*found, layer]
