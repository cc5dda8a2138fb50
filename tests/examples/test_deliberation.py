"""The deliberation example: which layer ends which run, and that each of them can do it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from tests.examples.playing import ROOT, chapter, first_halts, scanned, turn_of

if TYPE_CHECKING:
    pass

NAME = "deliberation"
ENDED = {
    "layer-1/bug-in-routing": ("BUDGET004", 55, "budget_exceeded"),
    "layer-2/forgotten-exit": ("GRAPH001", 0, "blocked"), "layer-3/user-limit": ("BUDGET005", 22, "budget_exceeded"),
    "layer-3/never-converges": ("BUDGET005", 46, "budget_exceeded"),
    "layer-3/round-falls": ("BUDGET005", 11, "blocked"), "layer-4/slow-model": ("BUDGET006", 8, "timed_out"),
    "layer-4/five-minutes": ("BUDGET006", 8, "timed_out"), "layer-5/free": ("BUDGET007", 9, "budget_exceeded"),
    "layer-5/no-tier": ("BUDGET007", 12, "budget_exceeded"), "layer-5/pro": ("BUDGET007", 27, "budget_exceeded"),
}  # fmt: skip
ALONE = {  # the limit of each layer, under a policy without the others
    "layer-1/bug-in-routing": {"maxSteps": 55},
    "layer-3/never-converges": {"maxRounds": 15},
    "layer-4/slow-model": {"maxRuntimeMs": 3_600_000},
}


def test_exactly_these_are_halted() -> None:
    assert {run_id for run_id, halt in first_halts(NAME).items() if halt is not None} == ENDED.keys()


@pytest.mark.parametrize("run_id", ENDED)
def test_a_layer_ends_its_run(run_id: str) -> None:
    halt = first_halts(NAME)[run_id]
    assert (halt.code, turn_of(halt), halt.terminal_status) == ENDED[run_id]
    assert f"    status       {halt.terminal_status}" in chapter(NAME, run_id)


@pytest.mark.parametrize("run_id", ALONE)
def test_a_layer_does_it_alone(run_id: str) -> None:
    code = ENDED[run_id][0]
    others = {layer: False for layer in ("BUDGET004", "BUDGET006", "BUDGET007") if layer != code}
    policy = load_policy({"presets": ["standard"], "budgets": ALONE[run_id], "detectors": others})
    halts = [
        decision.code
        for decision in Scan([Source(ROOT / "examples" / NAME / "turns.jsonl")], policy)
        if decision.severity == "halt" and decision.run_id == run_id
    ]
    assert halts == [code]


def test_agreement_is_a_good_stop() -> None:
    for run_id, turn in (("normal/convergence", 16), ("normal/consensus", 10)):
        [reported] = scanned(NAME)[run_id]
        assert (reported.code, reported.severity, turn_of(reported), reported.halt_reason) == (
            "BUDGET005",
            "info",
            turn,
            None,
        )
        assert reported.evidence.reason == "consensus"
        assert chapter(NAME, run_id)[-1].startswith("  completed: ")


@pytest.mark.parametrize(
    ("run_id", "reason", "turns"),
    [("layer-3/user-limit", "max_rounds", (20, 22)), ("layer-3/never-converges", "hard_cap_15_rounds", (44, 46))],
)
def test_the_last_round_is_a_warning_and_its_check_a_halt(run_id: str, reason: str, turns: tuple[int, int]) -> None:
    warned, halted = scanned(NAME)[run_id][:2]
    assert (turn_of(warned), turn_of(halted)) == turns
    assert (warned.severity, warned.action, halted.severity) == ("warn", "force_synthesis", "halt")
    for one in (warned, halted):
        assert one.evidence.reason == reason
    assert (warned.stop_reason, halted.stop_reason) == (None, reason)


def test_a_falling_round_is_an_error_that_ends_the_run() -> None:
    halt = first_halts(NAME)["layer-3/round-falls"]
    assert (halt.code, turn_of(halt), halt.action, halt.stop_reason) == ("BUDGET005", 11, "halt", "round_fell")


@pytest.mark.parametrize(("run_id", "alert"), [
    ("layer-3/never-converges", "HARD_CAP CRITICAL"), ("layer-4/slow-model", "TIMEOUT HIGH"),
    ("layer-5/free", "BUDGET_EXCEEDED HIGH"),
])  # fmt: skip
def test_operators_are_notified(run_id: str, alert: str) -> None:
    assert any(line.startswith(f"    alert        {alert}: ") for line in chapter(NAME, run_id))


def test_a_run_may_declare_as_many_rounds_as_the_hard_cap() -> None:
    [agreed] = scanned(NAME)["layer-3/fifteen-rounds-wanted"]
    assert (agreed.severity, agreed.stop_reason) == ("info", "consensus")


def test_the_last_snapshot_survives_the_time_out() -> None:
    halt = first_halts(NAME)["layer-4/slow-model"]
    assert halt.type == "run.timed_out"
    assert (halt.evidence.snapshot.turns, halt.evidence.snapshot.round) == (9, 3)
    assert halt.at == "2026-03-24T04:00:00.000Z"  # an hour after its start, and 12 minutes after its last event


def test_the_free_tier_ends_in_its_third_round() -> None:
    halt = first_halts(NAME)["layer-5/free"]
    assert halt.action == "force_synthesis"
    assert (halt.evidence.used, halt.evidence.limit, halt.evidence.unit) == (550_000, 500_000, "micro_usd")


@pytest.mark.parametrize("run_id", ["layer-5/enterprise", "layer-5/five-dollars"])
def test_a_larger_budget_lets_a_run_continue(run_id: str) -> None:
    assert [reported for reported in scanned(NAME)[run_id] if reported.severity == "halt"] == []
    assert chapter(NAME, run_id)[-1].startswith("  completed: ")
