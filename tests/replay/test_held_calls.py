"""What breakers would have held back on a log: openings, time, and the calls that would have waited."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamproc.policy import load_policy
from streamproc.replay.held_calls import HeldCalls, held_calls
from streamproc.replay.spool import Spool
from tests.feeding import event_of

START_S = 1_780_000_000


def call(second: float, run_id: str, status: int, model: str = "claude-sonnet-4-5") -> dict[str, Any]:
    at = datetime.fromtimestamp(START_S + second, UTC).isoformat()
    return {
        "type": "model.called",
        "run_id": run_id,
        "provider": "anthropic",
        "model": model,
        "status": status,
        "at": at,
    }


def storm(model: str = "claude-sonnet-4-5") -> list[dict[str, Any]]:
    """Return four calls a second of forty runs for six minutes; for two of these, all are refused."""
    return [
        call(second, f"r{(4 * second + number) % 40}", 429 if 60 <= second < 180 else 200, model)
        for second in range(360) for number in range(4)
    ]  # fmt: skip


def tried(path: Path, raws: list[dict[str, Any]], *providers: dict[str, Any]) -> list[HeldCalls]:
    with Spool(path) as spool:
        for raw in raws:
            event = event_of(raw)
            spool.add(event, event.at)
    assert spool.unavailable == sum(raw.get("status") == 429 for raw in raws)
    return held_calls(path, [load_policy({"name": "p", "providers": one}) for one in providers])


def test_calls_of_an_open_breaker_would_have_waited(tmp_path: Path) -> None:
    [found] = tried(tmp_path / "s", storm(), {})

    assert found.opened >= 1
    assert dict(found.providers) == {"anthropic/claude-sonnet-4-5": found.opened}
    assert 240 < found.failed <= 360  # of 480 refused calls: those of the first half minute open it
    assert found.answered < 240
    assert 60_000 < found.held_ms < 180_000


def test_rules_that_open_later_hold_back_less(tmp_path: Path) -> None:
    default, late, off = tried(tmp_path / "s", storm(), {}, {"share": 0.95, "min_calls": 100}, {"enabled": False})

    assert default.failed > late.failed > 0
    assert off == HeldCalls()


def test_each_provider_has_its_own_breaker(tmp_path: Path) -> None:
    healthy = [{**one, "status": 200, "model": "other"} for one in storm()]
    log = sorted([*storm(), *healthy], key=lambda one: one["at"])

    [both] = tried(tmp_path / "s", log, {})
    [alone] = tried(tmp_path / "t", storm(), {})

    assert both == alone


def test_a_breaker_that_is_open_at_the_end_counts_until_there(tmp_path: Path) -> None:
    log = [one for one in storm() if one["at"] < call(100, "", 0)["at"]]

    [found] = tried(tmp_path / "s", log, {})

    assert found.opened == 1
    assert 0 < found.held_ms <= 15_000


def test_a_log_without_times_opens_nothing(tmp_path: Path) -> None:
    log = [{name: value for name, value in one.items() if name != "at"} for one in storm()]

    assert tried(tmp_path / "s", log, {}) == [HeldCalls()]
