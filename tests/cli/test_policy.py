"""`streamproc policy`: every mistake with its place, and the limits in force as a valid policy file."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamproc.policy import load_policy
from streamproc.policy.files import preset_names

MISTAKEN = """\
name: mistaken
presets: [standard, nope]
detecters: {}
detectors:
  LOOP999: true
  LOOP001: {hault: 3}
  LOOP003: {halt: -1}
budgets:
  maxSteps: none
on_stall: explode
"""


def test_a_correct_policy_is_valid(run, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("name: ours\nversion: 7\nbudgets: {maxSteps: 40}\n")

    result = run("policy", "check", path)

    assert result.exit_code == 0
    assert result.stdout.startswith("policy ours, version 7, hash ")
    assert result.stdout.endswith(": valid\n")


def test_all_mistakes_are_reported_together_with_their_lines(run, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(MISTAKEN)

    result = run("policy", "check", path)

    assert result.exit_code == 2
    errors = result.stderr.splitlines()
    for line, what in (
        (2, "presets.1: no preset 'nope'"),
        (3, "detecters: unknown setting"),
        (5, "LOOP999"),
        (6, "hault"),
        (7, "LOOP003.halt"),
        (9, "maxSteps"),
        (10, "on_stall"),
    ):
        assert any(f"{path}:{line}: " in one and what in one for one in errors), (line, what, errors)


def test_a_missing_file_gets_an_error_that_lists_the_presets(run) -> None:
    result = run("policy", "check", "nope.yaml")

    assert result.exit_code == 2
    assert "nope.yaml" in result.stderr
    assert "loop-safety" in result.stderr


@pytest.mark.parametrize("preset", preset_names())
def test_a_shown_preset_is_a_valid_policy(run, tmp_path: Path, preset: str) -> None:
    path = tmp_path / "shown.yaml"

    result = run("policy", "show", preset)
    path.write_text(result.stdout)

    assert result.exit_code == 0
    assert load_policy(path).effective() == load_policy(preset).effective()


def test_the_environment_names_the_policy(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_POLICY", "loop-safety")

    assert run("policy", "show").stdout.startswith("# policy loop-safety,")
    assert run("policy", "show", "standard").stdout.startswith("# policy standard,")


def test_a_scope_is_shown_with_its_own_layers(run, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("name: ours\nworkflows:\n  nightly:\n    budgets: {maxCostUsd: '2.50'}\n")

    assert "maxCostUsd" not in run("policy", "show", path).stdout
    assert "maxCostUsd: 2.5" in run("policy", "show", path, "--workflow", "nightly").stdout


def test_a_users_own_budgets_are_shown(run, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("budgets: {maxUserTokensPerDay: 5}\nusers:\n  u7:\n    budgets: {maxUserTokensPerDay: 9}\n")

    assert "maxUserTokensPerDay: 5" in run("policy", "show", path, "--user", "u8").stdout
    assert "maxUserTokensPerDay: 9" in run("policy", "show", path, "--user", "u7").stdout


def test_a_budget_that_users_do_not_have_is_a_mistake(run, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("users:\n  u7:\n    budgets: {maxSteps: 9}\n")

    result = run("policy", "check", path)

    assert result.exit_code == 2
    assert f"{path}:3: users.u7.budgets.maxSteps: maxSteps is not a budget of a user" in result.stderr


def test_prices_are_shown_as_they_are_written(run, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("prices:\n  small: { input_per_million_usd: '0.80', output_per_million_usd: 4 }\n")
    shown = tmp_path / "shown.yaml"

    shown.write_text(run("policy", "show", path).stdout)

    assert load_policy(shown).effective()["prices"] == load_policy(path).effective()["prices"]
    assert load_policy(shown).effective()["prices"]["small"].cached == 800_000
