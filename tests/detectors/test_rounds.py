"""BUDGET005: rounds of a deliberation, their hard cap, and agreement as a good stop."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.core.decision import Decision
from streamproc.policy import load_policy
from tests.feeding import Feed, Raw, decisions, short

CAP = 15


def rounds(*numbers: int, **more: Any) -> list[Raw]:
    return [{"node": "persona", "output": f"{n}", "round": number, **more} for n, number in enumerate(numbers)]


def own(raws: list[Raw], preset: str = "standard") -> list[Decision]:
    return [decision for decision in decisions(raws, load_policy(preset)) if decision.code == "BUDGET005"]


def reason(decision: Decision) -> str | None:
    assert decision.evidence is not None
    return decision.evidence.reason


@pytest.mark.parametrize("declared", [None, 5, 7, 14, 15, 16, 1_000])
def test_no_declaration_raises_the_cap_and_a_lower_one_applies(declared: int | None) -> None:
    start = [] if declared is None else [{"type": "run.started", "budgets": {"maxRounds": declared}}]
    limit = min(declared or CAP, CAP)
    halts = [one for one in own([*start, *rounds(*range(1, 40))]) if one.severity == "halt"]
    assert [short(one).at for one in halts] == [limit], "the first turn of the round beyond the limit"
    assert reason(halts[0]) == ("hard_cap_15_rounds" if limit == CAP else "max_rounds")
    assert (halts[0].terminal_status, halts[0].halt_reason) == ("budget_exceeded", "budget_exceeded")


def test_a_declaration_above_the_cap_is_reported_at_once() -> None:
    [reported] = own([{"type": "run.started", "budgets": {"maxRounds": 50}}])
    assert (reported.severity, reason(reported)) == ("warn", "hard_cap_15_rounds")
    assert "15 applies" in reported.message


def test_the_preset_allows_seven_rounds_and_asks_for_a_synthesis_in_the_last() -> None:
    last, beyond = own(rounds(*(1 + n // 4 for n in range(32))), "deliberation")
    assert (last.severity, last.action, reason(last), short(last).at) == ("warn", "force_synthesis", "max_rounds", 24)
    assert (beyond.severity, short(beyond).at) == ("halt", 28)


def test_a_deliberation_that_ends_in_its_last_round_is_not_halted() -> None:
    raws = [*rounds(*range(1, 8)), *rounds(7, 7), {"node": "vote", "output": "yes"}, {"type": "run.finished"}]
    assert [one.severity for one in own(raws, "deliberation")] == ["warn"]


def test_a_falling_round_is_reported_once_and_resets_nothing() -> None:
    reported = own(rounds(1, 2, 3, 4, 5, 6, 7, 1, 2, 1, 8), "deliberation")
    assert [(one.severity, reason(one)) for one in reported] == [
        ("warn", "max_rounds"), ("warn", "round_fell"), ("halt", "max_rounds"),
    ]  # fmt: skip


def test_agreement_is_reported_once_and_never_halts() -> None:
    [reported] = own(rounds(1, 2, 3, 4, convergence=0.86, consensus=1.0))
    assert (reported.type, reported.severity, reported.action, reason(reported)) == (
        "notification",
        "info",
        "warn",
        "consensus",
    )
    assert (reported.halt_reason, reported.terminal_status) == (None, None)


@pytest.mark.parametrize(
    ("measured", "agreed"),
    [({"convergence": 0.85}, False), ({"convergence": 0.8501}, True), ({"consensus": 0.7999}, False),
     ({"consensus": 0.8}, True), ({"convergence": 0.0, "consensus": 0.0}, False)],
)  # fmt: skip
def test_agreement_is_more_than_85_percent_alike_or_80_percent_of_votes(
    measured: dict[str, float], agreed: bool
) -> None:
    assert bool(own([{"node": "check", **measured}])) == agreed


def test_rounds_survive_a_restart() -> None:
    from streamproc.core.run_state import dump, load

    feed = Feed()
    found = []
    for raw in rounds(*range(1, 17)):
        found += feed.raw(raw)
        feed.state = load(dump(feed.state))
    assert [(one.code, one.severity) for one in found] == [("BUDGET005", "warn"), ("BUDGET005", "halt")]
