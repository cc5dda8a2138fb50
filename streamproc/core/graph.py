"""The declared graph of a workflow: its cycles, and those without a way out.

Cycles are strongly connected components with at least two nodes, or self-loops (Tarjan's algorithm, from NetworkX).
Finding them is linear in nodes and edges; simple cycles are never enumerated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import networkx as nx

from streamproc.errors import InvalidGraph, UnsafeCycle
from streamproc.model.graph_declaration import declaration

if TYPE_CHECKING:
    Graph = nx.DiGraph[str]

Node = TypeVar("Node", int, str)

ENDS: Final = frozenset({"__end__", "END", "end"})  # usual names of the node where a run ends
LARGE: Final = 2_000  # edges; smaller graphs, as people write or draw them, are sent as declared


class CycleShape(NamedTuple):
    """A cycle of a declared graph."""

    nodes: tuple[str, ...]  # sorted
    edges: tuple[tuple[str, str], ...]
    anchor: str  # node at which iterations are counted
    over: str | None  # source of the anchor edge; None: not declared, any handover from the cycle to the anchor counts


def read_graph(data: Mapping[str, Any]) -> Graph:
    """Read ``{"nodes": [id | {"id", "terminal"}], "edges": [[from, to] | {"from", "to", "anchor"}]}``, or the compact
    form of `compact_graph`.

    Nodes named only by edges are added. Raises `InvalidGraph` with the position of the first mistake.
    """
    if not isinstance(data, Mapping):
        raise InvalidGraph(f"graph: expected an object with nodes and edges, got {type(data).__name__}")
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
    if "leads_to" in data:
        _read_compact(graph, data)
    return graph


def compact_graph(graph: Graph) -> dict[str, Any]:
    """Return the same graph in a quarter of the bytes: 50 000 edges fit into one event.

    `leads_to` lists for each node the positions of its successors; `anchors` are edges as pairs of positions.
    """
    place = {name: number for number, name in enumerate(graph.nodes)}
    nodes = [{"id": name, "terminal": True} if data.get("terminal") else name for name, data in graph.nodes(data=True)]
    anchors = [[place[u], place[v]] for u, v, data in graph.edges(data=True) if data["anchor"]]
    made = {"nodes": nodes, "leads_to": [[place[v] for v in graph.successors(u)] for u in graph.nodes]}
    return made | {"anchors": anchors} if anchors else made


def _read_compact(graph: Graph, data: Mapping[str, Any]) -> None:
    names = list(graph.nodes)
    for place, targets in enumerate(_listed(data, "leads_to")):
        if not isinstance(targets, (list, tuple)) or place >= len(names):
            raise InvalidGraph(f"graph.leads_to[{place}]: expected one list of positions for each node")
        for target in targets:
            graph.add_edge(names[place], _at(names, target, f"leads_to[{place}]"), anchor=False)
    for place, edge in enumerate(_listed(data, "anchors")):
        if not isinstance(edge, (list, tuple)) or len(edge) != 2:
            raise InvalidGraph(f"graph.anchors[{place}]: expected two positions, got {edge!r}")
        source, target = (_at(names, end, f"anchors[{place}]") for end in edge)
        graph.add_edge(source, target, anchor=True)


def _at(names: list[str], position: Any, field: str) -> str:
    if type(position) is not int or not 0 <= position < len(names):
        raise InvalidGraph(f"graph.{field}: expected the position of a node, from 0 to {len(names) - 1}")
    return names[position]


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
    """Yield the set of nodes of each cycle."""
    for members in nx.strongly_connected_components(graph):
        if len(members) > 1 or graph.has_edge(*(tuple(members) * 2)):
            yield members


def cycles_of(graph: Graph) -> list[CycleShape]:
    """Return the cycles in the order of their first node in the declaration."""
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
    """Return every cycle from which no terminal node can be reached.

    Terminal nodes are those marked as terminal and those named like an end. If none is marked, nodes without an edge
    out are terminal, too: a run that arrives there ends, even if that was not intended.
    """
    marked = any(terminal for _, terminal in graph.nodes(data="terminal"))
    ends = [
        node
        for node, terminal in graph.nodes(data="terminal")
        if terminal or node in ENDS or not (marked or graph.out_degree(node))
    ]
    safe = _reaching(graph, ends)
    return sorted(sorted(members) for members in components(graph) if not members & safe)


def _reaching(graph: Graph, ends: list[str]) -> set[str]:
    """Return the ends and all nodes from which an end can be reached, in one pass."""
    found, queue = set(ends), list(ends)
    while queue:
        for name in graph.predecessors(queue.pop()):
            if name not in found:
                found.add(name)
                queue.append(name)
    return found


def check_graph(graph: Any) -> list[CycleShape]:
    """Check a declared graph and return its cycles: a mapping of nodes and edges, a NetworkX or a LangGraph graph.

    Raises `InvalidGraph`, or `UnsafeCycle`, which names every cycle without a way out. Linear in nodes and edges.
    """
    read = read_graph(declaration(graph))
    if unsafe := unsafe_cycles(read):
        raise UnsafeCycle(unsafe)
    return cycles_of(read)
