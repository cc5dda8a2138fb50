"""`streamproc explain` has a page for every detector, by code or by name."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamproc.detectors import BY_CODE
from streamproc.fleet.code_pages import PAGES
from tests.docs.distribution import install


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_detector_has_a_page_with_examples_that_fire_and_that_do_not(run, code: str) -> None:
    result = run("explain", code)

    assert result.exit_code == 0
    for heading in ("Sees:", "Why:", "False alarms:", "Tuning:", "Must fire:", "Must stay silent:"):
        assert heading in result.stdout
    firing, _, silent = result.stdout.partition("Must stay silent:")
    assert firing.count("→ ") > 0
    assert silent.count("nothing") >= len(BY_CODE[code].HEALTHY)


def test_a_page_names_the_evidence_that_decisions_have(run) -> None:
    page = run("explain", "TASK005").stdout

    assert "\n    missing: items of the guard that are missing or fail\n" in page.partition("Evidence in its")[2]
    assert "failing_trend" not in page


def test_a_detector_is_found_by_name_and_in_lower_case(run) -> None:
    assert (
        run("explain", "repeated_call").stdout == run("explain", "loop003").stdout == run("explain", "LOOP003").stdout
    )


def test_without_a_code_all_codes_are_listed(run) -> None:
    listed = run("explain").stdout.splitlines()

    assert [line.split()[0] for line in listed] == [
        *sorted(BY_CODE),
        "FLEET001",
        "FLEET002",
        "FLEET003",
        "FLEET004",
        "PROVIDER001",
    ]


@pytest.mark.parametrize("code", sorted(PAGES))
def test_the_codes_of_fleet_commands_have_a_page(run, code: str) -> None:
    result = run("explain", code)

    assert result.exit_code == 0
    assert result.stdout.startswith(f"{code} ")
    for heading in ("Sees:", "Why:", "False alarms:", "Tuning:"):
        assert heading in result.stdout


def test_an_unknown_code_gets_an_error_that_names_a_close_one(run) -> None:
    result = run("explain", "LOOP999")

    assert result.exit_code == 2
    assert "did you mean LOOP009?" in result.stderr


class Mine:
    """Sees something.

    Why: because.
    """

    code, name, kinds = "acme/mine", "mine", 1 << 23

    @dataclass(frozen=True)
    class Limits:
        """Turns."""

        warn: int = 3

    def check(self, view: object, limits: object) -> None: ...


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy that names an installed plug-in."""
    entry = '[project]\nname = "mine"\nversion = "1"\nentry-points."streamproc.detectors".mine = "its_module:Mine"\n'
    install(entry, tmp_path)
    monkeypatch.setitem(sys.modules, "its_module", SimpleNamespace(Mine=Mine))  # type: ignore[arg-type]
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "policy.yaml"
    path.write_text("plugins: [mine]\ndetectors: {acme/mine: {warn: 7}}\n")
    return path


def test_a_plugin_of_the_policy_has_a_page(run, policy: Path) -> None:
    shown = run("explain", "acme/mine", "--policy", policy).stdout

    assert shown.startswith("acme/mine mine: Sees something.\n\nWhy: because.\n")
    assert "    warn = 3\n" in shown
    assert run("explain", "--policy", policy).stdout.splitlines()[-1].split() == [
        "acme/mine",
        "mine",
        "Sees",
        "something",
    ]
    result = run("explain", "acme/mine")
    assert result.exit_code == 2
    assert "no plug-in acme/mine in the policy; there are: none" in result.stderr


def test_a_shown_policy_with_a_plugin_is_a_policy(run, policy: Path, tmp_path: Path) -> None:
    shown = run("policy", "show", policy).stdout
    again = tmp_path / "again.yaml"
    again.write_text(shown)

    assert "plugins:\n- mine\n" in shown
    assert "  acme/mine:\n    warn: 7\n" in shown
    assert run("policy", "check", again).exit_code == 0
