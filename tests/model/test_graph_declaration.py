"""Graphs of NetworkX and LangGraph are converted to declarations."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import networkx as nx
import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from streamproc import InvalidGraph, Monitor, UnsafeCycle, check_graph
from streamproc.model.graph_declaration import declaration


class State(TypedDict):
    """The state of the graphs; no graph runs here."""

    turns: int


def stay(state: State) -> State:
    return state


def drafted(*nodes: str) -> Any:
    graph = StateGraph(State)
    for name in nodes:
        graph.add_node(name, stay)
    graph.add_edge(START, nodes[0])
    return graph


def ring() -> Any:
    """A → B → C → A, without an exit."""
    graph = drafted("a", "b", "c")
    for pair in (("a", "b"), ("b", "c"), ("c", "a")):
        graph.add_edge(*pair)
    return graph


def deliberation() -> Any:
    """Rounds that end by a conditional edge."""
    graph = drafted("facilitator", "persona", "check_convergence", "vote")
    graph.add_edge("facilitator", "persona")
    graph.add_edge("persona", "check_convergence")
    graph.add_conditional_edges("check_convergence", lambda state: "again", {"again": "facilitator", "enough": "vote"})
    graph.add_edge("vote", END)
    return graph


# LangGraph.


def test_a_compiled_langgraph_ring_without_an_exit_is_refused() -> None:
    with pytest.raises(UnsafeCycle) as refusal:
        check_graph(ring().compile())
    assert refusal.value.cycles == (("a", "b", "c"),)


def test_the_drawing_of_that_ring_shows_an_exit_that_does_not_exist() -> None:
    """This is why the builder is read, not `get_graph`. If it fails, LangGraph's drawing has been corrected."""
    drawn = ring().compile().get_graph()
    assert ("a", END) in {(edge.source, edge.target) for edge in drawn.edges}
    assert check_graph(drawn)


def test_a_conditional_edge_is_an_exit() -> None:
    [cycle] = check_graph(deliberation().compile())
    assert cycle.nodes == ("check_convergence", "facilitator", "persona")


def test_a_graph_may_be_checked_before_it_is_compiled() -> None:
    assert check_graph(deliberation()) == check_graph(deliberation().compile())
    with pytest.raises(UnsafeCycle):
        check_graph(ring())


def test_conditional_edges_within_a_ring_are_not_an_exit() -> None:
    graph = drafted("a", "b", "c")
    graph.add_edge("a", "b")
    graph.add_conditional_edges("b", lambda state: "a", {"back": "a", "on": "c"})
    graph.add_edge("c", "a")
    with pytest.raises(UnsafeCycle) as refusal:
        check_graph(graph.compile())
    assert refusal.value.cycles == (("a", "b", "c"),)


def test_a_branch_without_declared_targets_may_lead_to_the_end() -> None:
    graph = drafted("a", "b")
    graph.add_edge("a", "b")
    graph.add_conditional_edges("b", lambda state: "a")
    assert [cycle.nodes for cycle in check_graph(graph.compile())] == [("a", "b")]


def test_a_node_without_outgoing_edges_ends_the_run() -> None:
    graph = drafted("a", "b", "report")
    graph.add_edge("a", "b")
    graph.add_conditional_edges("b", lambda state: "a", ["a", "report"])
    assert [cycle.nodes for cycle in check_graph(graph.compile())] == [("a", "b")]


def test_declared_targets_of_commands_and_joins_are_edges() -> None:
    def route(state: State) -> Command[Literal["b", "__end__"]]:
        return Command(goto="b")

    graph = StateGraph(State)
    graph.add_node("a", route)
    graph.add_node("b", stay)
    graph.add_node("c", stay)
    graph.add_edge(START, "a")
    graph.add_edge(["b", "c"], "a")

    found = declaration(graph.compile())

    assert {("a", "b"), ("a", END), ("b", "a"), ("c", "a")} <= {tuple(edge) for edge in found["edges"]}


# NetworkX.


def test_a_networkx_graph_keeps_its_terminal_nodes_and_anchors() -> None:
    graph: nx.DiGraph[Any] = nx.DiGraph([("a", "b")])
    graph.add_edge("b", "a", anchor=True)
    with pytest.raises(UnsafeCycle):
        check_graph(graph)

    graph.nodes["b"]["terminal"] = True

    [cycle] = check_graph(graph)
    assert (cycle.over, cycle.anchor) == ("b", "a")


def test_nodes_of_any_kind_are_named_by_their_text() -> None:
    assert check_graph(nx.DiGraph([(1, 2), (2, 1), (2, 3)]))[0].nodes == ("1", "2")
    assert check_graph(nx.MultiDiGraph([(1, 2), (2, 1), (2, 1), (2, 3)]))[0].nodes == ("1", "2")
    with pytest.raises(InvalidGraph, match="both called '1'"):
        check_graph(nx.DiGraph([(1, "1")]))


def test_edges_without_a_direction_are_refused() -> None:
    with pytest.raises(InvalidGraph, match="no direction"):
        check_graph(nx.Graph([("a", "b")]))


@pytest.mark.parametrize("graph", [None, 7, "a → b", [["a", "b"]], object()])
def test_an_object_that_is_not_a_graph_is_refused(graph: object) -> None:
    with pytest.raises(InvalidGraph, match="expected an object of nodes and edges"):
        check_graph(graph)


def test_a_run_may_be_started_with_the_graph_object_itself() -> None:
    monitor = Monitor()
    monitor.feed(type="run.started", run_id="r", graph=deliberation().compile())
    for node in ("facilitator", "persona", "check_convergence", "facilitator"):
        monitor.feed(run_id="r", node=node)
    status = monitor.status("r")
    assert status.badge == "Loop 1"
