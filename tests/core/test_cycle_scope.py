"""A loop is judged by what its own nodes do, and pays for them alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final

import pytest

from streamproc.policy import load_policy
from tests.feeding import Feed, Raw, Reported, decisions, halts, reported

CODE: Final = (("coder", "verifier"), ("verifier", "coder"), ("verifier", "end"))
DOCS: Final = (("writer", "editor"), ("editor", "writer"), ("editor", "end"))
GRAPH: Final[Raw] = {
    "type": "run.started",
    "graph": {"edges": [*CODE, *DOCS, ["planner", "coder"], ["planner", "writer"]]},
}
START_MS: Final = 1_750_000_000_000


def named_from(turns: list[Raw], before: str) -> list[Raw]:
    """Return turns that name the node that handed over to them; `before` is that of the first one."""
    sources = [before, *(turn["node"] for turn in turns)]
    return [turn | ({"from": source} if source else {}) for turn, source in zip(turns, sources, strict=False)]


def stuck_round(_: int) -> list[Raw]:
    """Return a round in which the same change fails the same tests, in the same words."""
    return [
        {"node": "coder", "output": "I have fixed the parser.", "artifact": {"parser.py": "return None"}},
        {"node": "verifier", "output": "Two tests still fail.", "tests": {"failed": ["test_a", "test_b"], "passed": 8}},
    ]


def fixing_round(number: int) -> list[Raw]:
    """Return a round in which another change repairs another test."""
    failed = [f"test_{left}" for left in range(number, 14)]
    return [
        {"node": "coder", "output": f"Step {number} is done.", "artifact": {"parser.py": f"return {number}"}},
        {"node": "verifier", "output": f"{len(failed)} left.", "tests": {"failed": failed, "passed": number}},
    ]


def docs_round(number: int) -> list[Raw]:
    """Return a round in which a page grows, and so does its score."""
    return [
        {"node": "writer", "docs": f"Chapter {number}: " + "more of it. " * number},
        {"node": "editor", "output": f"Chapter {number} is better.", "progress": {"docs_score": number / 100}},
    ]


def beside(rounds: int, *loops: Callable[[int], list[Raw]], named: bool = False) -> list[Raw]:
    """Return the rounds of loops that run at the same time, turn by turn."""
    found: list[Raw] = []
    for number in range(rounds):
        each = [loop(number) for loop in loops]
        if named:
            each = [named_from(turns, turns[-1]["node"] if number else "planner") for turns in each]
        found += chain(*zip(*each, strict=True))
    return found


def with_graph(raws: list[Raw], *, named: bool) -> list[Raw]:
    return [{"node": "planner", "output": "Fix the parser and document it."}, *raws] if named else [GRAPH, *raws]


@pytest.mark.parametrize("named", [True, False], ids=["handovers named", "declared graph"])
@pytest.mark.parametrize("policy", ["standard", "loop-safety", "planner"])
def test_progress_of_the_docs_does_not_excuse_a_coder_who_is_stuck(policy: str, named: bool) -> None:
    found = halts(with_graph(beside(8, stuck_round, docs_round, named=named), named=named), load_policy(policy))

    assert found
    assert found[0].code[:4] in ("LOOP", "STAL")
    assert found[0].at < 20  # of 32 turns: the sixth round at the latest


@pytest.mark.parametrize("named", [True, False], ids=["handovers named", "declared graph"])
@pytest.mark.parametrize("policy", ["standard", "planner"])
def test_two_loops_that_both_get_further_are_left_alone(policy: str, named: bool) -> None:
    raws = beside(12, fixing_round, docs_round, named=named)
    assert not halts(with_graph(raws, named=named), load_policy(policy))


def test_the_halt_names_the_loop_that_is_stuck() -> None:
    decision = next(one for one in decisions([GRAPH, *beside(8, stuck_round, docs_round)]) if one.severity == "halt")
    assert "verifier" in decision.message or "coder" in decision.message or "2-step" in decision.message


def test_a_loop_is_halted_at_the_same_round_as_without_another_beside_it() -> None:
    alone = halts([GRAPH, *chain(*(stuck_round(number) for number in range(8)))])[0]
    both = halts([GRAPH, *beside(8, stuck_round, docs_round)])[0]
    assert (both.at // 4, alone.at // 2) == (2, 2)


def test_what_a_person_says_starts_the_counts_of_all_loops_again() -> None:
    rounds = [beside(1, stuck_round, lambda number, at=at: docs_round(at + number)) for at in range(8)]
    asked = [turn for raws in rounds for turn in ({"type": "user.message"}, *raws)]
    assert not halts([GRAPH, *asked])
    spoken = [turn for at, raws in enumerate(rounds) for turn in ({"node": "user", "output": f"no. {at}"}, *raws)]
    assert not halts([GRAPH, *spoken])


def test_a_state_that_is_stored_after_every_turn_decides_alike() -> None:
    raws = [GRAPH, *beside(8, stuck_round, docs_round)]
    kept, stored = Feed(), Feed()
    for raw in raws:
        assert kept.raw(raw) == stored.raw(raw)
        assert stored.state.cycle_memories.inside is None
        stored.restart()
    assert kept.stored == stored.stored


# What a cycle pays for.


def costing(node: str, at_s: int, usd: float) -> Raw:
    return {"node": node, "output": f"{node} at {at_s}", "at": START_MS + 1_000 * at_s, "usage": {"cost_usd": usd}}


def test_a_cycle_does_not_pay_for_a_node_outside_of_it() -> None:
    begun = GRAPH | {"budgets": {"maxCycleCost": 3, "maxCycleRuntimeMs": 60_000}, "at": START_MS}
    raws = [begun]
    for number in range(5):
        raws += [costing("coder", 40 * number + 1, 0.1), costing("verifier", 40 * number + 5, 0.1)]
        raws += [costing("analyst", 40 * number + 39, 5)]  # outside of every cycle
    assert not halts(raws)

    own = [begun, *(costing(("coder", "verifier")[at % 2], 9 * at, 0.1) for at in range(9))]
    assert [one.code for one in halts(own)] == ["BUDGET003"]


def test_a_cycle_that_is_found_pays_from_the_run_s_beginning_but_not_for_others() -> None:
    begun: Raw = {"type": "run.started", "budgets": {"maxCycleCost": 1}, "at": START_MS}
    rounds = [costing(node, number, 0.3) for number, node in enumerate(("coder", "verifier") * 3)]
    assert halts([begun, *rounds])[0] == Reported("BUDGET003", "halt", 3)

    beside_it = [begun, costing("coder", 0, 0.1), costing("verifier", 1, 0.1) | {"from": "coder"}]
    for number in range(3):
        beside_it += [costing("coder", 3 * number + 2, 0.1) | {"from": "verifier"}]
        beside_it += [costing("verifier", 3 * number + 3, 0.1) | {"from": "coder"}]
        beside_it += [costing("analyst", 3 * number + 4, 9) | {"from": "planner"}]
    assert not halts(beside_it)


# A node that hands over to itself.


@pytest.mark.parametrize("policy", ["standard", "loop-safety", "planner"])
@pytest.mark.parametrize("what", ["output", "docs", "results"])
def test_a_self_loop_that_names_itself_is_an_iteration_not_a_handover(policy: str, what: str) -> None:
    def turn(number: int) -> Raw:
        text = f"Section {number} treats {'abcdefghijkl'[number] * (number + 3)} and nothing of before."
        call = {"name": "search", "args": {"q": f"topic {number}"}, "result": f"{number} hits"}
        new = {"output": {"output": text}, "docs": {"docs": text}, "results": {"tool_calls": [call]}}[what]
        return {"node": "writer", "from": "writer", **new}

    raws = [turn(number) for number in range(12)]
    assert not [one for one in reported(raws, load_policy(policy)) if not one.code.startswith("BUDGET")]


def test_a_self_loop_that_names_itself_and_says_the_same_is_halted() -> None:
    assert halts([{"node": "writer", "from": "writer", "output": "I will write the page."} for _ in range(8)])


def test_a_self_loop_beside_another_loop_counts_its_iterations() -> None:
    graph = {"edges": [["coder", "coder"], ["coder", "end"], *DOCS]}
    docs = [turn for number in range(3) for turn in docs_round(number)]
    feed = Feed()
    feed.raw({"type": "run.started", "graph": graph})
    feed.all([turn for number, page in enumerate(docs) for turn in ({"node": "coder", "output": f"{number}"}, page)])
    assert sorted(cycle.iterations for cycle in feed.state.cycles.table.rows) == [2, 5]


# Attempts of several nodes.


def attempt(number: int, message: str = "Template ${foo.bar} not found") -> Raw:
    return {"node": f"attempt-{number}", "errors": [{"message": message}]}


def test_under_repair_the_same_error_counts_whichever_node_reports_it() -> None:
    found = halts([attempt(1), attempt(2), attempt(3)], load_policy("repair"))
    assert found[0].code == "ERROR001"
    assert found[0].at <= 2


@pytest.mark.parametrize("raws", [
    [attempt(1), attempt(2, "Command failed with exit code 1"), attempt(3, "KeyError: 'a'")],
    [attempt(1), {"node": "attempt-2", "errors": []}, attempt(3)],
    [attempt(number, "HTTP 503 Unavailable") for number in range(4)],
], ids=["other errors", "a success in between", "retries of the transport"])  # fmt: skip
def test_attempts_that_end_otherwise_are_left_alone(raws: list[Raw]) -> None:
    assert not halts(raws, load_policy("repair"))


def test_without_repair_errors_of_other_nodes_do_not_count() -> None:
    assert not halts([attempt(1), attempt(2), attempt(3)])
