"""Cycles of the workflow graph: declared by `run.started`, or found from handovers.

Memory: `CYCLES_MAX` cycles with `MEMBERS_MAX` members each, and the last `EDGES_MAX` edges. A handover that closes a
path of known edges makes a cycle; cycles that share a node merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import xxhash

from streamproc.core.graph import LARGE, Graph, read_graph, unsafe_cycles
from streamproc.core.run_state import CYCLES_MAX, EDGES_MAX, MEMBERS_MAX, TAG, Cycle, RunState
from streamproc.core.view import View
from streamproc.model.wire import Usage

EDGE_BYTES: Final = 14  # of an encoded state
NOT_ENTERED: Final = -1  # `Cycle.spent_before` of a declared cycle until its first turn


def declare(run: RunState, declared: Mapping[str, Any], tag: Callable[[str], int]) -> list[list[str]]:
    """Start to follow the cycles of a declared graph, and return those without a way out. Raises `InvalidGraph`, also
    for a graph that would hold up all other runs.

    A later graph of the run adds cycles. It restarts none, and the one with most iterations always stays: a run cannot
    set its own count back.
    """
    graph = read_graph(declared, any_size=False)
    found = graph.components()
    known = {cycle.id: cycle for cycle in run.cycles}
    most = CYCLES_MAX - bool(known)
    new = [_declared_cycle(graph, members, tag) for members, _ in found[:most]]
    new = [cycle for cycle in new if cycle.id not in known]
    kept = sorted(run.cycles, key=lambda cycle: -cycle.iterations)[: CYCLES_MAX - len(new)]
    run.evicted += max(0, len(found) - most) + len(known) - len(kept)
    run.cycles = [cycle for cycle in run.cycles if cycle in kept] + new
    run.size_left = 0
    return unsafe_cycles(graph)


def _declared_cycle(graph: Graph, places: list[int], tag: Callable[[str], int]) -> Cycle:
    anchor, over = graph.anchor(places)
    tags = {place: tag(graph.names[place]) for place in places}
    edges = [(u, v) for u in places for v in graph.successors[u] if v in tags]
    # The nodes of a very large cycle are enough for its id: sorting and hashing its edges takes longer than finding it.
    pairs = [(tags[u], tags[v]) for u, v in edges] if len(edges) <= LARGE else []
    members = [tag(name) for name in sorted(graph.names[place] for place in places)[:MEMBERS_MAX]]
    cycle = Cycle(cycle_hash(tags.values(), pairs), tag(anchor), tag(over) if over is not None else 0, members)
    cycle.many = len(places) > MEMBERS_MAX
    cycle.spent_before = NOT_ENTERED
    return cycle


def observe_handover(run: RunState, source: int, target: int) -> Cycle | None:
    """Record a handover, and return the cycle of which it completes an iteration, if any."""
    edge = source << 32 | target
    count = run.edges.pop(edge, 0)
    run.edges[edge] = count + 1
    if not count:
        if len(run.edges) > EDGES_MAX:
            del run.edges[next(iter(run.edges))]
            run.evicted += 1
        else:
            run.size_left -= EDGE_BYTES
        _find_cycle(run, source, target)
    for cycle in run.cycles:
        if cycle.anchor == target and (cycle.over == source or (not cycle.over and _inside(cycle, source))):
            cycle.iterations += 1
            return cycle
    return None


def cycle_of(view: View, node_tag: int, usage: Usage | None) -> Cycle | None:
    """Return the cycle that a node is in. Cost and runtime of a declared cycle count from its first turn.

    A node with a self-loop that follows itself completes an iteration without a handover.
    """
    run = view.run
    for cycle in run.cycles:
        if cycle.anchor == node_tag or node_tag in cycle.members:
            if cycle.spent_before == NOT_ENTERED:
                run.size_left = 0
                cycle.since_ms = run.at_ms
                cycle.spent_before = run.ledger.cost_usd_micro - (usage.cost_usd_micro or 0 if usage else 0)
            if cycle.anchor == node_tag == run.previous_node and not view.turn.from_ and _is_self_loop(cycle):
                cycle.iterations += 1
                view.iterated = cycle
            return cycle
    return None


def cycle_hash(nodes: Iterable[int], edges: Iterable[tuple[int, int]]) -> int:
    """Return the stable id of a cycle: the hash of its sorted node ids and sorted edge ids (none: a very large one)."""
    text = ",".join(map(str, sorted(nodes))) + "|" + ",".join(f"{u}>{v}" for u, v in sorted(edges))
    return xxhash.xxh3_64_intdigest(text.encode())


def _is_self_loop(cycle: Cycle) -> bool:
    return cycle.over == cycle.anchor or (not cycle.over and cycle.members == [cycle.anchor])


def _inside(cycle: Cycle, node_tag: int) -> bool:
    return cycle.many or node_tag in cycle.members


def _find_cycle(run: RunState, source: int, target: int) -> None:
    """Create or merge cycles if a new edge closes one: its target already leads to its source."""
    if any(_inside(cycle, source) and _inside(cycle, target) for cycle in run.cycles):
        return
    pairs = [(edge >> 32, edge & TAG) for edge in run.edges]
    if source != target and source not in _reached(pairs, target):
        return
    members = _reached(pairs, source) & _reached([(v, u) for u, v in pairs], source)
    edges = [(u, v) for u, v in pairs if u in members and v in members]
    merged = [cycle for cycle in run.cycles if members & set(cycle.members)]
    first = merged[0] if merged else _undeclared(run, target, members)
    first.id = cycle_hash(members, edges)
    first.members = sorted(members)[:MEMBERS_MAX]
    first.many = len(members) > MEMBERS_MAX
    run.cycles = [cycle for cycle in run.cycles if cycle not in merged]
    if len(run.cycles) >= CYCLES_MAX:
        del run.cycles[0]
        run.evicted += 1
    run.cycles.append(first)
    run.size_left = 0


def _undeclared(run: RunState, anchor: int, members: set[int]) -> Cycle:
    """Create an undeclared cycle. If all nodes so far belong to it, it began when the run began."""
    cycle = Cycle(0, anchor, 0, [], since_ms=run.at_ms, spent_before=run.ledger.cost_usd_micro)
    if run.node_counts.keys() <= members:
        cycle.since_ms, cycle.spent_before = run.started_ms, 0
    return cycle


def _reached(pairs: list[tuple[int, int]], start: int) -> set[int]:
    """Return all nodes that can be reached from one, itself included."""
    reached, more = {start}, {start}
    while more:
        more = {v for u, v in pairs if u in more} - reached
        reached |= more
    return reached
