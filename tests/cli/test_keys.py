"""`streamproc keys new`: keys that the settings accept."""

from __future__ import annotations

import pytest

from streamproc.settings import load_settings


def test_a_key_pair_is_printed_for_signers_and_for_verifiers(run) -> None:
    signs, verifies = run("keys", "new", "ops", "--ed25519").stdout.splitlines()

    [private], [public] = (
        load_settings(command_key=signs).command_keys(),
        load_settings(control_key=verifies).control_keys(),
    )
    assert (private.name, private.signs, public.name, public.signs) == ("ops", True, "ops", False)


def test_a_shared_secret_is_printed_once_and_is_new_every_time(run) -> None:
    first, second = (run("keys", "new", "ops").stdout.splitlines() for _ in range(2))

    assert len(first) == 1
    assert first != second
    assert load_settings(command_key=first[0]).command_keys()[0].signs


@pytest.mark.parametrize("name", ["", "a:b", "a,b", "a b", "x" * 65])
def test_a_name_that_cannot_be_written_in_a_setting_is_refused(run, name: str) -> None:
    assert run("keys", "new", name).exit_code == 2
