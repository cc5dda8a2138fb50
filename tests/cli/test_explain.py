"""`streamproc explain` has a page for every detector, by code or by name."""

from __future__ import annotations

import pytest

from streamproc.detectors import BY_CODE
from streamproc.fleet.code_pages import PAGES


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_detector_has_a_page_with_examples_that_fire_and_that_do_not(run, code: str) -> None:
    result = run("explain", code)

    assert result.exit_code == 0
    for heading in ("Sees:", "Why:", "False alarms:", "Tuning:", "Must fire:", "Must stay silent:"):
        assert heading in result.stdout
    firing, _, silent = result.stdout.partition("Must stay silent:")
    assert firing.count("→ ") > 0
    assert silent.count("nothing") >= len(BY_CODE[code].HEALTHY)


def test_a_detector_is_found_by_name_and_in_lower_case(run) -> None:
    assert (
        run("explain", "repeated_call").stdout == run("explain", "loop003").stdout == run("explain", "LOOP003").stdout
    )


def test_without_a_code_all_codes_are_listed(run) -> None:
    listed = run("explain").stdout.splitlines()

    assert [line.split()[0] for line in listed] == [*sorted(BY_CODE), "FLEET001", "FLEET002"]


@pytest.mark.parametrize("code", sorted(PAGES))
def test_the_codes_of_fleet_commands_have_a_page(run, code: str) -> None:
    result = run("explain", code)

    assert result.exit_code == 0
    assert result.stdout.startswith(f"{code} ")
    for heading in ("Sees:", "Why:", "False alarms:", "Tuning:"):
        assert heading in result.stdout


def test_an_unknown_code_gets_an_error_that_lists_the_known_ones(run) -> None:
    result = run("explain", "LOOP999")

    assert result.exit_code == 2
    assert "LOOP003" in result.stderr
