"""The fleet state that results from commands."""

from __future__ import annotations

import pytest

from streamproc.errors import InvalidEvent
from streamproc.fleet import state
from streamproc.fleet.state import Fleet, new_command
from streamproc.model.fleet_command import FleetCommand, Status


def issued(fleet: Fleet, status: Status, scope: str = "fleet", **options: int) -> FleetCommand:
    command = new_command(fleet, status, scope, "ada", "why not", **options)
    assert fleet.apply(command)
    return command


def test_a_fleet_without_commands_is_clear() -> None:
    fleet = Fleet()
    assert (fleet.status, fleet.command, fleet.stopping("ada", "acme")) == ("CLEAR", None, None)


def test_the_latest_command_stands() -> None:
    fleet = Fleet()
    for status in ("STOP", "CLEAR", "PAUSE", "STOP"):
        command = issued(fleet, status)
        assert (fleet.status, fleet.command) == (status, command)
    assert fleet.stopping() == command


def test_kills_of_users_and_tenants_stand_until_cleared() -> None:
    fleet = Fleet()
    user, tenant = issued(fleet, "STOP", "user:eve"), issued(fleet, "STOP", "tenant:acme")
    issued(fleet, "CLEAR")
    assert fleet.stopping("eve", "") == fleet.stopping("eve", "acme") == user
    assert fleet.stopping("", "acme") == tenant
    assert fleet.stopping("acme", "eve") is fleet.stopping() is None
    issued(fleet, "CLEAR", "user:eve")
    assert fleet.stopping("eve", "") is None
    assert fleet.kills


def test_the_kill_of_a_run_does_not_stand() -> None:
    fleet = Fleet()
    command = issued(fleet, "STOP", "run:r1")
    assert fleet.latest("run:r1") == command
    assert not fleet.kills


def test_a_duplicate_command_is_not_news_even_after_a_newer_one() -> None:
    fleet = Fleet()
    stop = issued(fleet, "STOP")
    issued(fleet, "CLEAR")
    assert not fleet.apply(stop)
    assert fleet.status == "CLEAR"


def test_a_replayed_old_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "IDS_MAX", 1)
    fleet = Fleet()
    stop = issued(fleet, "STOP")
    issued(fleet, "CLEAR")
    with pytest.raises(InvalidEvent, match="older than the CLEAR that ada has issued since"):
        fleet.apply(stop)
    assert fleet.status == "CLEAR"


def test_a_command_is_newer_than_one_from_a_clock_that_is_ahead() -> None:
    fleet = Fleet()
    issued(fleet, "STOP", now_ms=2_000)
    issued(fleet, "CLEAR", now_ms=1_000)
    assert fleet.status == "CLEAR"


def test_known_commands_are_bounded_and_that_of_the_fleet_is_never_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SCOPES_MAX", 3)
    fleet = Fleet()
    issued(fleet, "STOP")
    for number in range(10):
        issued(fleet, "STOP", f"user:{number}")
        issued(fleet, "STOP", f"run:{number}")
    assert fleet.latest("fleet") == fleet.command
    assert len(fleet.users) <= 2
