"""The declared graph of a workflow: its cycles, and those that nothing can leave.

Cycles are strongly connected components with at least two nodes, or self-loops (Tarjan's algorithm, by NetworkX):
linear in nodes and edges, never an enumeration of all simple cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import networkx as nx

from streamproc.errors import InvalidGraph, UnsafeCycle

if TYPE_CHECKING:
    Graph = nx.DiGraph[str]

Node = TypeVar("Node", int, str)

ENDS = frozenset({"__end__", "END", "end"})  # how LangGraph and people call the node where a run ends


class CycleShape(NamedTuple):
    """A cycle of a declared graph: its nodes in sorted order, its anchor node, and its anchor edge's source where
    that edge was declared (else None: any hand-over from inside the cycle to the anchor closes an iteration)."""

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    anchor: str
    over: str | None


def read_graph(data: Mapping[str, Any]) -> Graph:
    """Read ``{"nodes": [id | {"id", "terminal"}], "edges": [[from, to] | {"from", "to", "anchor"}]}``.

    Nodes named only by edges are added. Raises `InvalidGraph` with the place of the first mistake.
    """
    graph: Graph = nx.DiGraph()
    for place, node in enumerate(_listed(data, "nodes")):
        if isinstance(node, str) and node:
            graph.add_node(node)
        elif isinstance(node, Mapping) and isinstance(node.get("id"), str) and node["id"]:
            graph.add_node(node["id"], terminal=bool(node.get("terminal")))
        else:
            raise InvalidGraph(f"graph.nodes[{place}]: expected a name or {{'id': name}}, got {node!r}")
    for place, edge in enumerate(_listed(data, "edges")):
        source, target, anchor = _read_edge(edge, place)
        graph.add_edge(source, target, anchor=anchor)
    for place, name in enumerate(_listed(data, "terminals")):
        if not (isinstance(name, str) and name):
            raise InvalidGraph(f"graph.terminals[{place}]: expected a node name, got {name!r}")
        graph.add_node(name, terminal=True)
    return graph


def _listed(data: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = data.get(name) or ()
    if not isinstance(found, (list, tuple)):
        raise InvalidGraph(f"graph.{name}: expected a list, got {type(found).__name__}")
    return found


def _read_edge(edge: Any, place: int) -> tuple[str, str, bool]:
    if isinstance(edge, Mapping):
        source, target = edge.get("from", edge.get("source")), edge.get("to", edge.get("target"))
        anchor = bool(edge.get("anchor"))
    elif isinstance(edge, (list, tuple)) and len(edge) == 2:
        (source, target), anchor = edge, False
    else:
        raise InvalidGraph(f"graph.edges[{place}]: expected [from, to] or {{'from', 'to'}}, got {edge!r}")
    if not (isinstance(source, str) and source and isinstance(target, str) and target):
        raise InvalidGraph(f"graph.edges[{place}]: both ends must be node names, got {source!r} → {target!r}")
    return source, target, anchor


def components(graph: nx.DiGraph[Node]) -> Iterator[set[Node]]:
    """The node sets of all cycles."""
    for members in nx.strongly_connected_components(graph):
        if len(members) > 1 or graph.has_edge(*(tuple(members) * 2)):
            yield members


def cycles_of(graph: Graph) -> list[CycleShape]:
    """The cycles in the order of their first node in the declaration."""
    order = {name: place for place, name in enumerate(graph.nodes)}
    found = [_shape(graph, members, order) for members in components(graph)]
    return sorted(found, key=lambda shape: min(order[name] for name in shape.nodes))


def _shape(graph: Graph, members: set[str], order: Mapping[str, int]) -> CycleShape:
    edges = tuple(sorted((u, v) for u in members for v in graph.successors(u) if v in members))
    declared = [(u, v) for u, v in edges if graph.edges[u, v]["anchor"]]
    if declared:
        over, anchor = declared[0]
        return CycleShape(tuple(sorted(members)), edges, anchor, over)
    entered = [v for v in members if any(u not in members for u in graph.predecessors(v))]
    anchor = min(entered or members, key=order.__getitem__)
    return CycleShape(tuple(sorted(members)), edges, anchor, None)


def unsafe_cycles(graph: Graph) -> list[list[str]]:
    """Every cycle from which no terminal node can be reached, or that has no edge out.

    Terminal nodes are those marked so, those named like an end, and, where there are neither, nodes without an
    edge out.
    """
    ends = [n for n, data in graph.nodes(data=True) if data.get("terminal") or n in ENDS]
    safe = _reaching(graph, ends or [n for n in graph.nodes if graph.out_degree(n) == 0])
    return sorted(sorted(members) for members in components(graph) if not members & safe)


def _reaching(graph: Graph, ends: list[str]) -> set[str]:
    """The ends, and all nodes from which one can be reached, in one pass."""
    found, queue = set(ends), list(ends)
    while queue:
        for name in graph.predecessors(queue.pop()):
            if name not in found:
                found.add(name)
                queue.append(name)
    return found


def check_graph(data: Mapping[str, Any]) -> list[CycleShape]:
    """Read a graph and return its cycles. Raises `InvalidGraph`, or `UnsafeCycle` that names every unsafe one."""
    graph = read_graph(data)
    unsafe = unsafe_cycles(graph)
    if unsafe:
        raise UnsafeCycle(unsafe)
    return cycles_of(graph)
