"""The declared graph of a workflow: its cycles, and those without a way out.

Cycles are strongly connected components with at least two nodes, or self-loops. Tarjan's algorithm finds them in one
pass over nodes and edges, which also finds where each cycle is entered and whether an end can be reached from it.
Nodes are numbered: with objects of a graph library the same pass takes twenty times as long, and a worker makes it for
graphs of strangers. Simple cycles are never enumerated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from streamproc.errors import InvalidGraph, UnsafeCycle, shown
from streamproc.model.graph_declaration import declaration
from streamproc.model.graph_limits import FIELDS, over_limit, sizes_of

ENDS: Final = frozenset({"__end__", "END", "end"})  # usual names of the node where a run ends
LARGE: Final = 2_000  # edges; smaller graphs, as people write or draw them, are sent as declared


class CycleShape(NamedTuple):
    """A cycle of a declared graph."""

    nodes: tuple[str, ...]  # sorted
    edges: tuple[tuple[str, str], ...]
    anchor: str  # node at which iterations are counted; empty: the one that has the first turn
    over: str | None  # source of the anchor edge; None: not declared, any handover from the cycle to the anchor counts


class Component(NamedTuple):
    """A strongly connected component with a cycle, by positions of nodes."""

    members: list[int]  # in the order of their declaration
    safe: bool  # whether an end can be reached


class Graph:
    """A directed graph. Nodes have positions, in the order of their declaration; equal edges are one edge."""

    __slots__ = ("_components", "_entered", "anchors", "names", "positions", "successors", "terminal")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.positions: dict[str, int] = {}
        self.successors: list[dict[int, None]] = []  # by position; a dict, as the order of the declaration counts
        self.anchors: set[tuple[int, int]] = set()
        self.terminal: set[int] = set()  # nodes that are marked
        self._components: list[Component] | None = None
        self._entered = bytearray()

    @property
    def size(self) -> int:
        """The number of edges."""
        return sum(map(len, self.successors))

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield every edge as (source, target)."""
        for source, targets in zip(self.names, self.successors, strict=True):
            yield from ((source, self.names[target]) for target in targets)

    def add(self, name: str) -> int:
        """Return the position of a node; a new one is added."""
        position = self.positions.get(name)
        if position is None:
            position = self.positions[name] = len(self.names)
            self.names.append(name)
            self.successors.append({})
        return position

    def components(self) -> list[Component]:
        """Return the cycles in the order of their first node in the declaration."""
        if self._components is None:
            self._entered = bytearray(len(self.names))
            self._components = _components(self.successors, self._ends(), self._entered)
        return self._components

    def _ends(self) -> bytearray:
        """Return a 1 for every node at which a run ends: those marked as terminal and those named like an end. If none
        is marked, also those without an edge out: a run that arrives there ends, even if that was not intended."""
        marked = self.terminal
        ends = bytearray(len(self.names)) if marked else bytearray(not targets for targets in self.successors)
        for position in (*marked, *(self.positions[name] for name in ENDS if name in self.positions)):
            ends[position] = 1
        return ends

    def anchor(self, members: list[int]) -> tuple[str, str | None]:
        """Return the node at which iterations of a cycle are counted, and the source of the anchor edge if declared.

        If neither is declared, and the cycle is not entered at exactly one node, the name is empty: iterations are then
        counted at the node that is first in it, whatever the order in which the edges are declared.
        """
        inside, names = set(members), self.names
        declared = [(names[u], names[v]) for u, v in self.anchors if u in inside and v in inside]
        if declared:
            over, anchor = min(declared)
            return anchor, over
        self.components()
        entered = members if len(members) == 1 else [place for place in members if self._entered[place]]
        return names[entered[0]] if len(entered) == 1 else "", None


def read_graph(data: Mapping[str, Any], *, any_size: bool = True) -> Graph:
    """Read ``{"nodes": [id | {"id", "terminal"}], "edges": [[from, to] | {"from", "to", "anchor"}]}``, or the compact
    form of `compact_graph`.

    Nodes named only by edges are added. Raises `InvalidGraph` with the position of the first mistake; without
    `any_size`, also for one beyond the limits of `streamproc.model.graph_limits`.
    """
    if not isinstance(data, Mapping):
        raise InvalidGraph(f"graph: expected an object with nodes and edges, got {type(data).__name__}")
    lists = {name: _listed(data, name) for name in FIELDS}
    if not any_size:
        _refuse_large(sizes_of(data))
    graph = Graph()
    for place, node in enumerate(lists["nodes"]):
        _read_node(graph, node, place)
    for place, edge in enumerate(lists["edges"]):
        if type(edge) is list and len(edge) == 2 and type(edge[0]) is type(edge[1]) is str and edge[0] and edge[1]:
            source, target, anchor = edge[0], edge[1], False  # most edges
        else:
            source, target, anchor = _read_edge(edge, place)
        _add_edge(graph, graph.add(source), graph.add(target), anchor=anchor)
    for place, name in enumerate(lists["terminals"]):
        if not (isinstance(name, str) and name):
            raise InvalidGraph(f"graph.terminals[{place}]: expected a node name, got {shown(name)}")
        graph.terminal.add(graph.add(name))
    if "leads_to" in data:
        _read_compact(graph, lists["leads_to"], lists["anchors"])
    if not any_size:
        _refuse_large({"nodes": len(graph.names)})
    return graph


def _refuse_large(sizes: Mapping[str, int]) -> None:
    """Refuse a graph by the lengths of its lists, before anything is done with their items."""
    if what := over_limit(sizes):
        raise InvalidGraph(f"graph: {what}; declare only the cycles of the workflow")


def _add_edge(graph: Graph, source: int, target: int, *, anchor: bool) -> None:
    graph.successors[source][target] = None
    if anchor:
        graph.anchors.add((source, target))
    elif graph.anchors:
        graph.anchors.discard((source, target))


def compact_graph(graph: Graph) -> dict[str, Any]:
    """Return the same graph in a quarter of the bytes: 50 000 edges fit into one event.

    `leads_to` lists for each node the positions of its successors; `anchors` are edges as pairs of positions.
    """
    nodes = [
        {"id": name, "terminal": True} if place in graph.terminal else name for place, name in enumerate(graph.names)
    ]
    made: dict[str, Any] = {"nodes": nodes, "leads_to": [list(targets) for targets in graph.successors]}
    return made | {"anchors": [list(edge) for edge in sorted(graph.anchors)]} if graph.anchors else made


def _read_compact(graph: Graph, leads_to: Sequence[Any], anchors: Sequence[Any]) -> None:
    count = len(graph.names)
    for place, targets in enumerate(leads_to):
        if not isinstance(targets, (list, tuple)) or place >= count:
            raise InvalidGraph(f"graph.leads_to[{place}]: expected one list of positions for each node")
        if not targets:
            continue
        if {*map(type, targets)} != {int} or min(targets) < 0 or max(targets) >= count:
            raise _no_position(f"leads_to[{place}]", count)
        graph.successors[place].update(dict.fromkeys(targets))
        if graph.anchors:  # declared by an edge before: the later declaration counts
            graph.anchors.difference_update((place, target) for target in targets)
    for place, edge in enumerate(anchors):
        if not isinstance(edge, (list, tuple)) or len(edge) != 2:
            raise InvalidGraph(f"graph.anchors[{place}]: expected two positions, got {shown(edge)}")
        source, target = edge
        if type(source) is not int or type(target) is not int or not (0 <= source < count and 0 <= target < count):
            raise _no_position(f"anchors[{place}]", count)
        _add_edge(graph, source, target, anchor=True)


def _no_position(field: str, count: int) -> InvalidGraph:
    return InvalidGraph(f"graph.{field}: expected the position of a node, from 0 to {count - 1}")


def _listed(data: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = data.get(name) or ()
    if not isinstance(found, (list, tuple)):
        raise InvalidGraph(f"graph.{name}: expected a list, got {type(found).__name__}")
    return found


def _read_node(graph: Graph, node: Any, place: int) -> None:
    if isinstance(node, str) and node:
        graph.add(node)
    elif isinstance(node, Mapping) and isinstance(node.get("id"), str) and node["id"]:
        position = graph.add(node["id"])
        if node.get("terminal"):
            graph.terminal.add(position)
        else:
            graph.terminal.discard(position)
    else:
        raise InvalidGraph(f"graph.nodes[{place}]: expected a name or {{'id': name}}, got {shown(node)}")


def _read_edge(edge: Any, place: int) -> tuple[str, str, bool]:
    if isinstance(edge, Mapping):
        source, target = edge.get("from", edge.get("source")), edge.get("to", edge.get("target"))
        anchor = bool(edge.get("anchor"))
    elif isinstance(edge, (list, tuple)) and len(edge) == 2:
        (source, target), anchor = edge, False
    else:
        raise InvalidGraph(f"graph.edges[{place}]: expected [from, to] or {{'from', 'to'}}, got {shown(edge)}")
    if not (isinstance(source, str) and source and isinstance(target, str) and target):
        raise InvalidGraph(f"graph.edges[{place}]: both ends must be node names, got {shown(source)} → {shown(target)}")
    return source, target, anchor


def _components(successors: Sequence[Mapping[int, None]], ends: bytearray, entered: bytearray) -> list[Component]:
    """Find the cycles, and mark in `entered` every node that an edge of another component leads to."""
    safe = ends  # an end can be reached
    closed = bytearray(len(successors))  # the component is complete
    order, low = [0] * len(successors), [0] * len(successors)
    found: list[Component] = []
    stack: list[int] = []  # visited nodes whose component is not complete
    visited = 0
    for root in range(len(successors)):
        if order[root]:
            continue
        visited += 1
        order[root] = low[root] = visited
        stack.append(root)
        path, branches = [root], [iter(successors[root])]
        while path:
            node = path[-1]
            for target in branches[-1]:
                if not order[target]:
                    visited += 1
                    order[target] = low[target] = visited
                    stack.append(target)
                    path.append(target)
                    branches.append(iter(successors[target]))
                    break
                if closed[target]:
                    entered[target] = 1
                    safe[node] |= safe[target]
                elif order[target] < low[node]:
                    low[node] = order[target]
            else:
                path.pop()
                branches.pop()
                before = path[-1] if path else node
                if low[node] < order[node]:
                    low[before] = min(low[before], low[node])
                    continue
                members, escapes = _complete(node, stack, safe, closed)
                if before != node:
                    entered[node] = 1
                    safe[before] |= escapes
                if len(members) > 1 or node in successors[node]:
                    found.append(Component(sorted(members), escapes))
    return sorted(found)


def _complete(root: int, stack: list[int], safe: bytearray, closed: bytearray) -> tuple[list[int], bool]:
    """Take a complete component off the stack. Return its members, and whether an end can be reached from it."""
    members = [stack.pop()]
    while members[-1] != root:
        members.append(stack.pop())
    escapes = any(safe[member] for member in members)
    for member in members:
        closed[member] = 1
        safe[member] = escapes
    return members, escapes


def cycles_of(graph: Graph) -> list[CycleShape]:
    """Return the cycles in the order of their first node in the declaration."""
    return [_shape(graph, component.members) for component in graph.components()]


def _shape(graph: Graph, members: list[int]) -> CycleShape:
    anchor, over = graph.anchor(members)
    inside, names = set(members), graph.names
    edges = [(names[u], names[v]) for u in members for v in graph.successors[u] if v in inside]
    return CycleShape(tuple(sorted(names[place] for place in members)), tuple(sorted(edges)), anchor, over)


def unsafe_cycles(graph: Graph) -> list[list[str]]:
    """Return the names of every cycle from which no terminal node can be reached."""
    unsafe = [component.members for component in graph.components() if not component.safe]
    return sorted(sorted(graph.names[place] for place in members) for members in unsafe)


def check_graph(graph: Any) -> list[CycleShape]:
    """Check a declared graph and return its cycles: a mapping of nodes and edges, a NetworkX or a LangGraph graph.

    Raises `InvalidGraph`, or `UnsafeCycle`, which names every cycle without a way out. Linear in nodes and edges, with
    no limit on their number; workers follow graphs of at most 2 000 nodes and 10 000 edges.
    """
    read = read_graph(declaration(graph))
    if unsafe := unsafe_cycles(read):
        raise UnsafeCycle(unsafe)
    return cycles_of(read)
