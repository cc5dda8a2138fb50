"""The presets: complete, with a reason on every line, and with the numbers of the requirements."""

from __future__ import annotations

from dataclasses import fields
from importlib import resources
from typing import Any

import pytest
import yaml

from streamproc.detectors import DETECTORS
from streamproc.model.budgets import budget_value, find_budget
from streamproc.policy import load_policy
from streamproc.policy.files import budget_setting, preset_names

WORDS_MIN = 2  # of a comment: fewer explain nothing


def text_of(preset: str) -> str:
    return (resources.files("streamproc.policy") / "presets" / f"{preset}.yaml").read_text("utf-8")


@pytest.mark.parametrize("preset", preset_names())
def test_every_line_of_a_preset_has_a_comment(preset: str) -> None:
    silent = [
        line
        for line in text_of(preset).splitlines()
        if line.strip() and len(line.partition("# ")[2].split()) < WORDS_MIN
    ]
    assert silent == []


@pytest.mark.parametrize("preset", preset_names())
def test_the_first_line_is_a_sentence(preset: str) -> None:
    first = text_of(preset).partition("\n")[0]
    assert first.startswith("# ")
    assert first.endswith(".")


def test_standard_has_every_limit_of_every_detector() -> None:
    written = yaml.safe_load(text_of("standard"))["detectors"]
    assert {code: limits if limits is True else set(limits) for code, limits in written.items()} == {
        code: {field.name for field in fields(one.Limits)} or True for code, one in DETECTORS.items()
    }


@pytest.mark.parametrize("preset", preset_names())
def test_the_settings_of_a_preset_are_in_force(preset: str) -> None:
    written = yaml.safe_load(text_of(preset))
    for scope, said in [({}, written), *(({"tier": name}, said) for name, said in written.get("tiers", {}).items())]:
        effective = load_policy(preset).effective(**scope)
        for code, limits in said.get("detectors", {}).items():
            assert effective["detectors"][code].items() >= (limits if isinstance(limits, dict) else {}).items()
        for name, value in said.get("budgets", {}).items():
            if scope or name not in effective["budgets"]:
                assert effective["budgets"][name] == budget_value(find_budget(name), budget_setting(value).limit)
        assert effective["actions"].items() >= said.get("actions", {}).items()
        assert effective["on_stall"] == written.get("on_stall", "switch_to_interactive")


# The numbers of the requirements; money in micro-USD.
REQUIRED: dict[str, dict[str, dict[str, Any]]] = {
    "loop-safety": {
        "budgets": {"maxTurnsPerNode": 6, "maxCycleIterations": 8, "turnTimeoutMs": 600_000},
        "LOOP001": {"warn": 2, "halt": 3},
        "LOOP002": {"said_halt": 2},
        "STALL001": {"halt": 2},
        "STALL002": {"warn": 2, "halt": 3},
        "STALL003": {"halt": 3},
        "STALL004": {"halt": 3},
    },
    "planner": {
        "budgets": {"maxSteps": 55},
        "LOOP005": {"halt": 5, "verifier_halt": 3},
        "LOOP007": {"inform": 2},
    },
    "deliberation": {
        "budgets": {"maxSteps": 55, "maxRounds": 7, "maxRuntimeMs": 3_600_000, "maxCostUsd": 1_000_000},
        "BUDGET004": {"steps_per_round": 3, "steps_around": 10},
        "BUDGET005": {"convergence_percent": 85, "consensus_percent": 80},
        "GRAPH001": {"halt": 1},
    },
    "repair": {"budgets": {}, "ERROR001": {"warn": 0, "halt": 2}},
    "tickets": {
        "budgets": {},
        "LOOP001": {"halt": 2},
        "LOOP003": {"halt": 3, "within": 10},
        "ERROR002": {"warn": 3},
        "ERROR004": {"warn": 3},
        "STALL005": {"warn": 2},
        "STALL006": {"halt": 1},
        "TASK001": {"warn": 3},
        "TASK002": {"warn": 3, "cycles": 1},
        "TASK005": {"flag": 2},
        "TASK006": {"ask": 2},
        "TASK008": {"warn": 3},
        "BUDGET008": {"warn_percent": 70, "restrict_percent": 80, "urgent_percent": 90, "halt_percent": 95},
        "BUDGET009": {"warn_percent": 70, "restrict_percent": 80, "wrap_up_percent": 95},
    },
    "standard": {
        "budgets": {},
        "LOOP003": {"warn": 2, "halt": 3, "masked_warn": 3, "masked_halt": 5, "within": 10, "live_repeats_min": 10},
        "LOOP002": {"said_halt": 2, "calls_warn": 2, "calls_halt": 3},
        "LOOP004": {"warn": 6},
        "LOOP008": {"warn": 3, "halt": 5},
        "LOOP009": {"warn": 3},
        "STALL008": {"halt": 2},
        "ERROR003": {"warn": 4, "halt": 8},
        "ERROR005": {"warn": 3, "halt": 4},
        "INFRA001": {"warn": 10},
    },
}


@pytest.mark.parametrize("preset", preset_names())
def test_the_numbers_of_the_requirement_are_in_force(preset: str) -> None:
    effective = load_policy(preset).effective()
    for code, limits in REQUIRED[preset].items():
        if code == "budgets":
            assert effective["budgets"] == limits
        else:
            assert effective["detectors"][code].items() >= limits.items()


@pytest.mark.parametrize(("tier", "micro"), [("free", 500_000), ("pro", 2_000_000), ("enterprise", 10_000_000)])
@pytest.mark.parametrize("preset", preset_names())
def test_a_tier_costs_the_same_under_every_preset(preset: str, tier: str, micro: int) -> None:
    assert load_policy(preset).effective(tier=tier)["budgets"]["maxCostUsd"] == micro


def test_the_planner_preset_notifies_a_person_first() -> None:
    actions = load_policy("planner").effective()["actions"]
    assert {actions[code] for code in ("LOOP001", "LOOP002", "LOOP003", "LOOP005", "LOOP008")} == {"snitch"}
