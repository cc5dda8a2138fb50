"""Seed 002, five layers of loop prevention, played under the preset `deliberation`; the line of the seed stands beside
each assertion."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.testing import CliRunner

from streamproc import Monitor
from streamproc.cli import build
from streamproc.errors import InvalidEvent, InvalidPolicy
from streamproc.model.raw_events import parse_line
from streamproc.policy import load_policy
from tests.feeding import Raw, decisions, short

if TYPE_CHECKING:
    from pathlib import Path

    from streamproc.core.decision import Decision

DELIBERATION: Final = load_policy("deliberation")
START_MS: Final = 1_767_225_600_000


def started(**more: Any) -> Raw:
    return {"type": "run.started", "workflow": "office", **more}


def rounds(*numbers: int, **more: Any) -> list[Raw]:
    return [{"node": "check_convergence", "output": f"argument {n}", "round": r, **more} for n, r in enumerate(numbers)]


def costing(*usd: str) -> list[Raw]:
    return [{"node": "persona", "output": f"view {n}", "usage": {"cost_usd": cost}} for n, cost in enumerate(usd)]


def of(code: str, raws: list[Raw]) -> list[Decision]:
    return [one for one in decisions(raws, DELIBERATION) if one.code == code]


# Layers 1 and 2.


def test_layer_1_ends_a_run_after_55_steps() -> None:
    halt = of("BUDGET004", [{"node": "ab"[n % 2], "output": f"step {'x' * n}"} for n in range(60)])[-1]
    assert (halt.severity, short(halt).at) == ("halt", 55)  # "Hard limit … 55 steps": the 56th is one too many
    assert halt.stop_reason == "recursion_limit"  # "`GraphRecursionError` exception → Layer 1"


def test_layer_2_rejects_a_cycle_without_an_exit_before_the_first_turn() -> None:
    # "Unsafe Cycle (rejected): A → B → C → A (no exit path)"
    [halt] = of("GRAPH001", [started(graph={"edges": [["A", "B"], ["B", "C"], ["C", "A"]]})])
    assert (halt.severity, halt.terminal_status, halt.stop_reason) == ("halt", "blocked", "unsafe_cycle")


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ({"detectors": {"BUDGET004": False}}, "detectors.BUDGET004"),
        ({"detectors": {"GRAPH001": False}}, "detectors.GRAPH001"),
        ({"detectors": {"GRAPH001": {"halt": 0}}}, "detectors.GRAPH001.halt"),
        ({"detectors": {"GRAPH001": {"halt": 9}}}, "detectors.GRAPH001.halt"),
        ({"workflows": {"office": {"detectors": {"GRAPH001": False}}}}, "workflows.office.detectors.GRAPH001"),
        ({"tiers": {"pro": {"detectors": {"BUDGET004": False}}}}, "tiers.pro.detectors.BUDGET004"),
        ({"budgets": {"maxSteps": {"limit": 55, "overridable": True}}}, "budgets.maxSteps"),
        ({"budgets": {"recursionLimit": {"limit": 55, "overridable": True}}}, "budgets.recursionLimit"),
        ({"budgets": {"maxSteps": 56}}, "budgets.maxSteps"),
        ({"workflows": {"office": {"budgets": {"steps": 10_000}}}}, "workflows.office.budgets.steps"),
        ({"tiers": {"gold": {"budgets": {"maxSteps": 10_000}}}}, "tiers.gold.budgets.maxSteps"),
        ({"tenants": {"acme": {"budgets": {"maxSteps": {"limit": 60}}}}}, "tenants.acme.budgets.maxSteps"),
    ],
)
def test_layers_1_and_2_cannot_be_switched_off(setting: Raw, place: str) -> None:
    # "Q: Can I disable loop prevention for testing? A: No. Layers 1-2 are always active (compile-time)."
    with pytest.raises(InvalidPolicy, match=rf"policy:\d+: {place}: .*deliberation"):
        load_policy({"presets": ["deliberation"], **setting})
    load_policy({"presets": ["standard"], **setting})


def test_a_preset_on_top_does_not_switch_them_off_either() -> None:
    with pytest.raises(InvalidPolicy):
        load_policy({"presets": ["deliberation", "repair"], "detectors": {"BUDGET004": False}})


def test_no_policy_of_its_own_can_lock() -> None:
    with pytest.raises(InvalidPolicy, match="only a preset can lock"):
        load_policy({"locked": ["BUDGET004"]})


def test_a_run_cannot_raise_layer_1() -> None:
    # "Layer 1 (Recursion): Always triggers at 55 steps"
    raws = [started(budgets={"maxSteps": 10_000}), *({"node": "a", "output": f"{'x' * n}"} for n in range(60))]
    assert [short(one).at for one in of("BUDGET004", raws) if one.severity == "halt"] == [55]


def test_a_policy_may_lower_layer_1() -> None:
    policy = load_policy({"presets": ["deliberation"], "budgets": {"maxSteps": 40}, "detectors": {"BUDGET004": {}}})
    assert policy.effective()["budgets"]["maxSteps"] == 40


# Layer 3.


@pytest.mark.parametrize(("limit", "ends"), [(None, 7), (5, 5), (10, 10), (14, 14), (15, 15)])
def test_the_round_that_reaches_the_limit_ends_it(limit: int | None, ends: int) -> None:
    # `elif state["round_number"] >= state["max_rounds"]: state["should_stop"] = True`; "User Max: … (default: 7)"
    start = started(budgets={"maxRounds": limit} if limit else {})
    halt = of("BUDGET005", [start, *rounds(*range(1, 20))])[0]
    assert (halt.severity, short(halt).at) == ("halt", ends - 1)
    # `if state["round_number"] >= 15: … "hard_cap_15_rounds"`, `else … "max_rounds"`
    assert halt.stop_reason == ("hard_cap_15_rounds" if ends == 15 else "max_rounds")
    assert halt.action == "force_synthesis"  # "→ Routes to vote node (exits loop)"


@pytest.mark.parametrize("jumped_to", [15, 16])
def test_the_hard_cap_is_named_before_the_limit_of_the_user(jumped_to: int) -> None:
    # `if state["round_number"] >= 15:  # Absolute hard cap … elif state["round_number"] >= state["max_rounds"]`
    halt = of("BUDGET005", [started(), *rounds(1, jumped_to)])[-1]
    assert (halt.severity, halt.stop_reason) == ("halt", "hard_cap_15_rounds")


def test_a_check_without_a_round_of_its_own_checks_the_current_one() -> None:
    # `check_convergence_node` runs in every round: `if state["round_number"] >= …`
    check: Raw = {"node": "check_convergence", "output": "apart", "convergence": 0.2}
    raws = [turn for n in range(1, 9) for turn in ({"node": "persona", "output": f"view {n}", "round": n}, check)]
    halt = of("BUDGET005", raws)[-1]
    assert (halt.severity, short(halt).at, halt.stop_reason) == ("halt", 13, "max_rounds")


@pytest.mark.parametrize("name", ["fact_checker", "consensus_builder", "FactChecker", "persona"])
def test_a_persona_with_such_a_name_does_not_end_the_last_round_before_the_others_speak(name: str) -> None:
    # "persona → check_convergence → facilitator": `check_convergence_node` ends the run
    check: Raw = {"node": "check_convergence", "output": "apart", "convergence": 0.2}
    raws = [
        turn for n in range(1, 9)
        for turn in ({"node": name, "output": f"view {'x' * n}", "round": n},
                     {"node": "critic", "output": f"against {'x' * n}", "round": n}, {**check, "round": n})
    ]  # fmt: skip
    halt = next(one for one in of("BUDGET005", raws) if one.severity == "halt")
    assert (halt.node, short(halt).at) == ("check_convergence", 20)


def test_only_what_stops_a_run_has_a_stop_reason() -> None:
    raws = [*rounds(1, convergence=0.1), *({"node": "persona", "output": f"{'x' * n}", "round": 7} for n in range(3))]
    [last] = of("BUDGET005", raws)
    assert (last.severity, last.stop_reason) == ("warn", None)
    assert last.evidence is not None
    assert last.evidence.reason == "max_rounds"


def obedient(raws: list[Raw]) -> list[str | None]:
    """Return why a run stopped that leaves its loop at the first action that ends it."""
    monitor = Monitor(policy="deliberation")
    for raw in raws:
        for control in monitor.feed({"run_id": "r", **raw}):
            if control.action in ("force_synthesis", "halt"):
                return [control.stop_reason, control.severity, control.terminal_status]
    return []


def test_consensus_is_a_good_stop_that_an_obedient_orchestrator_follows() -> None:
    # "Round 1-4: Normal deliberation. Round 5: Convergence detected (score: 0.90) → should_stop = True, stop_reason =
    # "consensus" → Routes to vote node (exits loop)"
    raws = [*rounds(1, 2, 3, 4, convergence=0.4), *rounds(5, convergence=0.9), *rounds(6, convergence=0.9)]
    assert obedient(raws) == ["consensus", "info", None]
    # "Consensus: 80%+ personas agree (early stop)"
    assert obedient([*rounds(1, 2, consensus=0.5), *rounds(3, consensus=0.8)]) == ["consensus", "info", None]
    assert obedient([*rounds(1, 2, 3, convergence=0.85, consensus=0.79)]) == []  # "convergence_score > 0.85"


def test_a_broken_invariant_is_an_error() -> None:
    # "`round_number` is monotonically increasing (never resets)"; "If any invariant is violated, the system raises
    # `ValueError`."
    [fell] = of("BUDGET005", rounds(1, 2, 3, 1))
    assert (fell.severity, fell.terminal_status, fell.stop_reason) == ("halt", "blocked", "round_fell")
    [beyond] = of("BUDGET005", rounds(1, 2, 9))  # "`round_number` ≤ `max_rounds` (checked on every round)"
    assert (beyond.severity, beyond.stop_reason) == ("halt", "max_rounds")


@pytest.mark.parametrize("wrong", [1, 4, 16, 20])
def test_max_rounds_outside_5_to_15_is_refused(wrong: int) -> None:
    # "Trigger Point: User-configured max_rounds (5-15)"; "`max_rounds` ≤ 15 (hard cap enforced)"
    with pytest.raises(InvalidEvent, match=rf"budgets\.maxRounds: expected 5 to 15 rounds, got {wrong} \(declare 5 to"):
        parse_line(json.dumps({"run_id": "r", **started(budgets={"max_rounds": wrong})}))
    refused = rf"policy:4: budgets\.maxRounds: {wrong} is .* \(use (at most 15|5 or more)"
    with pytest.raises(InvalidPolicy, match=refused):
        load_policy({"presets": ["deliberation"], "budgets": {"maxRounds": wrong}})
    # "If any invariant is violated, the system raises `ValueError`."
    assert issubclass(InvalidEvent, ValueError)
    assert issubclass(InvalidPolicy, ValueError)


def test_the_cap_of_15_rounds_is_never_disabled() -> None:
    # "Layer 3 hard cap (15 rounds) is **never** disabled"
    with pytest.raises(InvalidPolicy, match="cannot be turned off"):
        load_policy({"detectors": {"BUDGET005": False}})


# Layer 4.


def test_an_hour_ends_a_run_as_timed_out_with_its_last_state() -> None:
    # "Trigger Point: 3600 seconds (1 hour)"; "Session marked as `status = "timed_out"`"; "Last checkpoint preserved"
    raws = [started(at=START_MS), *rounds(1, at=START_MS + 1), *rounds(2, at=START_MS + 3_600_000)]
    [halt] = of("BUDGET006", raws)
    assert (halt.terminal_status, halt.stop_reason) == ("timed_out", "timeout")
    assert halt.evidence is not None
    assert halt.evidence.snapshot is not None


# Layer 5.


def test_the_cost_of_the_free_tier_ends_with_a_synthesis() -> None:
    # "Round 3: $0.55 (EXCEEDS $0.50 free tier limit) → cost_guard triggers → Forces synthesis (skips further rounds)"
    halt = of("BUDGET007", [started(tier="free"), *costing("0.20", "0.20", "0.15")])[-1]
    assert (halt.severity, short(halt).at, halt.action) == ("halt", 2, "force_synthesis")
    assert halt.stop_reason == "cost_budget_exceeded"  # `state["stop_reason"] = "cost_budget_exceeded"`
    assert halt.terminal_status == "budget_exceeded"  # "Session marked as `status = "budget_exceeded"`"
    assert halt.evidence is not None
    assert halt.evidence.reason == "cost_budget_exceeded"


@pytest.mark.parametrize(("tier", "usd"), [("free", 0.5), ("pro", 2), ("enterprise", 10), ("", 1)])
@pytest.mark.parametrize("written", [str, str.upper, str.title])
def test_a_tier_has_its_limit_in_any_case(tier: str, usd: float, written: Any) -> None:
    # "Free $0.50, Pro $2.00, Enterprise $10.00. Default: $1.00 (no tier specified)"
    scope = {"tier": written(tier)} if tier else {}
    spent = [started(**scope), *costing(str(usd), "0.01")]
    assert [short(one).at for one in of("BUDGET007", spent) if one.severity == "halt"] == [1]
    assert DELIBERATION.effective(tier=written(tier))["budgets"]["maxCostUsd"] == usd * 1_000_000


def test_a_policy_may_assign_a_tier_in_any_case() -> None:
    policy = load_policy({"presets": ["deliberation"], "tenants": {"acme": {"tier": "FREE"}}})
    assert policy.effective(tenant="acme")["budgets"]["maxCostUsd"] == 500_000
    with pytest.raises(InvalidPolicy, match="no tier 'gold'"):
        load_policy({"presets": ["deliberation"], "tenants": {"acme": {"tier": "gold"}}})


def test_an_unknown_tier_is_said_once_and_gets_the_default() -> None:
    told, near, over = of("BUDGET007", [started(tier="entreprise"), *costing("0.90", "0.20", "0.20")])
    assert (told.severity, short(told).at) == ("warn", 0)
    assert "no tier 'entreprise'" in told.message
    assert "1.00 USD for runs without a tier applies" in told.message  # "**Default**: $1.00 (no tier specified)"
    assert (near.severity, over.severity) == ("warn", "halt")
    assert short(over).at == 1


def test_a_turn_that_names_an_unknown_tier_says_so_as_well() -> None:
    [told, *_] = of("BUDGET007", [raw | {"tier": "gold"} for raw in costing("0.10", "0.10")])
    assert "no tier 'gold'" in told.message


@pytest.mark.parametrize(
    "names", [("round", "convergence", "tier"), ("round_number", "convergence_score", "subscription_tier")]
)
def test_the_names_of_the_seed_are_read(names: tuple[str, str, str]) -> None:
    # `state["round_number"] >= state["max_rounds"]`, `state["metrics"].convergence_score > 0.85`,
    # `get_tier_limit(state.get("subscription_tier", "free"))`
    number, score, tier = names
    raws: list[Raw] = [started(**{tier: "free"}, budgets={"max_rounds": 5}), {"node": "c", number: 1, score: 0.4}]
    assert of("BUDGET005", raws) == []
    assert of("BUDGET005", [*raws, {"node": "c", number: 2, score: 0.9}])[-1].stop_reason == "consensus"
    assert of("BUDGET005", [*raws, {"node": "c", number: 5, score: 0.4}])[-1].stop_reason == "max_rounds"
    spent = of("BUDGET007", [*raws, *costing("0.51")])[-1]
    assert (spent.severity, spent.stop_reason) == ("halt", "cost_budget_exceeded")


# "Metrics: Track which layers trigger most often"; "SLI/SLO: 99.9% of sessions complete without timeout"


def session(run_id: str, *raws: Raw) -> list[Raw]:
    return [{"run_id": run_id, **raw} for raw in (started(), *raws, {"type": "run.finished"})]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    late = [started(at=START_MS), {"node": "a", "output": "x", "at": START_MS + 3_600_000}]
    raws = [{"run_id": "late", **raw} for raw in late]
    raws += [raw for n in range(7) for raw in session(f"good-{n}", *rounds(1, 2, 3, convergence=0.2 + 0.1 * (n % 2)))]
    raws += session("long", *rounds(*range(1, 9)))
    raws += session("dear", *costing("0.60", "0.60"))
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(raw) + "\n" for raw in raws), "utf-8")
    return path


def test_stats_count_the_layers_and_the_share_without_timeout(recorded: Path) -> None:
    ran = CliRunner().invoke(build(), ["stats", str(recorded), "--policy", "deliberation", "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    everything, office = found["ends"]
    assert (everything["workflow"], office["workflow"]) == ("*", "office")
    assert (everything["runs"], everything["ended"], everything["timed_out"]) == (10, 10, 1)
    assert (everything["without_timeout"], found["objective"], found["met"]) == (0.9, 0.999, False)
    layers = {row["layer"]: row["runs_halted"] for row in found["detectors"] if row["layer"]}
    assert layers == {3: 1, 4: 1, 5: 1}
    assert found["stop_reasons"] == {"cost_budget_exceeded": 1, "max_rounds": 1, "timeout": 1}


def test_stats_are_a_plain_table_for_people(recorded: Path) -> None:
    ran = CliRunner().invoke(build(), ["stats", str(recorded), "--policy", "deliberation"])
    assert "objective 99.9% of runs end without a timeout: missed" in ran.stdout
    assert "4     BUDGET006    clock" in ran.stdout
    assert "90.00%" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_stats_of_a_window_leave_other_runs_out(recorded: Path) -> None:
    ran = CliRunner().invoke(build(), ["stats", str(recorded), "--json", "--from", str(START_MS + 1)])
    assert json.loads(ran.stdout)["ends"][0]["runs"] == 1  # the others have no times


# "Adaptive max_rounds (simple problems: 5, complex: 10)"


@pytest.mark.parametrize(("agreed_in", "limit"), [([2] * 20, 5), ([9] * 20, 10), ([3] * 19 + [14], 5), ([15] * 20, 15)])
def test_baseline_adapts_max_rounds_to_the_history_of_a_workflow(
    agreed_in: list[int], limit: int, tmp_path: Path
) -> None:
    path, policy = tmp_path / "log.jsonl", tmp_path / "policy.yaml"
    raws = [
        raw
        for n, agreed in enumerate(agreed_in)
        for raw in session(f"r{n}", *rounds(*range(1, agreed)), *rounds(agreed, convergence=0.9))
    ]
    path.write_text("".join(json.dumps(raw) + "\n" for raw in raws), "utf-8")
    ran = CliRunner().invoke(build(), ["baseline", str(path)])
    policy.write_text(f"presets: [deliberation]\n{ran.stdout}", "utf-8")
    found = load_policy(policy).effective("office")
    assert found["budgets"]["maxRounds"] == limit
    assert "maxRounds" in found["overridable"]
    assert load_policy(policy).effective("other")["budgets"]["maxRounds"] == 7


@pytest.mark.parametrize("said", [
    {"structured_output": {"vote": "A"}}, {"output": "I agree with the founder."}, {"output": "A. " * 200},
])  # fmt: skip
def test_personas_at_one_node_may_agree(said: Raw) -> None:
    # "80%+ personas agree (early stop)"; the graph has one node for all personas
    raws = [{"node": "persona", "round": 1 + n // 5, **said} for n in range(15)]
    assert [one.code for one in decisions(raws, DELIBERATION) if one.severity == "halt"] == []


@pytest.mark.parametrize("outputs", [
    ["Approve"], ["I agree with the founder: ship it, and measure what happens in the week after."], ["Approve. " * 60],
    ["Approve", "Reject"],
])  # fmt: skip
@pytest.mark.parametrize("nodes", [["vote"], ["ceo", "cfo"]])
def test_equal_votes_end_by_steps_and_not_as_a_loop(nodes: list[str], outputs: list[str]) -> None:
    # "recursion_limit=55  # Layer 1"; "80%+ personas agree (early stop)"
    raws = [{"node": nodes[n % len(nodes)], "output": outputs[n % len(outputs)]} for n in range(60)]
    found = decisions(raws, DELIBERATION)
    assert [one.code for one in found if one.code.startswith("LOOP")] == []
    halt = next(one for one in found if one.severity == "halt")
    assert halt.trigger is not None
    assert (halt.code, halt.trigger.turn) == ("BUDGET004", 55)


def test_a_node_that_checks_by_its_name_ends_the_last_round() -> None:
    # the limit is tested in `check_convergence_node`; a score is a later enhancement
    names = ("facilitator", "persona", "check_convergence")
    raws = [
        {"node": name, "round": n, "output": f"{name} {n} {'xyz'[n % 3] * n}"} for n in range(1, 9) for name in names
    ]
    [halt] = [one for one in decisions(raws, DELIBERATION) if one.severity == "halt"]
    assert halt.trigger is not None
    assert (halt.stop_reason, halt.node, halt.trigger.turn) == ("max_rounds", "check_convergence", 20)


def test_a_check_that_says_the_same_each_round_is_no_loop() -> None:
    # "User-configured max_rounds (5-15)": rounds end a deliberation, not handovers
    raws: list[Raw] = [{"type": "run.started", "budgets": {"maxRounds": 10}}]
    for n in range(1, 12):
        raws.append({"node": "persona", "round": n, "output": f"Argument {n}: {'xyz'[n % 3] * (n + 5)}"})
        raws.append({"node": "check_convergence", "round": n, "convergence": n / 20, "output": "Not converged."})
    halt = next(one for one in decisions(raws, DELIBERATION) if one.severity == "halt")
    assert halt.trigger is not None
    assert (halt.stop_reason, halt.trigger.turn) == ("max_rounds", 19)


@pytest.mark.parametrize("cosine", [1.0000000000000002, -0.01, -1.0])
def test_a_cosine_is_a_convergence(cosine: float) -> None:
    # "Semantic similarity > 0.85"
    assert len(decisions([{"node": "check", "round": 1, "convergence": cosine}], DELIBERATION)) == (cosine > 1)


@pytest.mark.parametrize("side", [{"progress": {"convergence_score": 0.2}}, {"artifact": {"paper.md": "We hold."}}])
def test_a_deliberation_that_does_not_converge_ends_by_its_rounds(side: Raw) -> None:
    # "Convergence never reached → Layer 3 catches it"; "default: 7"
    turns = [{"node": "check_convergence", "output": f"view {'x' * n}", "round": n, **side} for n in range(1, 10)]
    halts = [one for one in decisions(turns, DELIBERATION) if one.severity == "halt"]
    assert [(one.code, one.stop_reason) for one in halts[:1]] == [("BUDGET005", "max_rounds")]
    assert short(halts[0]).at >= 6


@pytest.mark.parametrize("side", [
    {"tool_calls": [{"name": "read_brief", "args": {}, "result": "The brief."}]},
    {"tool_calls": [{"name": "search", "args": {}, "error": "search is not available"}]},
    {"errors": ["search is not available"]},
])  # fmt: skip
def test_what_a_persona_looks_up_each_round_is_no_loop(side: Raw) -> None:
    # "Convergence never reached → Layer 3 catches it"
    turns = [
        {"node": name, "output": f"{name} holds {'x' * n}", "round": n, **side}
        for n in range(1, 10) for name in ("lawyer", "skeptic", "check_convergence")
    ]  # fmt: skip
    halts = [one for one in decisions(turns, DELIBERATION) if one.severity == "halt"]
    assert [(one.code, one.stop_reason) for one in halts[:1]] == [("BUDGET005", "max_rounds")]
