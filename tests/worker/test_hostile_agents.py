"""A watched agent can write any event of its run but an operator's: what it cannot gain by that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from streamproc import Monitor
from streamproc.core.refusal import COMMANDS_MAX, OUTDATED, STRANGER
from streamproc.errors import InvalidPolicy, InvalidSettings, Problem
from streamproc.model.wire import BudgetReached
from streamproc.policy import Policy, load_policy
from streamproc.policy.files import Layer
from streamproc.replay.log import LogReplay
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.settings import load_settings
from streamproc.worker.codec import encode_run, peek_run
from streamproc.worker.eviction import FINISHED, HALTED
from streamproc.worker.limits import FINISHED_KEEP_MS
from tests.feeding import Feed, Raw, event_of, halts, reported, run_with
from tests.replay.records import record
from tests.worker.running import honest_run, looping_run
from tests.worker.test_tables import clocked, end, runs, step, write

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

STUCK: Final[list[Raw]] = [{"node": "coder", "output": "I will try again."}] * 3
STOP: Final[Raw] = {"type": "operator.stop", "by": "ada", "reason": "abuse"}
RESUME: Final[Raw] = {"type": "operator.resume", "by": "ada"}
FINISH: Final[Raw] = {"type": "run.finished"}
AGAIN: Final[list[Raw]] = [FINISH, {"type": "run.started"}]
NOON_MS: Final = 1_769_860_800_000


def steps(first: int, last: int, **fields: Any) -> list[Raw]:
    return [{"node": "coder", "output": f"step {n}"} | fields for n in range(first, last)]


def spends(number: int, cost: str = "1") -> list[Raw]:
    return steps(0, number, usage={"cost_usd": cost})


def started(**fields: Any) -> Raw:
    return {"type": "run.started", **fields}


# A halt.


@pytest.mark.parametrize("halting", [STUCK, [*steps(0, 2), STOP], [STOP]], ids=["a detector", "a stop", "a stop first"])
def test_a_halted_run_stays_halted_when_its_id_is_used_again(halting: list[Raw]) -> None:
    feed = Feed()
    feed.all(halting)
    code, turns = feed.state.escalation.halt_code.get(), feed.state.turns

    feed.all([*AGAIN, *steps(5, 9), *AGAIN, *steps(9, 12)])

    assert feed.engine.status(feed.state, "r").status == "halted"
    assert (feed.state.escalation.halt_code.get(), feed.state.turns, feed.state.late) == (code, turns + 7, 0)
    assert feed.engine.next_deadline(feed.state) is None
    assert feed.state.ignored_events == 2
    assert [one.type for one in feed.raw(RESUME)] == ["run.resumed"]
    assert feed.engine.status(feed.state, "r").status == "running"


def test_the_status_of_a_halted_run_keeps_its_reason_in_its_second_life() -> None:
    monitor = Monitor()
    for raw in [*STUCK, *AGAIN, *steps(0, 2)]:
        monitor.feed({"run_id": "r", **raw})
    status = monitor.status("r")
    assert status is not None
    assert (status.status, status.severity, status.halt and status.halt.code) == ("halted", "halt", "LOOP001")


def test_a_halted_run_that_continues_in_a_second_life_is_escalated() -> None:
    assert reported([*steps(0, 3), STOP, *AGAIN, *steps(3, 120)])[-1] == ("OPERATOR002", "warn", 103)


def test_a_stop_of_a_finished_run_halts_its_second_life() -> None:
    feed = Feed()
    assert [one.code for one in feed.all([*steps(0, 2), FINISH, STOP, started(), *steps(2, 9)])] == ["OPERATOR001"]
    assert feed.engine.status(feed.state, "r").status == "halted"


def test_a_run_on_probation_stays_on_probation_in_its_second_life() -> None:
    feed = Feed()
    found = feed.all([*STUCK, RESUME, *AGAIN, *STUCK[:2]])
    assert (found[-1].code, found[-1].severity, found[-1].terminal_status) == ("LOOP001", "halt", "escalated")


def test_a_worker_keeps_a_halted_run_that_has_finished_as_long_as_an_idle_one() -> None:
    for offset in (3, -1):
        states = [run_with(offset=offset, finished=True, halted=halted) for halted in (-1, 0, 9)]
        seen = [peek_run(encode_run(state, b"{}")) for state in states]
        assert seen == [(offset, FINISHED), (offset, HALTED), (offset, HALTED)]


def test_a_worker_removes_a_halted_run_that_has_finished_no_sooner_than_an_idle_one() -> None:
    run_limits, now_ms = clocked()
    mine = runs(run_limits)
    step(mine, [*looping_run("stuck", 3), end("stuck"), *honest_run("done", 2), end("done")])
    write(mine)

    now_ms[0] += FINISHED_KEEP_MS + 1
    step(mine, honest_run("other", 1), 20)
    write(mine)

    assert b"done" not in mine
    assert b"stuck" in mine


def test_a_halt_survives_a_second_life_across_restarts() -> None:
    feed = Feed()
    for raw in [*STUCK, *AGAIN, *steps(0, 3)]:
        feed.raw(raw)
        feed.restart()
    assert feed.state.halted >= 0


# The scope.


def test_the_scope_of_a_run_is_final_across_its_lives() -> None:
    first = {"workflow": "build", "tenant": "acme", "user": "eve", "tier": "free", "session_id": "s"}
    other = {name: f"other-{value}" for name, value in first.items()}
    feed = Feed()
    feed.all([started(**first), *steps(0, 1), FINISH, started(**other), *steps(1, 3, **other)])
    state = feed.state
    scope = state.scope
    assert (scope.workflow, scope.tenant, scope.user, scope.named_tier, scope.session) == tuple(first.values())
    assert state.turns == 2


def test_a_run_stays_a_child_of_its_closed_session_in_its_second_life() -> None:
    feed = Feed()
    feed.raw(started(session_id="s", parent_run_id="root"))
    feed.event(BudgetReached(w=1, run_id="r", event_id="b", account="session:s", rung="restrict", unit="tokens"))

    feed.all(AGAIN)

    assert feed.state.scope.child
    [rejected] = feed.raw({"type": "task.delegated", "tasks": ["t"]})
    assert rejected.type == "delegation.rejected"


# Budgets.

TWO_DOLLARS: Final = load_policy({"budgets": {"maxCostUsd": "2"}})
OVERRIDABLE: Final = load_policy({"budgets": {"maxCostUsd": {"limit": "2", "overridable": True}}})
COST: Final = {"maxCostUsd": "5"}


def halted_at(raws: list[Raw], policy: Any = TWO_DOLLARS) -> list[int]:
    return [one.at for one in halts(raws, policy)]


@pytest.mark.parametrize(("declared", "policy", "turn"), [
    (COST, TWO_DOLLARS, 2), ({"maxCostUsd": "1"}, TWO_DOLLARS, 1), ({"maxSteps": 3}, load_policy(), 3),
    (COST, OVERRIDABLE, 5), ({}, OVERRIDABLE, 2),
])  # fmt: skip
def test_a_run_raises_a_budget_of_the_policy_only_if_the_policy_lets_it(declared: Raw, policy: Any, turn: int) -> None:
    """It may lower one, and declare one that the policy does not set."""
    assert halted_at([started(budgets=declared), *spends(9)], policy) == [turn]


@pytest.mark.parametrize("policy", [TWO_DOLLARS, OVERRIDABLE, load_policy()])
def test_a_later_start_does_not_change_the_budgets(policy: Any) -> None:
    raws = [started(budgets={"maxCostUsd": "1"}), *spends(1), started(budgets=COST, tier="enterprise"), *spends(8)]
    assert halted_at(raws, policy) == [1]


def test_a_later_start_does_not_restart_the_iterations_of_a_cycle() -> None:
    graph = {"edges": [["a", "b"], ["b", "a"], ["b", "end"]]}
    again = started(graph=graph, budgets={"maxCycleIterations": 2})
    turns = [{"node": node, "output": f"{node}{n}"} for n in range(6) for node in "ab"]
    raws = [again, *(raw for turn in turns for raw in (turn, again))]
    assert [one.code for one in halts(raws)] == ["BUDGET003"]


def test_graphs_that_a_run_declares_later_do_not_push_out_the_cycle_in_which_it_loops() -> None:
    graph = {"edges": [["a", "b"], ["b", "a"], ["b", "end"]]}
    others = [started(graph={"edges": [[f"x{n}", f"y{n}"], [f"y{n}", f"x{n}"], [f"y{n}", "end"]]}) for n in range(60)]
    turns = [{"node": node, "output": f"{node}{n}"} for n in range(6) for node in "ab"]
    raws = [started(graph=graph, budgets={"maxCycleIterations": 2}), *turns[:2]]
    raws += [raw for n, turn in enumerate(turns[2:]) for raw in (*others[6 * n : 6 * n + 6], turn)]
    assert [one.code for one in halts(raws)] == ["BUDGET003"]


def test_the_status_names_the_budgets_that_a_run_could_not_raise() -> None:
    feed = Feed(load_policy({"budgets": {"maxCostUsd": "2", "maxSteps": 9, "maxRounds": 5}}))
    feed.raw(started(budgets={"maxCostUsd": "3", "maxSteps": 8, "maxRounds": 6, "maxTokens": 4}))
    assert feed.engine.status(feed.state, "r").capped_budgets == ["maxCostUsd", "maxRounds"]
    assert feed.state.scope.budgets == {"maxSteps": 8, "maxTokens": 4}


def test_a_budget_counts_under_a_scope_that_the_run_names_later() -> None:
    policy = load_policy({"tenants": {"acme": {"budgets": {"maxCostUsd": "2"}}}})
    assert halted_at([started(budgets=COST), *spends(1), *steps(20, 21, tenant="acme"), *spends(8)], policy) == [3]


GRANT: Final[Raw] = RESUME | {"grant": {"cost": "4"}}


@pytest.mark.parametrize("raws", [
    [started(budgets=COST), *spends(3), GRANT, started(budgets=COST), *spends(9)],
    [*spends(3), GRANT, *(raw | {"tenant": "acme"} for raw in spends(9))],
], ids=["a budget that is declared again", "a scope that is named later"])  # fmt: skip
def test_a_grant_adds_to_the_limit_of_the_policy_and_is_not_taken_back(raws: list[Raw]) -> None:
    assert halted_at(raws) == [2, 7]


def test_a_limit_of_a_later_layer_may_be_raised_only_if_that_layer_says_so() -> None:
    strict = {"tenants": {"acme": {"budgets": {"maxCostUsd": "1"}}}}
    policy = load_policy({"budgets": {"maxCostUsd": {"limit": "2", "overridable": True}}} | strict)
    assert halted_at([started(budgets=COST, tenant="acme"), *spends(9)], policy) == [1]
    assert halted_at([started(budgets=COST, tenant="other"), *spends(9)], policy) == [5]


def test_one_run_cannot_raise_the_budget_of_a_session_for_another() -> None:
    monitor = Monitor({"workflows": {"strict": {"budgets": {"maxSessionTokens": 500}}}})
    rich = {"run_id": "a", "session_id": "s"}
    monitor.feed(rich, type="run.started", budgets={"maxSessionTokens": 1_000_000})
    monitor.feed(type="run.started", run_id="b", session_id="s", workflow="strict")
    found = monitor.feed(run_id="b", node="coder", usage={"total_tokens": 600})
    assert "halt" in {control.severity for control in found if control.run_id == "b"}


def test_the_presets_let_users_override_what_their_requirements_say() -> None:
    presets = ("loop-safety", "deliberation", "planner")
    assert {name: load_policy(name).effective()["overridable"] for name in presets} == {
        "loop-safety": ["maxCycleIterations", "maxTurnsPerNode", "turnTimeoutMs"],
        "deliberation": ["maxRounds"],
        "planner": [],
    }


# Tiers.

TIERS: Final[Raw] = {
    "budgets": {"maxCostUsd": "2"},
    "tiers": {"gold": {"budgets": {"maxCostUsd": "6"}}, "tin": {"budgets": {"maxCostUsd": "1", "maxSteps": 9}}},
    "tenants": {"acme": {"tier": "gold"}},
    "users": {"eve": {"tier": "tin"}},
}


@pytest.mark.parametrize(("scope", "turn"), [
    ({}, 2), ({"tier": "gold"}, 2), ({"tier": "tin"}, 1), ({"tier": "nonesuch"}, 2), ({"tenant": "acme"}, 6),
    ({"tenant": "acme", "tier": "tin"}, 6), ({"tenant": "acme", "user": "eve", "tier": "gold"}, 1),
    ({"tenant": "other", "tier": "gold"}, 2),
])  # fmt: skip
def test_the_policy_decides_the_tier_of_a_run(scope: Raw, turn: int) -> None:
    policy = load_policy(TIERS)
    assert halted_at([started(**scope), *spends(9)], policy) == [turn]
    assert halted_at(steps(0, 9, usage={"cost_usd": "1"}, **scope), policy) == [turn]
    assert policy.effective(**scope)["budgets"]["maxCostUsd"] == turn * 1_000_000


def test_a_run_names_its_tier_where_the_policy_believes_it() -> None:
    policy = load_policy(TIERS | {"tier_from": "run"})
    assert halted_at([started(tier="gold"), *spends(9)], policy) == [6]
    assert halted_at([started(tier="gold", user="eve"), *spends(9)], policy) == [1]


def test_a_tier_that_a_run_names_later_raises_neither_a_declared_nor_a_granted_budget() -> None:
    policy = load_policy(TIERS)
    assert halted_at([started(budgets={"maxSteps": 3}), *steps(0, 9, tier="tin")], policy) == [3]
    granted = [*spends(3), RESUME | {"grant": {"cost": "1"}}]
    assert halted_at([*granted, *steps(3, 9, usage={"cost_usd": "1"}, tier="gold")], policy) == [2, 4]


def test_the_last_layer_decides_whether_runs_are_believed_about_their_tier() -> None:
    assert Policy([Layer(tier_from="policy"), Layer(tier_from="run")]).tiers.believed
    assert not Policy([Layer(tier_from="run"), Layer(tier_from="policy")]).tiers.believed


def test_a_tier_that_a_run_names_turns_no_detector_off() -> None:
    tiers = {"tiers": {"gold": {"detectors": {"LOOP001": False, "LOOP008": False}}}}
    assert halts([started(tier="gold"), *STUCK], load_policy(tiers)) != []
    assert halts([started(tier="gold"), *STUCK], load_policy(tiers | {"tier_from": "run"})) == []


def test_a_tier_named_in_the_first_life_lowers_the_budget_of_the_second() -> None:
    raws = [started(tier="tin"), *spends(1), FINISH, started(tier="gold"), *spends(9)]
    assert halted_at(raws, load_policy(TIERS)) == [1]


# Commands that are sent again.


def command(number: int, kind: str = "operator.resume", at_ms: int = NOON_MS) -> Raw:
    return {"type": kind, "by": "ada", "event_id": f"command-{number}", "at": at_ms + number}


def refused(feed: Feed, raw: Raw) -> Problem | None:
    """Step an event, and return why the run refuses it; None: it does not."""
    event = event_of({"run_id": "r", **raw})
    outcome = feed.outcome(event, event.at)
    assert outcome.refused is None or (outcome.decisions, outcome.charges) == ([], [])
    return outcome.refused


def test_a_resume_that_is_sent_again_after_many_events_lifts_nothing() -> None:
    feed = Feed()
    once = [*steps(0, 1), command(0, "operator.stop"), command(1)]
    feed.all(once)
    feed.all([raw | {"event_id": f"turn-{n}"} for n, raw in enumerate(steps(1, 80))])
    assert not feed.raw(steps(1, 2)[0] | {"event_id": "turn-0"})
    assert feed.state.duplicates == 0, "ids of events are forgotten by then"
    feed.raw(command(2, "operator.stop"))

    assert feed.raw(command(1)) == []

    assert feed.engine.status(feed.state, "r").status == "halted"
    assert feed.state.duplicates == 1


def test_a_command_that_the_run_has_forgotten_is_refused_and_a_newer_one_is_not() -> None:
    feed = Feed()
    for number in range(0, 3 * COMMANDS_MAX, 2):
        feed.all([command(number, "operator.stop"), command(number + 1)])
        feed.restart()
    feed.raw(command(500, "operator.stop"))
    for number in range(1, 3 * COMMANDS_MAX, 2):
        assert feed.raw(command(number)) == []
    assert refused(feed, command(1, at_ms=NOON_MS)) == OUTDATED
    assert feed.state.halted >= 0
    assert len(feed.state.cold.command_ids) == COMMANDS_MAX
    assert [one.type for one in feed.raw(command(501))] == ["run.resumed"]


def test_of_too_many_commands_the_oldest_by_their_own_time_is_forgotten() -> None:
    feed = Feed()
    for number in (900, *range(1, COMMANDS_MAX + 1)):
        assert refused(feed, command(number, "operator.stop")) is None
    assert refused(feed, command(1)) is OUTDATED
    assert feed.raw(command(900)) == []  # it was the first to arrive, and is known
    assert [one.type for one in feed.raw(command(500))] == ["run.resumed"]


def test_a_command_without_a_time_does_not_bring_forgotten_ones_back() -> None:
    feed = Feed()
    feed.all([command(number, "operator.stop") for number in range(1, COMMANDS_MAX + 3)])
    assert refused(feed, command(1)) is OUTDATED

    feed.raw({"type": "operator.stop", "by": "ada", "event_id": "without a time"})

    assert refused(feed, command(2)) is OUTDATED
    assert feed.state.halted >= 0


@pytest.mark.parametrize("commands", [2, COMMANDS_MAX + 4])
def test_a_resume_of_an_earlier_life_lifts_nothing(commands: int) -> None:
    feed = Feed()
    feed.raw(steps(0, 1)[0])
    for number in range(0, commands, 2):
        feed.all([command(number, "operator.stop"), command(number + 1)])
    feed.all([*AGAIN, *(raw | {"event_id": f"turn-{n}"} for n, raw in enumerate(steps(1, 80))), *STUCK])
    assert (feed.state.id_reuses, feed.state.halted >= 0) == (1, True)

    assert feed.raw(command(1)) == []
    assert feed.state.halted >= 0


def test_a_command_of_a_slower_clock_is_accepted() -> None:
    feed = Feed()
    for number in range(COMMANDS_MAX):
        feed.raw(command(number, "operator.stop", at_ms=NOON_MS + 3_600_000 * number))
    late_ms = NOON_MS + 3_600_000 * COMMANDS_MAX
    feed.raw(command(900, "operator.stop", at_ms=late_ms))
    assert [one.type for one in feed.raw(command(901, at_ms=late_ms - 240_000))] == ["run.resumed"]


# Tokens.

TOKEN: Final = {"token": "0123456789abcdef"}


@pytest.mark.parametrize("stranger", [{}, {"token": "another"}, {"token": "0123456789abcdeF"}])
def test_events_without_the_token_of_a_bound_run_change_nothing(stranger: Raw) -> None:
    feed = Feed()
    feed.all([raw | TOKEN for raw in steps(0, 2)])
    before = feed.stored

    found = [refused(feed, raw | stranger) for raw in (*steps(2, 4, event_id="e"), FINISH, started(tenant="x"))]

    assert found == [STRANGER] * 4
    assert feed.state.strangers == 4
    assert feed.engine.status(feed.state, "r").strangers == 4
    feed.state.strangers = 0
    assert feed.stored == before
    assert [one.code for one in feed.all([raw | TOKEN for raw in STUCK])][-1] == "LOOP001"


def test_commands_and_the_workers_events_need_no_token() -> None:
    feed = Feed()
    feed.all([raw | TOKEN for raw in steps(0, 2)])
    found = feed.all([STOP, {"type": "halt.acknowledged"}, RESUME, {"type": "deadline", "due_at": NOON_MS}])
    found += feed.event(BudgetReached(w=1, run_id="r", account="user:eve", rung="exceeded", used=9, limit=9))
    assert [one.code for one in found] == ["OPERATOR001", "OPERATOR003", "BUDGET010"]
    assert feed.state.strangers == 0


def test_a_stop_before_the_first_event_does_not_decide_who_owns_a_run() -> None:
    feed = Feed()
    feed.all([STOP, *steps(0, 1, **TOKEN), *steps(1, 2)])
    assert (feed.state.turns, feed.state.strangers) == (1, 1)


def test_a_run_without_a_token_cannot_be_taken_over_by_one() -> None:
    feed = Feed()
    feed.all([*steps(0, 1), *steps(1, 3, **TOKEN), *AGAIN, *steps(3, 5, **TOKEN), *STUCK])
    assert feed.state.strangers == 0
    assert feed.engine.status(feed.state, "r").status == "halted"


def test_a_bound_run_stays_bound_in_its_second_life_and_across_restarts() -> None:
    feed = Feed()
    feed.all([raw | TOKEN for raw in [*steps(0, 2), *AGAIN]])
    feed.restart()
    feed.all([*steps(2, 3), *steps(3, 4, **TOKEN)])
    assert (feed.state.turns, feed.state.strangers) == (1, 1)
    feed.all([raw | TOKEN for raw in AGAIN])
    assert (feed.state.id_reuses, feed.state.strangers) == (2, 1)


def test_a_state_holds_no_token() -> None:
    feed = Feed()
    feed.all([raw | TOKEN for raw in [*steps(0, 2), *AGAIN]])
    assert TOKEN["token"].encode() not in feed.stored
    for shift in range(8):
        assert TOKEN["token"][1:5].encode() not in (feed.state.owner << shift).to_bytes(9)


def test_scan_and_replay_apply_the_token_of_a_run(tmp_path: Path) -> None:
    raws = [raw | {"run_id": "r", "token": "mine"} for raw in STUCK]
    raws.insert(1, {"run_id": "r", "type": "run.finished"})
    path = tmp_path / "turns.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, raws)))
    records = [record(raw, offset=n, at_ms=NOON_MS) for n, raw in enumerate(raws)]
    replay = LogReplay(load_policy().engine(), event_bytes_max=9_999)

    decided = {"scan": [*Scan([Source(path)], load_policy())], "replay": [*replay.decide(records)]}

    assert {name: [one.code for one in found] for name, found in decided.items()} == {
        name: ["LOOP001", "LOOP001"] for name in decided
    }
    assert (replay.refused, replay.turns) == (1, {"r": 3})


def test_a_short_secret_of_runs_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_RUN_TOKEN") as invalid:
        load_settings(run_token="hunter2")
    assert "hunter2" not in str(invalid.value)


# Mistakes in a policy.


@pytest.mark.parametrize(
    ("text", "field", "what"),
    [
        ({"budgets": {"maxSteps": {"limit": 5, "overidable": True}}}, "budgets.maxSteps", "overridable: true"),
        ({"budgets": {"maxSteps": {"overridable": True}}}, "budgets.maxSteps", "limit: LIMIT"),
        ({"budgets": {"maxSteps": {"limit": 5, "overridable": "yes"}}}, "budgets.maxSteps", "overridable: true"),
        ({"budgets": {"maxRounds": {"limit": 16, "overridable": True}}}, "budgets.maxRounds", "above the ceiling 15"),
        (
            {"budgets": {"maxUserTokensPerDay": {"limit": 5, "overridable": True}}},
            "budgets.maxUserTokensPerDay",
            "a run cannot declare",
        ),
        ({"tier_from": "agent"}, "tier_from", "'policy' or 'run'"),
        ({"workflows": {"w": {"tier_from": "run"}}}, "workflows.w.tier_from", "unknown setting"),
        ({"workflows": {"w": {"tier": "pro"}}}, "workflows.w.tier", "unknown setting"),
        (
            {"tenants": {"acme": {"tier": "por"}}},
            "tenants.acme.tier",
            "no tier 'por' (there are: enterprise, free",
        ),
        ({"users": {"ada": {"tier": "por"}}}, "users.ada.tier", "no tier 'por'"),
    ],
)
def test_a_mistake_about_budgets_and_tiers_names_field_and_remedy(text: Raw, field: str, what: str) -> None:
    with pytest.raises(InvalidPolicy) as invalid:
        load_policy(text)
    [problem] = invalid.value.problems
    assert problem.field == field
    assert what in str(problem)


def test_settings_that_a_policy_does_not_use_are_no_part_of_its_hash() -> None:
    """Ids of decisions have the hash: a replay after an upgrade must find those of before."""
    [*_, layer] = load_policy({"tenants": {"a": {}}, "users": {"b": {}}}).layers
    assert {"tier", "tier_from"}.isdisjoint(re.findall(r"\w+", layer.model_dump_json()))
