"""Cycles of the workflow graph: declared by `run.started`, or found from handovers.

Memory: `CYCLES_MAX` cycles with `MEMBERS_MAX` members each, and the last `EDGES_MAX` edges. A handover that closes a
path of known edges makes a cycle; cycles that share a node merge. Read by BUDGET004 and STALL009.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import xxhash

from streamproc.core.graph import LARGE, Graph, read_graph, unsafe_cycles
from streamproc.core.now import Now
from streamproc.core.records import TAG, Record, Row, Table, Values, cclass, cfunc, final, flag, i32, i64, u32, u64

EDGES_MAX: Final = 24  # handovers stored to find cycles
CYCLES_MAX: Final = 6  # cycles followed at the same time
MEMBERS_MAX: Final = 8  # members of a cycle known by tag; in a larger cycle, any handover to the anchor counts
NOT_ENTERED: Final = -1  # `Cycle.spent_before` of a declared cycle until its first turn


@final
@cclass
class Edge(Row):
    """A handover that happened. Key: source tag << 32 | target tag."""


@final
@cclass
class Cycle(Row):
    """A cycle of the workflow graph. Each handover to `anchor`, and each round that avoids it, completes an iteration.
    Key: its id (`cycle_hash`)."""

    since_ms: i64  # log time from which its runtime counts
    spent_before: i64  # micro-USD that the run had spent before it; -1: a declared cycle not yet entered
    anchor: u32  # tag of the node at which iterations are counted; 0: that of its first turn
    over: u32  # tag of the anchor edge's source if that edge was declared; 0: any member
    iterations: u32  # completed so far
    many: flag  # whether it has more nodes than `members`
    members: Values  # tags of its nodes

    def __init__(self) -> None:
        self.members = Values(MEMBERS_MAX)
        super().__init__(self.members)

    @cfunc
    def inside(self, node_tag: u32) -> bool:
        """Whether a node may be a member."""
        return self.many or self.members.has(node_tag)

    @cfunc
    def stays_at(self, node_tag: u32) -> bool:
        """Whether it consists of this node, which hands over to itself."""
        if self.anchor != node_tag:
            return False
        return self.over == node_tag if self.over else self.members.size == 1 and self.members.has(node_tag)


@final
@cclass
class Cycles(Record):
    """The cycles of a run."""

    edges: Table  # of `Edge`, least recent first
    table: Table  # of `Cycle`, declared, or found from handovers

    def __init__(self) -> None:
        self.edges, self.table = Table(Edge, EDGES_MAX), Table(Cycle, CYCLES_MAX)
        super().__init__(self.edges, self.table)

    def declare(self, declared: Mapping[str, Any], now: Now) -> list[list[str]]:
        """Start to follow the cycles of a declared graph, and return those without a way out. Raises `InvalidGraph`,
        also for a graph that would hold up all other runs.

        A later graph of the run adds cycles. It restarts none, and the one with most iterations always stays: a run
        cannot set its own count back.
        """
        graph = read_graph(declared, any_size=False)
        found = graph.components()
        table = self.table
        known = [cycle.key for cycle in table.rows]
        most = CYCLES_MAX - bool(known)
        new = [one for members, _ in found[:most] if (one := _declared_cycle(graph, members, now.tag))[0] not in known]
        by_iterations = [cycle.key for cycle in sorted(table.rows, key=lambda cycle: -int(cycle.iterations))]
        dropped = by_iterations[CYCLES_MAX - len(new) :]
        now.evicted += max(0, len(found) - most) + len(dropped)
        for key in dropped:
            table.forget(key)
        for key, anchor, over, members, many in new:
            if table.find(key) is not None:
                continue
            cycle = table.add(key)
            cycle.anchor, cycle.over, cycle.many, cycle.spent_before = anchor, over, many, NOT_ENTERED
            for member in members:
                cycle.members.push(member)
        return unsafe_cycles(graph)

    @cfunc
    def knows(self, source: u32, target: u32) -> bool:
        """Whether a handover is among the last ones."""
        edge: u64 = source
        return self.edges.find(edge << 32 | target) is not None

    @cfunc
    def observe(self, now: Now, source: u32, beside: bool, counts: Table) -> Cycle | None:
        """Record a handover to the node of this turn, and return the cycle of which it completes an iteration, if any.

        `beside`: if the handover would merge cycles, there was none, and the cycles work side by side. `counts` are
        those of the run's nodes.
        """
        edge: u64 = source
        target: u32 = now.node_tag
        cycle: Cycle
        edge = edge << 32 | target
        if self.edges.touch(edge) is None:
            if self.edges.full():
                now.evicted += 1
            self.edges.add(edge)
            if (source == target or _leads_on(self.edges, target)) and self._of_both(source, target) is None:
                self._find(now, source, target, beside, counts)
        for cycle in self.table.rows:
            if cycle.anchor == target and (cycle.over == source or (not cycle.over and cycle.inside(source))):
                cycle.iterations += 1
                return cycle
        return self._around(source, target) if source != target else None

    @cfunc
    def _around(self, source: u32, target: u32) -> Cycle | None:
        """Return the cycle of which a handover completes an iteration that avoids the anchor: a coder and a verifier go
        on while the planner, at which iterations are counted, has no turn. Such a round counts at one of its nodes,
        that with the lowest tag.
        """
        place: i32
        row: Edge
        cycle: Cycle | None = self._of_both(source, target) if source > target else None
        if cycle is None:
            return None
        for place in range(len(self.edges.rows) - 2, -1, -1):  # the last one is this handover
            row = self.edges.rows[place]
            source = row.key >> 32
            if row.key & TAG == cycle.anchor and (not cycle.over or source == cycle.over):
                return None
            if source == target:
                cycle.iterations += 1
                return cycle
            if source < target and cycle.inside(source):
                return None
        return None

    @cfunc
    def _of_both(self, source: u32, target: u32) -> Cycle | None:
        """Return the cycle that both nodes are in: a new edge between them closes no other."""
        cycle: Cycle
        for cycle in self.table.rows:
            if cycle.inside(source) and cycle.inside(target):
                return cycle
        return None

    @cfunc
    def of_node(self, node_tag: u32) -> Cycle | None:
        """Return the cycle that a node is in."""
        cycle: Cycle
        for cycle in self.table.rows:
            if cycle.anchor == node_tag or cycle.members.has(node_tag):
                return cycle
        return None

    @cfunc
    def enter(self, now: Now, cost_usd_micro: i64) -> Cycle | None:
        """Return the cycle that a turn's node is in. Cost and runtime of a declared cycle count from its first turn."""
        cycle: Cycle | None = self.of_node(now.node_tag)
        if cycle is not None and cycle.spent_before == NOT_ENTERED:
            cycle.since_ms, cycle.spent_before = now.at_ms, now.spent_usd_micro - cost_usd_micro
            cycle.anchor = cycle.anchor or now.node_tag
        return cycle

    def _find(self, now: Now, source: int, target: int, beside: bool, counts: Table) -> None:
        """Create or merge cycles if a new edge closes one: its target already leads to its source."""
        table = self.table
        pairs = [(edge.key >> 32, edge.key & TAG) for edge in self.edges.rows]
        if source != target and source not in _reached(pairs, target):
            return
        members = _reached(pairs, source) & _reached([(v, u) for u, v in pairs], source)
        edges = [(u, v) for u, v in pairs if u in members and v in members]
        merged = [cycle for cycle in table.rows if members & set(cycle.members.listed())]
        key = cycle_hash(members, edges)
        if merged and beside:
            return
        if merged:
            first = merged[0]
            for cycle in merged[1:]:
                table.forget(cycle.key)
            if first.key != key:
                table.forget(key)
            table.rekey(first.key, key)
        else:
            if table.full():
                now.evicted += 1
            first = table.add(key)
            first.anchor, first.since_ms, first.spent_before = target, now.at_ms, now.spent_usd_micro
            if {node.key for node in counts.rows} <= members:  # it began when the run began
                first.since_ms, first.spent_before = now.started_ms, 0
        first.members.clear()
        for member in sorted(members)[:MEMBERS_MAX]:
            first.members.push(member)
        first.many = len(members) > MEMBERS_MAX


def _declared_cycle(
    graph: Graph, places: list[int], tag: Callable[[str], int]
) -> tuple[int, int, int, list[int], bool]:
    """Return the id, the anchor, the source of its edge (0: any), and members of a declared cycle; whether it has
    more."""
    anchor, over = graph.anchor(places)
    tags = {place: tag(graph.names[place]) for place in places}
    edges = [(u, v) for u in places for v in graph.successors[u] if v in tags]
    # The nodes of a very large cycle are enough for its id: sorting and hashing its edges takes longer than finding it.
    pairs = [(tags[u], tags[v]) for u, v in edges] if len(edges) <= LARGE else []
    members = [tag(name) for name in sorted(graph.names[place] for place in places)[:MEMBERS_MAX]]
    source = tag(over) if over is not None else 0
    return cycle_hash(tags.values(), pairs), tag(anchor) if anchor else 0, source, members, len(places) > MEMBERS_MAX


@cfunc
def _leads_on(edges: Table, node_tag: u32) -> bool:
    """Whether any edge begins at a node. If none does, no cycle contains it, and a new edge to it closes none."""
    edge: Edge
    for edge in edges.rows:
        if edge.key >> 32 == node_tag:
            return True
    return False


def cycle_hash(nodes: Iterable[int], edges: Iterable[tuple[int, int]]) -> int:
    """Return the stable id of a cycle: the hash of its sorted node ids and sorted edge ids (none: a very large one)."""
    text = ",".join(map(str, sorted(nodes))) + "|" + ",".join([f"{u}>{v}" for u, v in sorted(edges)])
    return xxhash.xxh3_64_intdigest(text.encode())


def _reached(pairs: list[tuple[int, int]], start: int) -> set[int]:
    """Return all nodes that can be reached from one, itself included."""
    reached, more = {start}, {start}
    while more:
        more = {v for u, v in pairs if u in more} - reached
        reached |= more
    return reached
