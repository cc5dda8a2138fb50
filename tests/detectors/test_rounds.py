"""BUDGET005: rounds of a deliberation, their hard cap, and agreement as a good stop."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.core.decision import Decision
from streamproc.model.wire import RunStarted
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


@pytest.mark.parametrize("declared", [None, 5, 7, 14, 15])
def test_no_declaration_raises_the_cap_and_a_lower_one_applies(declared: int | None) -> None:
    start = [] if declared is None else [{"type": "run.started", "budgets": {"maxRounds": declared}}]
    limit = min(declared or CAP, CAP)
    halts = [one for one in own([*start, *rounds(*range(1, 40))]) if one.severity == "halt"]
    assert [short(one).at for one in halts] == [limit - 1], "the first turn of the last round"
    assert reason(halts[0]) == ("hard_cap_15_rounds" if limit == CAP else "max_rounds")
    assert (halts[0].terminal_status, halts[0].halt_reason) == ("budget_exceeded", "budget_exceeded")


@pytest.mark.parametrize("declared", [0, 1, 4, 16, 50, 2**70])
def test_a_declaration_out_of_range_that_was_published_all_the_same_has_no_effect(declared: int) -> None:
    feed = Feed(load_policy("deliberation"))
    [reported] = feed.event(RunStarted(w=1, run_id="r", budgets={"maxRounds": declared}))
    assert (reported.code, reported.severity, reason(reported)) == ("BUDGET005", "warn", "max_rounds_refused")
    assert "so 7 applies; declare 5 to 15" in reported.message
    assert feed.state.scope.budgets == {}


def test_a_round_that_is_checked_ends_with_its_check() -> None:
    turns = [
        turn
        for n in range(1, 9)
        for turn in (*rounds(n, n, n), {"node": "check", "output": f"apart {n}", "round": n, "convergence": 0.2})
    ]
    last, end = own(turns, "deliberation")
    assert (last.severity, last.action, reason(last), short(last).at) == ("warn", "force_synthesis", "max_rounds", 24)
    assert (end.severity, end.action, end.stop_reason, short(end).at) == ("halt", "force_synthesis", "max_rounds", 27)


def test_a_check_that_finds_agreement_in_the_last_round_ends_at_the_limit() -> None:
    [one] = own([*rounds(*range(1, 7)), {"node": "check", "round": 7, "convergence": 0.9}], "deliberation")
    assert (one.severity, one.stop_reason) == ("halt", "max_rounds")


def test_a_round_beyond_the_limit_halts_whoever_reports_it() -> None:
    checked = [{"node": "check", "round": n, "convergence": 0.2} for n in range(1, 6)]
    [one] = own([*checked, *rounds(8)], "deliberation")
    assert (one.severity, one.message) == ("halt", "Round 8 has started, but only 7 rounds are allowed (max_rounds).")


def test_a_falling_round_is_reported_once_and_resets_nothing() -> None:
    reported = own([{"type": "run.started", "budgets": {"maxRounds": 7}}, *rounds(1, 2, 3, 4, 5, 6, 1, 2, 1, 7)])
    assert [(one.severity, reason(one)) for one in reported] == [("warn", "round_fell"), ("halt", "max_rounds")]


def test_a_falling_round_ends_a_deliberation() -> None:
    [one] = own(rounds(1, 2, 3, 1), "deliberation")
    assert (one.severity, one.terminal_status, one.action, one.stop_reason) == (
        "halt", "blocked", "halt", "round_fell",
    )  # fmt: skip


def test_agreement_is_reported_once_and_never_halts() -> None:
    [reported] = own(rounds(1, 2, 3, 4, convergence=0.86, consensus=1.0))
    assert (reported.type, reported.severity, reported.action, reason(reported)) == (
        "notification",
        "info",
        "force_synthesis",
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

    feed = Feed()
    found = []
    for raw in rounds(*range(1, 17)):
        found += feed.raw(raw)
        feed.restart()
    assert [(one.code, one.severity) for one in found] == [("BUDGET005", "halt")]
