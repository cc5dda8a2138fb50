"""Convert graphs of other libraries to the form of a graph declaration, without importing those libraries.

A graph is recognised by its attributes:

- a mapping is a declaration already (`streamproc.core.graph.read_graph`);
- a NetworkX directed graph; its node attribute ``terminal`` and edge attribute ``anchor`` are read;
- a LangGraph graph, compiled or not. Its builder is read, not the drawing of `get_graph`: the drawing adds an edge to
  the end to a ring of nodes without an exit, and it stops after 250 steps;
- any other object with a `get_graph`, or with nodes and edges that have `source` and `target`, such as LangChain's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from streamproc.errors import InvalidGraph

LANGGRAPH_END: Final = "__end__"
EXPECTED: Final = "expected an object of nodes and edges, a networkx.DiGraph, or a LangGraph graph; got"


def declaration(graph: Any) -> Mapping[str, Any]:
    """Return the graph as ``{"nodes": …, "edges": …}``. Raises `InvalidGraph` for anything that is not a graph."""
    if isinstance(graph, Mapping):
        return graph
    built = getattr(graph, "builder", graph)
    if hasattr(built, "branches") and hasattr(built, "edges"):
        return _langgraph(built)
    if hasattr(graph, "get_graph"):
        graph = graph.get_graph()
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges")):
        raise InvalidGraph(f"graph: {EXPECTED} {type(graph).__name__}")
    return _networkx(graph) if hasattr(graph, "is_directed") else _drawn(graph)


def _networkx(graph: Any) -> Mapping[str, Any]:
    if not graph.is_directed():
        raise InvalidGraph("graph: its edges have no direction; use a networkx.DiGraph")
    names = _names(graph.nodes)
    nodes = [{"id": names[node], "terminal": bool(data.get("terminal"))} for node, data in graph.nodes(data=True)]
    edges = [
        {"from": names[source], "to": names[target], "anchor": bool(data.get("anchor"))}
        for source, target, data in graph.edges(data=True)
    ]
    return {"nodes": nodes, "edges": edges}


def _langgraph(built: Any) -> Mapping[str, Any]:
    """Read edges, joins, branches and declared `Command` targets.

    A branch without declared targets may lead to every node and to the end. A node without outgoing edges ends the run.
    """
    names = list(built.nodes)
    edges = [(source, target) for source, target in built.edges]
    edges += [(source, target) for joined, target in built.waiting_edges for source in joined]
    for source, branches in built.branches.items():
        for branch in branches.values():
            targets = [*names, LANGGRAPH_END] if branch.ends is None else branch.ends.values()
            edges += [(source, target) for target in targets]
    for source, node in built.nodes.items():
        edges += [(source, target) for target in getattr(node, "ends", None) or ()]
    sources = {source for source, _ in edges}
    edges += [(name, LANGGRAPH_END) for name in names if name not in sources]
    return {"nodes": names, "edges": [list(edge) for edge in dict.fromkeys(edges)]}


def _drawn(graph: Any) -> Mapping[str, Any]:
    names = _names(graph.nodes)
    try:
        edges = [[names.get(edge.source, edge.source), names.get(edge.target, edge.target)] for edge in graph.edges]
    except AttributeError:
        raise InvalidGraph(f"graph.edges: {EXPECTED} {type(graph).__name__}") from None
    return {"nodes": list(names.values()), "edges": edges}


def _names(nodes: Iterable[Any]) -> dict[Any, str]:
    """Return a text for every node. Raises `InvalidGraph` if two nodes have the same text, such as 1 and "1"."""
    names = {node: node if isinstance(node, str) else str(node) for node in nodes}
    if len(set(names.values())) < len(names):
        twice = Counter(names.values()).most_common(1)[0][0]
        raise InvalidGraph(f"graph.nodes: two nodes are both called {twice!r} as text; give them different names")
    return names
