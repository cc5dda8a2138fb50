"""The metrics of the page: what halts have saved, the standing command, and readiness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from deploy.local.service import free_port
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.record_signing import RecordSigner
from streamproc.fleet.watching import watching_of
from streamproc.fleet.workers import Workers
from streamproc.metrics import definitions
from streamproc.model.fleet_command import FleetCommand, encode_command
from streamproc.policy import load_policy
from streamproc.read_model.model import ReadModel
from streamproc.web.process import PageMetrics
from tests.metrics.scraped import Scraped, get
from tests.read_model.deployment import NOON_MS, Deployment, filled, spend, turn
from tests.waiting import wait_until
from tests.web.deployment import LiveDeployment

if TYPE_CHECKING:
    from pathlib import Path

POLICY: dict[str, Any] = {"name": "limited", "budgets": {"maxSteps": 10}}


def stuck(made: Deployment, run_id: str, cost: int | None = 1_000_000) -> None:
    for number in range(6):
        made.send(turn(run_id, number, "I will try again.", usage=spend(10, cost)))


def shown(metrics: PageMetrics) -> dict[tuple[str, ...], Any]:
    """What it shows of the fleet and its runs; what it hears of workers is for test_unwatched.py."""
    workers = (definitions.WATCH_STATE, definitions.WORKERS, definitions.UNWATCHED_PARTITIONS)
    found = [one for one in metrics.readings() if one.metric not in workers]
    return {(one.metric.name, *one.labels): one.value for one in found}


def reader(**fields: Any) -> Any:
    known = watching_of(Workers(RecordSigner(Keyring(), "", required=False)), 0.0, lag_warn_s=30)
    return SimpleNamespace(**{"caught_up": True, "trouble": None, "progress": 1.0, "watching": lambda: known} | fields)


def test_a_halt_saves_the_turns_that_the_budget_had_left() -> None:
    made = Deployment()
    stuck(made, "dear")
    stuck(made, "without costs", None)
    model = filled(ReadModel(), made)
    run = model.run("dear")
    assert run is not None
    metrics = PageMetrics(load_policy(POLICY), model, reader())

    (saved,) = {key: value for key, value in shown(metrics).items() if key[0] == "streamproc_saved_usd_total"}.items()

    assert saved == (("streamproc_saved_usd_total", run.code), 10 - run.turns)  # each turn has cost one dollar


def test_a_halt_counts_once_and_what_is_saved_never_falls() -> None:
    made = Deployment()
    stuck(made, "dear")
    model = filled(ReadModel(), made)
    metrics = PageMetrics(load_policy(POLICY), model, reader())
    first = shown(metrics)
    assert shown(metrics) == first
    model.clear()  # as when the topics are made again

    assert shown(metrics) == first

    stuck(made, "another")
    later = shown(PageMetrics(load_policy(POLICY), filled(model, made), reader()))
    assert sum(later.values()) > sum(first.values())


def test_without_the_budget_nothing_is_estimated() -> None:
    made = Deployment()
    stuck(made, "dear")
    found = shown(PageMetrics(load_policy("standard"), filled(ReadModel(), made), reader()))
    assert sum(value for key, value in found.items() if key[0] == "streamproc_saved_usd_total") == 0


@pytest.mark.parametrize("status", ["STOP", "PAUSE", "CLEAR"])
def test_the_standing_command_is_shown(status: Any) -> None:
    made = Deployment()
    command = FleetCommand(w=1, id="c1", status=status, scope="fleet", at=NOON_MS + 1, by="ada", why="a bad release")
    made.write("commands", b"fleet", encode_command(command))
    found = shown(PageMetrics(load_policy("standard"), filled(ReadModel(), made), reader()))
    assert [key[1] for key, value in found.items() if value] == [status]


def test_while_the_topics_are_read_no_status_is_shown_and_the_page_is_not_ready() -> None:
    metrics = PageMetrics(load_policy("standard"), ReadModel(), reader(caught_up=False, progress=0.4))
    assert shown(metrics) == {}
    assert metrics.missing() == ["reading: 40%"]
    assert PageMetrics(load_policy("standard"), ReadModel(), reader()).missing() == []


@pytest.mark.long
@pytest.mark.kafka
def test_the_page_serves_metrics_and_probes_on_their_own_address(brokers: str, tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    deployment = LiveDeployment(brokers, tmp_path, "--metrics", where)
    try:
        wait_until(lambda: get(f"http://{where}/readyz")[0] == 200, 60, "the page to be ready")
        shown = Scraped(get(f"http://{where}/metrics")[2])
        assert shown.sum("streamproc_fleet_status", status="CLEAR") == 1
        assert get(f"http://{where}/healthz")[0] == 200
        origin = deployment.address.partition("/login")[0]
        assert get(f"{origin}/metrics")[0] == 401  # where people look, nothing is shown without a login
    finally:
        deployment.close()
