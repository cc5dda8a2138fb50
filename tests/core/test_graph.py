"""Declared graphs: their cycles, anchors, and cycles without a way out."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings, strategies as st

from streamproc.core.graph import check_graph, compact_graph, cycles_of, read_graph, unsafe_cycles
from streamproc.core.signals.cycles import cycle_hash
from streamproc.errors import InvalidGraph, UnsafeCycle
from tests.work import work_of

REVIEW = {
    "nodes": ["planner", "coder", "verifier", {"id": "done", "terminal": True}],
    "edges": [["planner", "coder"], ["coder", "verifier"], ["verifier", "coder"], ["verifier", "done"]],
}
EXAMPLES = settings(max_examples=80, deadline=None, derandomize=True, print_blob=True)
edges = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).map(lambda edge: [f"n{edge[0]}", f"n{edge[1]}"]))


def test_a_cycle_has_its_nodes_edges_and_anchor() -> None:
    [cycle] = check_graph(REVIEW)
    assert cycle.nodes == ("coder", "verifier")
    assert cycle.edges == (("coder", "verifier"), ("verifier", "coder"))
    assert (cycle.anchor, cycle.over) == ("coder", None)


def test_the_anchor_edge_may_be_declared() -> None:
    declared = {
        "edges": [["coder", "verifier"], {"from": "verifier", "to": "coder", "anchor": True}, ["verifier", "end"]]
    }
    [cycle] = check_graph(declared)
    assert (cycle.anchor, cycle.over) == ("coder", "verifier")


def test_cycles_come_in_the_order_of_their_declaration() -> None:
    """A run follows the first few of them."""
    pairs = ["zy", "yz", "ab", "ba", "mn", "nm"]
    edges_out = [["n", "a"], ["y", "a"], ["a", "end"]]  # the last cycle can be reached from the others
    found = cycles_of(read_graph({"nodes": ["n", "y"], "edges": [*map(list, pairs), *edges_out]}))
    assert [cycle.nodes for cycle in found] == [("m", "n"), ("y", "z"), ("a", "b")]
    assert [cycle.anchor for cycle in found] == ["", "", "a"]  # the first two are entered at no node


def test_a_node_with_an_edge_to_itself_is_a_cycle() -> None:
    [cycle] = check_graph({"edges": [["coder", "coder"], ["coder", "end"]]})
    assert cycle.nodes == ("coder",)


def test_a_graph_without_cycles_has_none() -> None:
    assert check_graph({"edges": [["a", "b"], ["b", "c"], ["a", "c"]]}) == []
    assert check_graph({}) == []


@pytest.mark.parametrize("edge", [["a", "b"], ("a", "b"), {"from": "a", "to": "b"}, {"source": "a", "target": "b"}])
def test_an_edge_may_be_declared_in_any_of_these_forms(edge: Any) -> None:
    assert list(read_graph({"edges": [edge]}).edges()) == [("a", "b")]


@pytest.mark.parametrize(("graph", "place"), [
    ({"edges": [["a", "b"], ["a"]]}, r"graph\.edges\[1\]"), ({"edges": [["a", 5]]}, r"graph\.edges\[0\]"),
    ({"edges": [{"from": "a"}]}, r"graph\.edges\[0\]"), ({"edges": [["a", ""]]}, r"graph\.edges\[0\]"),
    ({"nodes": ["a", 5]}, r"graph\.nodes\[1\]"), ({"nodes": [{"name": "a"}]}, r"graph\.nodes\[0\]"),
    ({"nodes": 7}, r"graph\.nodes"), ({"edges": 7}, r"graph\.edges"), ({"edges": "ab"}, r"graph\.edges"),
    (["a", "b"], r"graph: expected an object"),
    ({"nodes": ["a"], "leads_to": [[1]]}, r"graph\.leads_to\[0\]: .* from 0 to 0"),
    ({"nodes": ["a"], "leads_to": [[-1]]}, r"graph\.leads_to\[0\]"),
    ({"nodes": ["a"], "leads_to": [[True]]}, r"graph\.leads_to\[0\]"),
    ({"nodes": ["a"], "leads_to": [[0], [0]]}, r"graph\.leads_to\[1\]"),
    ({"nodes": ["a"], "leads_to": ["a"]}, r"graph\.leads_to\[0\]"),
    ({"nodes": ["a"], "leads_to": [], "anchors": [[0]]}, r"graph\.anchors\[0\]"),
])  # fmt: skip
def test_an_invalid_graph_is_refused_with_the_position_of_the_mistake(graph: Any, place: str) -> None:
    with pytest.raises(InvalidGraph, match=place):
        read_graph(graph)


def test_every_cycle_without_a_way_out_is_named() -> None:
    graph = {
        "edges": [["a", "b"], ["b", "a"], ["c", "d"], ["d", "c"], ["e", "f"], ["f", "e"], ["f", "end"], ["a", "c"]]
    }
    with pytest.raises(UnsafeCycle) as refusal:
        check_graph(graph)
    assert refusal.value.cycles == (("a", "b"), ("c", "d"))
    assert "[a, b]; [c, d]" in str(refusal.value)


@pytest.mark.parametrize(("graph", "unsafe"), [
    ({"edges": [["a", "b"], ["b", "a"]]}, [["a", "b"]]), ({"edges": [["a", "a"]]}, [["a"]]),
    ({"edges": [["a", "b"], ["b", "a"], ["b", "c"]]}, []),
    ({"edges": [["a", "b"], ["b", "a"], ["b", "c"], ["x", "END"]]}, []),
    ({"edges": [["a", "b"], ["b", "a"], ["b", "c"]], "terminals": ["x"]}, [["a", "b"]]),
    ({"edges": [["a", "b"], ["b", "a"], ["b", "END"], ["c", "c"]], "terminals": ["x"]}, [["c"]]),
    ({"edges": [["a", "b"], ["b", "a"], ["b", "c"], ["c", "d"], ["d", "c"], ["x", "END"]]}, [["a", "b"], ["c", "d"]]),
    ({"edges": [["a", "b"], ["b", "a"], ["b", "__end__"]]}, []),
    ({"nodes": [{"id": "b", "terminal": True}], "edges": [["a", "b"], ["b", "a"]]}, []),
    ({"edges": [["a", "b"], ["b", "a"], ["b", "c"], ["c", "d"], ["d", "c"]], "terminals": ["c"]}, []),
])  # fmt: skip
def test_a_cycle_is_safe_if_an_end_can_be_reached(graph: dict[str, Any], unsafe: list[list[str]]) -> None:
    assert unsafe_cycles(read_graph(graph)) == unsafe


@given(edges, st.sets(st.integers(0, 7)), st.sets(st.integers(0, 20)))
@EXAMPLES
def test_the_compact_form_loses_nothing(pairs: list[list[str]], ends: set[int], anchors: set[int]) -> None:
    declared = [
        {"from": u, "to": v, "anchor": place in anchors} if place in anchors else [u, v]
        for place, (u, v) in enumerate(pairs)
    ]
    graph = read_graph({"edges": declared, "terminals": [f"n{n}" for n in ends]})

    again = read_graph(compact_graph(graph))

    assert (again.names, again.terminal, again.anchors) == (graph.names, graph.terminal, graph.anchors)
    assert set(again.edges()) == set(graph.edges())
    assert (cycles_of(again), unsafe_cycles(again)) == (cycles_of(graph), unsafe_cycles(graph))


@given(edges)
@EXAMPLES
def test_cycles_are_the_strongly_connected_components(pairs: list[list[str]]) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph([(source, target) for source, target in pairs])
    expected = [
        set(members)
        for members in nx.strongly_connected_components(graph)
        if len(members) > 1 or any((node, node) in graph.edges for node in members)
    ]
    found = [set(cycle.nodes) for cycle in cycles_of(read_graph({"edges": pairs}))]
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))


@given(edges, st.randoms(use_true_random=False))
@EXAMPLES
def test_the_id_of_a_cycle_does_not_depend_on_the_order_of_the_declaration(pairs: list[list[str]], dice: Any) -> None:
    def ids(declared: list[list[str]]) -> set[int]:
        number = {f"n{n}": n + 1 for n in range(8)}
        return {
            cycle_hash([number[node] for node in cycle.nodes], [(number[u], number[v]) for u, v in cycle.edges])
            for cycle in cycles_of(read_graph({"edges": declared}))
        }

    assert ids(pairs) == ids(dice.sample(pairs, len(pairs)))


def test_the_id_of_a_cycle_depends_on_its_nodes_and_edges() -> None:
    ids = [
        cycle_hash([1, 2], [(1, 2), (2, 1)]),
        cycle_hash([1, 2, 3], [(1, 2), (2, 1)]),
        cycle_hash([1, 2], [(1, 2)]),
        cycle_hash([1, 3], [(1, 3), (3, 1)]),
    ]
    assert len(set(ids)) == 4
    assert cycle_hash([2, 1], [(2, 1), (1, 2)]) == ids[0]


@given(edges)
@EXAMPLES
def test_a_cycle_is_unsafe_exactly_if_no_path_from_it_ends(pairs: list[list[str]]) -> None:
    """Without declared ends, a cycle is safe if it can reach a node without an edge out."""
    graph: nx.DiGraph[str] = nx.DiGraph([(source, target) for source, target in pairs])
    ends = {node for node in graph.nodes if not graph.out_degree(node)}
    expected = [
        sorted(members)
        for members in nx.strongly_connected_components(graph)
        if (len(members) > 1 or graph.has_edge(*tuple(members) * 2))
        and not ends & nx.descendants(graph, next(iter(members)))
    ]
    assert unsafe_cycles(read_graph({"edges": pairs})) == sorted(expected)


@given(edges)
@EXAMPLES
def test_the_anchor_of_a_cycle_is_its_only_node_that_is_entered_from_outside(pairs: list[list[str]]) -> None:
    graph: nx.DiGraph[str] = nx.DiGraph([(source, target) for source, target in pairs])
    for cycle in cycles_of(read_graph({"edges": pairs})):
        entered = [v for v in cycle.nodes if any(u not in cycle.nodes for u in graph.predecessors(v))]
        known = cycle.nodes if len(cycle.nodes) == 1 else entered
        assert cycle.anchor == (known[0] if len(known) == 1 else "")
        assert cycle.edges == tuple(sorted(graph.subgraph(cycle.nodes).edges))


def large(nodes: int, edges: int, seed: int = 7) -> list[list[str]]:
    """Return random edges that put nearly all nodes into one cycle."""
    dice = random.Random(seed)
    return [[f"node-{dice.randrange(nodes)}", f"node-{dice.randrange(nodes)}"] for _ in range(edges)]


def test_a_graph_of_thousands_of_nodes_is_checked() -> None:
    """Enumerating all simple cycles of this graph is not feasible."""
    pairs = large(5_000, 50_000)
    [cycle] = check_graph({"edges": [*pairs, ["node-0", "end"]]})
    assert len(cycle.nodes) > 4_900
    with pytest.raises(UnsafeCycle) as refusal:
        check_graph({"edges": [*pairs, ["start", "end"]]})
    assert refusal.value.cycles == (cycle.nodes,)


def test_every_one_of_a_thousand_unsafe_cycles_is_named() -> None:
    pairs = [pair for n in range(1_000) for pair in ([f"a{n}", f"b{n}"], [f"b{n}", f"a{n}"])]
    with pytest.raises(UnsafeCycle) as refusal:
        check_graph({"edges": [*pairs, ["start", "end"]]})
    assert {cycle[0] for cycle in refusal.value.cycles} == {f"a{n}" for n in range(1_000)}
    assert all(f"[a{n}, b{n}]" in str(refusal.value) for n in range(1_000))


def test_the_work_of_a_check_grows_linearly_with_the_graph() -> None:
    def work(nodes: int, edges: int) -> int:
        """Calls of functions while a graph of this size is checked."""
        graph = {"edges": [*large(nodes, edges), ["node-0", "end"]]}
        return work_of(lambda: check_graph(graph))[0]

    assert work(5_000, 50_000) < 10.5 * work(500, 5_000) + 50  # few calls are seen of a compiled core
