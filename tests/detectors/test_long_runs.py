"""The backstop for runs without a limit on steps, and spend per time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamproc.policy import load_policy
from tests.feeding import Feed

if TYPE_CHECKING:
    from streamproc.policy import Policy

NOON_MS = 1_767_225_600_000


def reported(turns: int, policy: Policy, *first: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return what is reported about a run whose every turn has a new text: code, severity, turn."""
    feed = Feed(policy)
    found = [decision for raw in first for decision in feed.raw(raw)]
    for n in range(turns):
        found += feed.raw({"node": "agent", "output": f"Now I try {n}."})
    return [(one.code, one.severity, one.trigger.turn) for one in found if one.trigger is not None]


def under(**limits: int) -> Policy:
    return load_policy({"detectors": {"BUDGET004": limits}})


def started(**budgets: int) -> dict[str, Any]:
    return {"type": "run.started", "budgets": budgets}


def test_a_run_without_a_limit_is_warned_once_at_turn_500() -> None:
    assert reported(1_200, load_policy()) == [("BUDGET004", "warn", 499)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"warn_turns": 20}, [("warn", 19)]),
        ({"warn_turns": 20, "halt_turns": 30}, [("warn", 19), ("halt", 29)]),
        ({"warn_turns": 0, "halt_turns": 30}, [("halt", 29)]),
        ({"warn_turns": 0}, []),
    ],
)
def test_policy_moves_the_backstop(limits: dict[str, int], expected: list[tuple[str, int]]) -> None:
    found = reported(60 if limits.get("warn_turns") or "halt_turns" in limits else 600, under(**limits))
    assert [(severity, turn) for _, severity, turn in found] == expected


def test_a_lower_limit_replaces_the_backstop_and_a_higher_one_does_not() -> None:
    policy = under(warn_turns=20)
    assert reported(40, policy, started(maxSteps=10)) == [("BUDGET004", "warn", 9), ("BUDGET004", "halt", 10)]
    assert reported(40, under(warn_turns=30), started(maxRounds=5)) == [
        ("BUDGET004", "warn", 24),
        ("BUDGET004", "halt", 25),
    ]
    assert reported(40, policy, started(maxSteps=1_000)) == [("BUDGET004", "warn", 19)]


def test_the_planner_preset_has_a_lower_limit_of_its_own() -> None:
    found = reported(600, load_policy("planner"))
    assert [turn for code, _, turn in found if code == "BUDGET004"] == [54, 55]


def test_a_resumed_run_is_not_halted_by_the_backstop_again() -> None:
    feed = Feed(under(warn_turns=20, halt_turns=30))
    severities = []
    for n in range(90):
        severities += [one.severity for one in feed.raw({"node": "agent", "output": f"Now I try {n}."})]
        if n == 40:
            feed.raw({"type": "operator.resume", "by": "ada"})
    assert severities.count("halt") == 1


def spending(usage: dict[str, Any], seconds: float, turns: int, *, timed: bool = True) -> list[tuple[str, str, int]]:
    feed, found = Feed(), []
    for n in range(turns):
        at = {"at": int(NOON_MS + n * seconds * 1000)} if timed else {}
        found += feed.raw({"node": "agent", "output": f"Now I try {n}.", "usage": usage, **at})
        feed.restart()
    return [(one.code, one.severity, one.trigger.turn) for one in found if one.trigger is not None]


def test_a_run_that_spends_ten_dollars_within_five_minutes_is_warned_once() -> None:
    assert spending({"cost_usd": "0.50"}, 10, 60) == [("BUDGET011", "warn", 19)]
    assert spending({"total_tokens": 200_000}, 20, 60) == [("BUDGET011", "warn", 9)]


def test_the_same_spend_over_a_longer_time_is_no_anomaly() -> None:
    assert spending({"cost_usd": "0.50"}, 30, 200) == []
    assert spending({"total_tokens": 200_000}, 60, 60) == []


def test_spend_without_log_time_has_no_velocity() -> None:
    assert spending({"cost_usd": "5.00"}, 0, 40, timed=False) == []


def test_the_measure_is_off_at_zero() -> None:
    feed = Feed(load_policy({"detectors": {"BUDGET011": {"warn_micro_usd_in_5_min": 0}}}))
    for n in range(30):
        assert feed.raw({"node": "agent", "output": f"{n}", "usage": {"cost_usd": "5.00"}, "at": NOON_MS + n}) == []
