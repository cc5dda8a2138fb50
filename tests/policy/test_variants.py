"""Variants of a policy: how settings are named, the grid of several, and what is refused."""

from __future__ import annotations

import pytest

from streamproc.errors import InvalidPolicy
from streamproc.policy import load_policy
from streamproc.policy.variants import Sweep, grid, read_sweep, variant


@pytest.mark.parametrize(("text", "sweep"), [
    ("LOOP003.halt=2..4", Sweep("detectors.LOOP003.halt", (2, 3, 4))),
    ("detectors.LOOP003.halt=2,8", Sweep("detectors.LOOP003.halt", (2, 8))),
    ("LOOP002=false,true", Sweep("detectors.LOOP002", (False, True))),
    ("maxSteps=50", Sweep("budgets.maxSteps", (50,))), ("max_cost_usd=0.5,1", Sweep("budgets.max_cost_usd", (0.5, 1))),
    ("workflows.nightly.budgets.maxSteps=9", Sweep("workflows.nightly.budgets.maxSteps", (9,))),
    ("on_stall=pause", Sweep("on_stall", ("pause",))),
])  # fmt: skip
def test_a_setting_has_the_name_that_a_policy_file_gives_it(text: str, sweep: Sweep) -> None:
    assert read_sweep(text) == sweep


@pytest.mark.parametrize("text", ["LOOP003.halt", "=2", "LOOP003.halt=", "LOOP003.halt=[1]", "LOOP003.halt=5..2"])
def test_a_sweep_that_cannot_be_read_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(InvalidPolicy, match=r"write"):
        read_sweep(text)


def test_the_bound_of_a_grid_is_named() -> None:
    sweeps = [read_sweep("LOOP003.halt=1..15"), read_sweep("LOOP002.halt=1..14")]

    with pytest.raises(InvalidPolicy, match="210 combinations, more than 200"):
        grid(sweeps)
    with pytest.raises(InvalidPolicy, match="300 combinations, more than 200"):
        grid(sweeps[:1], policies=20)
    with pytest.raises(InvalidPolicy, match="1000 values, more than 200"):
        read_sweep("LOOP003.halt=1..1000")
    assert len(grid(sweeps[:1], policies=13)) == 15


def test_a_variant_differs_in_its_settings_only() -> None:
    base = load_policy()

    [changed] = [variant(base, settings) for settings in grid([read_sweep("LOOP003.halt=5")])]

    before, after = base.effective(), changed.effective()
    assert after["detectors"]["LOOP003"].pop("halt") == 5
    before["detectors"]["LOOP003"].pop("halt")
    assert before == after
    assert (changed.name, changed.version) == ("standard LOOP003.halt=5", base.version)
    assert changed.hash != base.hash
    assert variant(base, {}) is base


def test_a_variant_sets_money_as_a_file_does() -> None:
    changed = variant(load_policy(), {"budgets.maxCostUsd": 0.5})

    assert changed.effective()["budgets"]["maxCostUsd"] == 500_000


@pytest.mark.parametrize(("name", "value", "mistake"), [
    ("detectors.LOOP003.hold", 3, "--set:.*detectors.LOOP003.hold: unknown limit"),
    ("detectors.LOOP003.halt", "x", "expected a whole number"), ("detectors.LOOP999.halt", 3, "no such detector"),
    ("nothing.here", 3, "unknown setting"), ("budgets.maxRounds", 99, "above the ceiling"),
])  # fmt: skip
def test_a_setting_that_a_file_may_not_have_is_refused(name: str, value: object, mistake: str) -> None:
    with pytest.raises(InvalidPolicy, match=mistake):
        variant(load_policy(), {name: value})


def test_two_sweeps_of_one_place_are_refused() -> None:
    with pytest.raises(InvalidPolicy, match="is set as a whole"):
        variant(load_policy(), {"detectors.LOOP003": False, "detectors.LOOP003.halt": 3})
