"""Policies: the settings in force in each scope, and how mistakes of a file are reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamproc.detectors import DETECTORS
from streamproc.errors import InvalidPolicy, Problem
from streamproc.model.budgets import BUDGETS, budget_value, declared, find_budget, usd_micro
from streamproc.policy import Policy, load_policy
from streamproc.policy.files import MISTAKES_MAX, preset_names, read_layer
from tests.feeding import Raw, decisions, event_of, halts, reported
from tests.laws.traces import TURNS

PRESETS = ["deliberation", "loop-safety", "planner", "repair", "standard", "tickets"]
HUGE = pytest.param(10**5_000, id="huge")
SAID: list[Raw] = [{"node": "agent", "output": "again"}] * 5


@pytest.fixture
def policy_of(tmp_path: Path) -> Callable[[str], Policy]:
    """Load a policy from the text of its file."""

    def make(text: str) -> Policy:
        path = tmp_path / "policy.yaml"
        path.write_text(text, "utf-8")
        return load_policy(path)

    return make


@pytest.fixture
def mistakes_of(policy_of: Callable[[str], Policy], tmp_path: Path) -> Callable[[str], list[tuple[int, Problem]]]:
    """Return the mistakes of a file's text, each with its line."""

    def make(text: str) -> list[tuple[int, Problem]]:
        with pytest.raises(InvalidPolicy) as refusal:
            policy_of(text)
        found = []
        for problem in refusal.value.problems:
            place, _, line = problem.place.rpartition(":")
            assert place == str(tmp_path / "policy.yaml")
            assert problem.what
            found.append((int(line), problem))
        return found

    return make


# Presets.


def test_the_presets_of_the_catalogue_exist() -> None:
    assert preset_names() == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_be_loaded_by_name(name: str) -> None:
    policy = load_policy(name)
    assert policy.name == name
    assert len(policy.hash) == 16
    assert set(policy.effective()["detectors"]) == set(DETECTORS)
    assert policy.engine().step(b"", event_of({"run_id": "r", "node": "a"}), None).decisions == []


def test_standard_is_the_default() -> None:
    assert load_policy().ref == load_policy("standard").ref
    assert None not in load_policy().effective()["detectors"].values()


def test_standard_has_the_limits_of_the_detectors_pages() -> None:
    for code, limits in load_policy().effective()["detectors"].items():
        own = DETECTORS[code].Limits()
        assert limits == {name: getattr(own, name) for name in own.__slots__}


def test_standard_enforces_no_undeclared_budget() -> None:
    assert load_policy().effective()["budgets"] == {}
    rich = [turn | {"usage": {"cost_usd": "999", "duration_ms": 10**9, "input_tokens": 10**9}} for turn in TURNS]
    assert [one for one in reported([*rich, *rich]) if one.code.startswith("BUDGET")] == []


@pytest.mark.parametrize(("preset", "budgets"), [
    ("loop-safety", {"maxTurnsPerNode": 6, "maxCycleIterations": 8, "turnTimeoutMs": 600_000}),
    ("deliberation", {"maxSteps": 55, "maxRounds": 7, "maxRuntimeMs": 3_600_000, "maxCostUsd": 1_000_000}),
    ("planner", {"maxSteps": 55}), ("repair", {}), ("tickets", {}),
])  # fmt: skip
def test_a_preset_has_the_budgets_of_its_requirement(preset: str, budgets: dict[str, int]) -> None:
    assert load_policy(preset).effective()["budgets"] == budgets


@pytest.mark.parametrize(("tier", "micro"), [("free", 500_000), ("pro", 2_000_000), ("enterprise", 10_000_000)])
def test_a_tier_has_its_cost(tier: str, micro: int) -> None:
    assert load_policy().effective(tier=tier)["budgets"] == {"maxCostUsd": micro}
    assert load_policy("deliberation").effective(tier=tier)["budgets"]["maxCostUsd"] == micro


def test_loop_safety_halts_the_seventh_turn_of_a_node() -> None:
    turns = [{"node": "coder", "output": f"step {n}"} for n in range(8)]
    assert reported(turns, load_policy("loop-safety")) == [("BUDGET002", "warn", 5), ("BUDGET002", "halt", 6)]


def test_tickets_halts_the_second_of_two_equal_outputs() -> None:
    assert halts(SAID, load_policy("tickets")) == [("LOOP001", "halt", 1)]


def test_presets_combine_and_the_later_one_wins(policy_of: Callable[[str], Policy]) -> None:
    both = policy_of("presets: [deliberation, loop-safety]").effective()
    assert both["budgets"]["maxSteps"] == 55
    assert both["budgets"]["maxCycleIterations"] == 8
    assert policy_of("presets: [planner, loop-safety]").effective()["on_stall"] == "switch_to_interactive"
    assert policy_of("presets: [loop-safety, planner]").effective()["on_stall"] == "pause"


def test_a_preset_named_twice_counts_once(policy_of: Callable[[str], Policy]) -> None:
    layers = policy_of("presets: [planner, repair, planner]").layers
    assert [layer.name for layer in layers] == ["standard", "planner", "repair", "policy"]


def test_a_looping_planner_gets_snitch_then_ask_human_then_done_partial() -> None:
    asked = [{"node": "planner", "output": f"Assess, {'x' * n}.", "decision": {"next": "researcher"}} for n in range(6)]
    [halt] = [decision for decision in decisions(asked) if decision.severity == "halt"]
    assert (halt.code, halt.action) == ("LOOP005", "snitch")
    assert halt.suggested_actions == ["snitch", "ask_human", "done_partial"]


def test_no_policy_can_raise_the_hard_cap(mistakes_of: Callable[[str], list[tuple[int, Problem]]]) -> None:
    off, above = mistakes_of("detectors:\n  BUDGET005: false\nbudgets: { maxRounds: 16 }\n")
    assert (off[0], off[1].what) == (2, "cannot be turned off: it enforces the hard cap of 15")
    assert (above[0], above[1].what) == (3, "16 is above the ceiling 15")


# Layers.

LAYERS = """
name: ours
tier_from: run
version: 3
on_stall: pause
budgets: { maxSteps: 100 }
detectors: { LOOP001: { halt: 4 }, LOOP008: false }
workflows:
  build: { budgets: { maxSteps: 90 }, detectors: { LOOP001: { halt: 5 } } }
tenants:
  acme: { budgets: { maxSteps: 80 }, detectors: { LOOP001: { warn: 1 } } }
tiers:
  gold: { budgets: { maxSteps: 70 }, on_stall: spawn_reviewer, detectors: { LOOP002: false } }
"""


@pytest.mark.parametrize(("scope", "steps", "repeats"), [
    ({}, 100, (2, 4)), ({"workflow": "other", "tenant": "other", "tier": "other"}, 100, (2, 4)),
    ({"workflow": "build"}, 90, (2, 5)), ({"workflow": "build", "tenant": "acme"}, 80, (1, 5)),
    ({"workflow": "build", "tenant": "acme", "tier": "gold"}, 70, (1, 5)), ({"tenant": "acme"}, 80, (1, 4)),
    ({"tier": "gold"}, 70, (2, 4)),
])  # fmt: skip
def test_the_narrower_scope_wins(
    policy_of: Callable[[str], Policy], scope: dict[str, str], steps: int, repeats: tuple[int, int]
) -> None:
    found = policy_of(LAYERS).effective(**scope)
    assert found["budgets"]["maxSteps"] == steps
    assert (found["detectors"]["LOOP001"]["warn"], found["detectors"]["LOOP001"]["halt"]) == repeats
    assert found["on_stall"] == ("spawn_reviewer" if "tier" in scope and scope["tier"] == "gold" else "pause")
    assert (found["detectors"]["LOOP002"] is None) == (scope.get("tier") == "gold")


def test_a_runs_scope_chooses_its_rules(policy_of: Callable[[str], Policy]) -> None:
    policy = policy_of(LAYERS)
    assert halts(SAID, policy) == [("LOOP001", "halt", 3)]
    assert halts([{"type": "run.started", "workflow": "build"}, *SAID], policy) == [("LOOP001", "halt", 4)]
    named = [SAID[0] | {"workflow": "build"}, *SAID[1:]]
    assert halts(named, policy) == [("LOOP001", "halt", 4)]


def test_a_detector_can_be_switched_off_and_on_again(policy_of: Callable[[str], Policy]) -> None:
    off = policy_of("detectors: { LOOP001: false, LOOP008: false }\nworkflows: { w: { detectors: { LOOP001: true } } }")
    assert halts(SAID, off) == []
    assert halts([{"type": "run.started", "workflow": "w"}, *SAID], off) == [("LOOP001", "halt", 2)]


def test_a_level_can_be_switched_off(policy_of: Callable[[str], Policy]) -> None:
    assert reported(SAID, policy_of("detectors: { LOOP001: { warn: 0, halt: 3 } }")) == [("LOOP001", "halt", 2)]
    alone = "detectors: { LOOP001: { warn: 2, halt: 0 }, LOOP008: false }"
    assert reported(SAID, policy_of(alone)) == [("LOOP001", "warn", 1)]


@pytest.mark.parametrize("choice", ["pause", "switch_to_interactive", "spawn_reviewer", "retry_with_new_provider"])
def test_on_stall_is_the_action_of_a_stuck_run(policy_of: Callable[[str], Policy], choice: str) -> None:
    halt = decisions(SAID, policy_of(f"on_stall: {choice}"))[-1]
    assert halt.action == choice == halt.suggested_actions[0]
    assert {"ask_human", "done_partial"} < set(halt.suggested_actions)


def test_an_action_of_its_own_wins_over_on_stall(policy_of: Callable[[str], Policy]) -> None:
    halt = decisions(SAID, policy_of("on_stall: pause\nactions: { LOOP001: snitch }"))[-1]
    assert halt.action == "snitch"


def test_an_exceeded_cost_budget_forces_a_synthesis() -> None:
    spent = [{"node": "agent", "output": "x", "tier": "free", "usage": {"cost_usd": 1}}]
    [halt] = decisions(spent)
    assert (halt.action, halt.terminal_status, halt.halt_reason) == (
        "force_synthesis",
        "budget_exceeded",
        "budget_exceeded",
    )


def test_falling_metrics_must_be_listed(policy_of: Callable[[str], Policy]) -> None:
    turns = [
        turn
        for n in range(5)
        for turn in ({"node": "c", "progress": {"altitude": 9 - n}}, {"node": "c", "artifact": "+a"})
    ]
    assert halts(turns) == [("STALL001", "halt", 5)]
    assert halts(turns, policy_of("lower_is_better: [altitude]")) == []


# Names, versions, hashes.


def test_a_decision_names_its_policy(policy_of: Callable[[str], Policy]) -> None:
    policy = policy_of(LAYERS)
    assert (policy.name, policy.version) == ("ours", "3")
    told_by = [decision.policy for decision in decisions(SAID, policy)]
    assert told_by == [policy.ref] * len(told_by)
    assert told_by


@pytest.mark.parametrize("same", [
    "# a comment\nbudgets: { maxSteps: 5, maxTokens: 9 }\non_stall: pause",
    "on_stall: pause\n\nbudgets:\n  maxTokens: 9\n  maxSteps: 5",
    'budgets: {"maxSteps": 5, "maxTokens": 9}\non_stall: "pause"\ndetectors: {}',
])  # fmt: skip
def test_formatting_does_not_change_the_hash(policy_of: Callable[[str], Policy], same: str) -> None:
    hashed = policy_of("budgets: { maxSteps: 5, maxTokens: 9 }\non_stall: pause").hash
    assert policy_of(same).hash == hashed == policy_of(same).hash


def test_when_a_run_is_lost_decides_nothing_and_changes_no_hash(policy_of: Callable[[str], Policy]) -> None:
    """A decision's id has the hash in it: lists of runs may change without new ids."""
    plain, patient = policy_of("name: p"), policy_of("name: p\nlost_after_s: 86400")
    assert (plain.lost_after_s, patient.lost_after_s) == (3_600, 86_400)
    assert policy_of("name: p\nlost_after_s: 0").lost_after_s == 0
    assert plain.hash == patient.hash


def test_excerpts_of_evidence_are_asked_for_by_the_last_layer_and_change_no_hash(
    policy_of: Callable[[str], Policy],
) -> None:
    plain, asking = policy_of("name: p"), policy_of("name: p\nevidence_excerpts: true")
    assert (plain.evidence_excerpts, asking.evidence_excerpts) == (False, True)
    assert plain.hash == asking.hash
    with pytest.raises(InvalidPolicy, match="evidence_excerpts"):
        policy_of("name: p\nevidence_excerpts: perhaps")


@pytest.mark.parametrize("seconds", ["-1", "60", "1199", "soon"])
def test_a_run_is_not_lost_before_its_status_is_published_again(
    policy_of: Callable[[str], Policy], seconds: str
) -> None:
    with pytest.raises(InvalidPolicy, match="lost_after_s"):
        policy_of(f"name: p\nlost_after_s: {seconds}")


def test_every_setting_changes_the_hash(policy_of: Callable[[str], Policy]) -> None:
    texts = ["{}", "name: a", "version: 2", "budgets: { maxSteps: 5 }", "budgets: { maxSteps: 6 }",
             "budgets: { maxTokens: 5 }", "detectors: { LOOP001: false }", "detectors: { LOOP001: true }",
             "detectors: { LOOP001: { warn: 1 } }", "workflows: { a: { on_stall: pause } }",
             "tenants: { a: { on_stall: pause } }", "tiers: { a: { on_stall: pause } }", "on_stall: pause",
             "lower_is_better: [loss]", "actions: { LOOP001: snitch }", "presets: [planner]", "presets: [repair]",
             "presets: [repair, planner]", "presets: [planner, repair]"]  # fmt: skip
    hashes = [policy_of(text).hash for text in texts] + [load_policy(name).hash for name in PRESETS]
    assert len(set(hashes)) == len(hashes)


def test_another_policy_gives_other_ids(policy_of: Callable[[str], Policy]) -> None:
    one, other = decisions(SAID), decisions(SAID, policy_of("budgets: { maxTokens: 5 }"))
    assert [decision.code for decision in one] == [decision.code for decision in other]
    assert {decision.id for decision in one}.isdisjoint(decision.id for decision in other)


# Mistakes.

WRONG = """name: wrong
version: [1]
presets: [standard, nonesuch]
on_stall: explode
wanrings: true
budgets:
  maxStepz: 5
  maxSteps: 0
  maxRounds: 16
  maxCostUsd: -1
  maxTokens: .inf
actions:
  LOOP999: pause
  LOOP001: explode
detectors:
  LOOP404: true
  LOOP001: { halts: 3, warn: many }
  LOOP002: { said_halt: -1 }
  LOOP003: sometimes
workflows:
  build:
    budgets: { maxRounds: 99 }
    dectectors: {}
tiers:
  gold:
    detectors:
      LOOP001: true
      STALL001: { warn: 1.5 }
"""


def test_every_mistake_of_a_file_is_reported_at_once_with_its_line(
    mistakes_of: Callable[[str], list[tuple[int, Problem]]],
) -> None:
    found = mistakes_of(WRONG)
    assert [line for line, _ in found] == sorted(line for line, _ in found)
    assert {(line, problem.field) for line, problem in found} >= {
        (2, "version.str"), (3, "presets.1"), (4, "on_stall"), (5, "wanrings"), (7, "budgets.maxStepz"),
        (8, "budgets.maxSteps"), (9, "budgets.maxRounds"), (10, "budgets.maxCostUsd"), (11, "budgets.maxTokens"),
        (13, "actions.LOOP999"), (14, "actions.LOOP001"), (16, "detectors.LOOP404"), (17, "detectors.LOOP001.halts"),
        (17, "detectors.LOOP001.warn"), (18, "detectors.LOOP002.said_halt"), (19, "detectors.LOOP003"),
        (22, "workflows.build.budgets.maxRounds"), (23, "workflows.build.dectectors"),
        (28, "tiers.gold.detectors.STALL001.warn"),
    }  # fmt: skip


@pytest.mark.parametrize("line", range(2, 29))
def test_no_mistake_hides_another(mistakes_of: Callable[[str], list[tuple[int, Problem]]], line: int) -> None:
    """Removing one line does not change the mistakes of the others."""
    lines = WRONG.splitlines()
    whole = {problem.field for number, problem in mistakes_of(WRONG) if number != line}
    if lines[line - 1].endswith(":"):
        return
    rest = {problem.field for _, problem in mistakes_of("\n".join([*lines[: line - 1], "", *lines[line:]]))}
    assert rest == whole


@pytest.mark.parametrize(("text", "line", "what"), [
    ("", 0, "expected a mapping"), ("- standard", 0, "expected a mapping"), ("just words", 0, "expected a mapping"),
    ("name: a\n\tbudgets: {}", 2, "not YAML"), ("name: [a", 1, "not YAML"), ("a: b: c", 1, "not YAML"),
    ("name: a\nname: b", 2, "is set twice"), ("budgets:\n  maxSteps: 5\n  maxSteps: 6", 3, "is set twice"),
    ("name: a\n---\nname: b", 2, "not YAML"), ("name: !!python/object:os.system x", 1, "not YAML"),
    ("version: 2026-13-45", 0, "not YAML"), (f"version: {'9' * 5_000}", 0, "not YAML"),
    (f"budgets: {'[' * 1_000}{']' * 1_000}", 0, "nested too deeply"),
    (f"detectors: {'9' * 4_000}x", 1, "4001 characters"), ("budgets: &again\n  maxSteps: *again", 2, "contains itself"),
    ("detectors: &again\n  LOOP001: *again", 2, "contains itself"), ("name: ''", 1, "at least 1 character"),
    ("budgets: ", 1, "valid dictionary"), ("tenants: { acme: 5 }", 1, "valid dictionary"),
    ("tenants: { 5: {} }", 1, "valid string"),
])  # fmt: skip
def test_an_unusable_file_is_reported_with_its_line(
    policy_of: Callable[[str], Policy], text: str, line: int, what: str
) -> None:
    with pytest.raises(InvalidPolicy) as refusal:
        policy_of(text)
    found = {problem.place.rpartition(":")[2]: problem.what for problem in refusal.value.problems}
    assert any(what in said for said in found.values())
    if line:
        assert str(line) in found


@pytest.mark.parametrize("source", ["nonesuch", "nonesuch.yaml", ""])
def test_a_missing_policy_is_reported_with_the_presets(source: str) -> None:
    with pytest.raises(InvalidPolicy, match=r"cannot be read.*loop-safety"):
        load_policy(source)


def test_a_binary_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidPolicy, match="cannot be read"):
        load_policy(tmp_path / "policy.yaml")


# Budgets.


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: str(budget.name))
def test_a_budget_is_found_by_all_its_names(budget: Any) -> None:
    for name in (budget.name, *budget.aliases):
        spellings = (name, name.upper(), "".join(f"_{c.lower()}" if c.isupper() else c for c in name))
        assert {find_budget(spelling) for spelling in spellings} == {budget}
    assert budget_value(budget, 5) == (5_000_000 if budget.unit == "micro_usd" else 5)


@pytest.mark.parametrize("value", [True, None, "5", [5], 2.5, float("nan"), float("inf"), 0, -1, 2**53 + 1, HUGE])
def test_a_budget_is_a_positive_whole_number(value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        budget_value(find_budget("maxSteps"), value)


@pytest.mark.parametrize("value", [True, None, [1], "one", "", float("nan"), float("inf"), -0.01, "1e400", 10**10])
def test_money_is_an_amount_in_usd(value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        usd_micro(value)


def test_only_known_budgets_are_accepted_from_the_wire() -> None:
    came = {"maxSteps": 5, "maxRounds": 99, "maxCostUsd": 10**30, "maxTokens": -1, "steps": 7, "nonsense": 1}
    assert declared(came) == {"maxSteps": 5, "maxCostUsd": 2**53}


@pytest.mark.parametrize("one", ["{0}: 1", "budgets.{0}: 1", 'actions.{0}: "pause"', "detectors.{0}: false",
                                 "detectors.LOOP003.{0}: 2", 'tenants.{0}.tier: "gold"'])  # fmt: skip
@pytest.mark.parametrize("count", [1, MISTAKES_MAX, MISTAKES_MAX + 1, 5_000])
def test_a_file_of_nothing_but_mistakes_is_not_read_to_its_end(one: str, count: int) -> None:
    """Whoever may only look at the page can post one there."""
    path, _, value = one.partition(": ")
    *sections, name = path.split(".")
    content: dict[str, Any] = {}
    for number in range(count):
        part = content
        for section in sections:
            part = part.setdefault(section.format(f"zzz{number}"), {})
        part[name.format(f"zzz{number}")] = json.loads(value)
    with pytest.raises(InvalidPolicy) as raised:
        read_layer(json.dumps(content), "policy.yaml")
    said = [str(problem) for problem in raised.value.problems]
    assert len(said) == min(count, MISTAKES_MAX + 1)
    assert ("has more mistakes" in said[-1]) is (count > MISTAKES_MAX)
