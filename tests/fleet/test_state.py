"""What orders add up to."""

from __future__ import annotations

import pytest

from streamproc.errors import InvalidEvent
from streamproc.fleet import state
from streamproc.fleet.issuing import new_command
from streamproc.fleet.state import Fleet
from streamproc.model.fleet_command import FleetCommand, Status


def ordered(fleet: Fleet, status: Status, scope: str = "fleet", **options: int) -> FleetCommand:
    order = new_command(fleet, status, scope, "ada", "why not", **options)
    assert fleet.apply(order)
    return order


def test_a_fleet_without_orders_is_clear() -> None:
    fleet = Fleet()
    assert (fleet.status, fleet.order, fleet.stopping("ada", "acme")) == ("CLEAR", None, None)


def test_the_last_order_stands() -> None:
    fleet = Fleet()
    for status in ("STOP", "CLEAR", "PAUSE", "STOP"):
        order = ordered(fleet, status)
        assert (fleet.status, fleet.order) == (status, order)
    assert fleet.stopping() == order


def test_a_killed_user_and_tenant_stay_so_until_they_are_cleared() -> None:
    fleet = Fleet()
    user, tenant = ordered(fleet, "STOP", "user:eve"), ordered(fleet, "STOP", "tenant:acme")
    ordered(fleet, "CLEAR")
    assert fleet.stopping("eve", "") == fleet.stopping("eve", "acme") == user
    assert fleet.stopping("", "acme") == tenant
    assert fleet.stopping("acme", "eve") is fleet.stopping() is None
    ordered(fleet, "CLEAR", "user:eve")
    assert fleet.stopping("eve", "") is None
    assert fleet.kills


def test_a_run_that_is_killed_does_not_stay_so() -> None:
    fleet = Fleet()
    order = ordered(fleet, "STOP", "run:r1")
    assert fleet.latest("run:r1") == order
    assert not fleet.kills


def test_an_order_that_comes_twice_is_no_news_also_after_a_newer_one() -> None:
    fleet = Fleet()
    stop = ordered(fleet, "STOP")
    ordered(fleet, "CLEAR")
    assert not fleet.apply(stop)
    assert fleet.status == "CLEAR"


def test_an_old_order_that_is_sent_again_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "IDS_MAX", 1)
    fleet = Fleet()
    stop = ordered(fleet, "STOP")
    ordered(fleet, "CLEAR")
    with pytest.raises(InvalidEvent, match="older than the CLEAR that ada has issued since"):
        fleet.apply(stop)
    assert fleet.status == "CLEAR"


def test_an_order_counts_after_one_of_a_clock_that_is_ahead() -> None:
    fleet = Fleet()
    ordered(fleet, "STOP", now_ms=2_000)
    ordered(fleet, "CLEAR", now_ms=1_000)
    assert fleet.status == "CLEAR"


def test_what_is_known_is_bounded_and_the_fleets_own_order_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SCOPES_MAX", 3)
    fleet = Fleet()
    ordered(fleet, "STOP")
    for number in range(10):
        ordered(fleet, "STOP", f"user:{number}")
        ordered(fleet, "STOP", f"run:{number}")
    assert fleet.latest("fleet") == fleet.order
    assert len(fleet.users) <= 2
