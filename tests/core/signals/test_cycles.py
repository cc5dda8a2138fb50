"""Cycles of the workflow graph and their iterations."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from streamproc.core.signals.cycles import CYCLES_MAX, EDGES_MAX
from streamproc.model.controls import ControlEvent
from tests.feeding import Feed, Raw, decisions

REVIEW = {"edges": [["planner", "coder"], ["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"]]}
DECLARED: Raw = {"type": "run.started", "graph": REVIEW}
LIMITED: Raw = {"type": "run.started", "budgets": {"maxCycleIterations": 2}}


def path(names: str, start: int = 0) -> list[Raw]:
    """Return turns of nodes with one-character names, each with a new text."""
    return [{"node": name, "output": f"{name} {n}"} for n, name in enumerate(names, start)]


def iterations(*raws: Raw) -> list[int]:
    feed = Feed()
    feed.all(raws)
    return [cycle.iterations for cycle in feed.state.cycles.table.rows]


def of(code: str, found: list[ControlEvent]) -> ControlEvent:
    return next(decision for decision in found if decision.code == code)


def test_a_declared_cycle_is_followed_from_the_start() -> None:
    assert iterations(DECLARED) == [0]
    turns = [{"node": node} for node in ("planner", "coder", "verifier", "coder", "verifier", "coder")]
    assert iterations(DECLARED, *turns) == [2]  # the handover from the planner, outside the cycle, does not count


def test_a_declared_anchor_edge_alone_counts() -> None:
    edges = [["planner", "coder"], ["coder", "verifier"], {"from": "verifier", "to": "coder", "anchor": True}]
    started = {"type": "run.started", "graph": {"edges": edges}}
    turns = [{"node": node} for node in ("planner", "coder", "verifier", "coder", "verifier", "coder")]
    assert iterations(started, *turns) == [2]


@pytest.mark.parametrize(
    ("names", "counted"), [("ab", []), ("aba", [1]), ("abab", [1]), ("ababa", [2]), ("abcabcabc", [2]), ("aaaa", [])]
)
def test_a_cycle_is_found_from_handovers(names: str, counted: list[int]) -> None:
    assert iterations(*path(names)) == counted


@pytest.mark.parametrize("declared", [True, False])
@given(
    around=st.permutations("bcdefgh").flatmap(lambda names: st.integers(2, 6).map(lambda size: names[:size])),
    rounds=st.integers(2, 5),
)
@settings(deadline=None, max_examples=50)
def test_each_round_that_avoids_the_anchor_counts_once(declared: bool, around: list[str], rounds: int) -> None:
    """A coder and a verifier go on and on, and the planner that they both belong to has no turn."""
    back = [["a", "b"], *([u, v] for u in "bcdefgh" for v in "abcdefgh" if u != v)]
    start = [{"type": "run.started", "graph": {"edges": back}}] if declared else path("abcdefgha")
    [before] = iterations(*start, *path("a")) or [0]
    [after] = iterations(*start, *path("a" + "".join(around) * rounds))
    assert rounds - 1 <= after - before <= rounds


@pytest.mark.parametrize("names", ["abcd", "abacad"])
def test_a_walk_over_the_anchor_counts_at_the_anchor_alone(names: str) -> None:
    edges = sorted({(u, v) for u, v in pairwise(names + "a")})
    anchored = names.count("a")
    assert iterations({"type": "run.started", "graph": {"edges": edges}}, *path(names * 4)) == [4 * anchored - 1]


def test_turns_may_name_the_node_that_handed_over() -> None:
    """Two coders work in parallel, so the order of the turns does not show the handovers."""
    handovers = ["v1 c1", "v2 c2", "c1 v1", "c2 v2", "v1 c1", "v2 c2"]
    turns = [dict(zip(("from", "node"), pair.split(), strict=True)) for pair in handovers]
    assert iterations(*turns) == [1, 1]


def test_a_node_that_hands_over_to_itself_is_a_cycle() -> None:
    assert iterations(*[{"node": "a", "from": "a"}] * 3) == [3]


def test_a_found_cycle_has_the_same_id_in_every_run() -> None:
    found = [
        decisions([LIMITED | {"run_id": run}, *({**turn, "run_id": run} for turn in path("abababab"))]) for run in "xy"
    ]
    ids = [of("BUDGET003", found).cycle_id for found in found]
    assert ids[0] == ids[1]
    assert ids[0] is not None
    assert len(ids[0]) == 16


def test_a_declared_and_a_found_cycle_have_the_same_id() -> None:
    pair = {"edges": [["a", "b"], ["b", "a"]]}
    declared = decisions([LIMITED | {"graph": pair}, *path("abababab")])
    assert of("BUDGET003", declared).cycle_id == of("BUDGET003", decisions([LIMITED, *path("abababab")])).cycle_id


def test_cycles_that_become_connected_are_merged() -> None:
    feed = Feed()
    feed.all(path("aba"))
    feed.all(path("cdc", 10))
    assert len(feed.state.cycles.table) == 2
    feed.all(path("a", 20))
    feed.all(path("c", 30))
    assert len(feed.state.cycles.table) == 1


def test_a_new_edge_within_a_cycle_changes_nothing() -> None:
    """Its id stays, and with it its memory and the ids of its decisions."""
    feed = Feed()
    feed.all(path("abcabca"))
    [(key, before)] = [(cycle.key, cycle.iterations) for cycle in feed.state.cycles.table.rows]
    feed.all([*path("c", 7), *path("b", 8), *path("a", 9)])  # a to c, c to b, and b to a are new
    assert [cycle.key for cycle in feed.state.cycles.table.rows] == [key]
    assert feed.state.cycles.table.rows[0].iterations > before


def test_the_iterations_of_a_cycle_have_a_budget() -> None:
    found = decisions([LIMITED, *path("abababababab")])
    assert [(one.severity, one.evidence.iteration) for one in found if one.evidence] == [("warn", 2), ("halt", 3)]


def test_repeated_reports_in_one_iteration_count_once() -> None:
    report: Raw = {"node": "verifier", "tests": {"failed": ["t1"], "total": 3, "passed": 2}}
    feed = Feed()
    feed.raw(DECLARED)
    assert feed.all([*path("p"), {"node": "coder", "output": "x"}, report, report, report]) == []


@pytest.mark.parametrize("graph", [None, {"edges": [["p", "a"], ["a", "b"], ["b", "a"], ["b", "end"]]}])
def test_the_first_iteration_of_a_cycle_counts_for_cost_and_runtime(graph: Raw | None) -> None:
    started: Raw = {"type": "run.started", "budgets": {"maxCycleCost": "0.25", "maxCycleRuntimeMs": 200_000}}
    if graph:
        started["graph"] = graph
    dear = [turn | {"usage": {"cost_usd": "0.10"}} for turn in path("abab")]
    slow = [turn | {"at": f"2026-01-01T00:0{n}:00Z"} for n, turn in enumerate(path("ababab"))]
    assert [(one.severity, one.trigger.turn) for one in decisions([started, *dear]) if one.trigger] == [("halt", 2)]
    assert [(one.severity, one.trigger.turn) for one in decisions([started, *slow]) if one.trigger] == [("halt", 4)]


def test_what_came_before_a_cycle_is_not_its_money() -> None:
    graph = {"edges": [["p", "a"], ["a", "b"], ["b", "a"], ["b", "end"]]}
    started: Raw = {"type": "run.started", "budgets": {"maxCycleCost": "0.25"}, "graph": graph}
    turns = [turn | {"usage": {"cost_usd": "0.10"}} for turn in path("pppabab")]
    assert [(one.severity, one.trigger.turn) for one in decisions([started, *turns]) if one.trigger] == [("halt", 5)]


def test_money_and_time_of_a_cycle_that_nobody_declared_count_from_where_it_was_found() -> None:
    limits: Raw = {"type": "run.started", "budgets": {"maxCycleCost": "0.25", "maxCycleRuntimeMs": 60_000}}
    before: list[Raw] = [{"node": "p", "usage": {"cost_usd": "9.00"}}, {"node": "a"}, {"node": "b"}]
    cheap = [turn | {"usage": {"cost_usd": "0.05"}} for turn in path("ababa")]
    assert decisions([limits, *before, *cheap]) == []
    dear = [turn | {"usage": {"cost_usd": "0.10"}} for turn in path("ababa")]
    halt = decisions([limits, *before, *dear])[-1]
    assert (halt.code, halt.severity) == ("BUDGET003", "halt")
    assert halt.evidence.unit == "micro_usd"
    slow = [turn | {"at": f"2026-01-01T00:0{n}:00Z"} for n, turn in enumerate(path("ababa"))]
    assert decisions([limits, *slow])[-1].evidence.unit == "ms"  # type: ignore[union-attr]


def test_handovers_and_cycles_are_bounded() -> None:
    feed = Feed()
    for n in range(200):
        feed.all([{"node": f"a{n}"}, {"node": f"b{n}"}, {"node": f"a{n}"}, {"node": f"lone{n}"}])
    assert len(feed.state.cycles.edges) <= EDGES_MAX
    assert len(feed.state.cycles.table) <= CYCLES_MAX
    assert feed.state.evicted > 0


@pytest.mark.parametrize("graph", [{"edges": 7}, {"edges": [["a"]]}, {"nodes": [5]}, {"edges": [[1, 2]]}])
def test_a_graph_that_cannot_be_read_does_not_stop_a_run(graph: Raw) -> None:
    feed = Feed()
    [found] = feed.raw({"type": "run.started", "graph": graph, "budgets": {"maxSteps": 1}})
    assert (found.code, found.severity) == ("GRAPH002", "warn")
    assert "graph." in found.message
    assert [one.code for one in feed.all(path("ab"))] == ["BUDGET004", "BUDGET004"]
