"""Applies handovers between nodes: those that a turn answers, those that it decides on, and what is found for them."""

from __future__ import annotations

from streamproc.core import kind
from streamproc.core.observe_texts import has_evidence
from streamproc.core.records import cfunc, i32, u32
from streamproc.core.run_state import RunState
from streamproc.core.signals.calls import IDLE, OVER, POLL
from streamproc.core.signals.handovers import (
    FruitlessHandovers,
    Handovers,
    edge_of_tags,
    gives_work,
    name_nodes,
    times_of,
)
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.statements import USER_NODES
from streamproc.core.view import View
from streamproc.model.wire import WAITS, Turn


@cfunc
def observe_handover(view: View, source: u32) -> FruitlessHandovers | None:
    """Apply a handover from `source`, unless it was counted when a routing node chose it. Within a cycle, only what
    the cycle has found since counts. Return the handover that the turn answers, if it is counted."""
    run: RunState = view.run
    turn: Turn = view.turn
    tag: u32 = view.node_tag
    apart: bool = view.switches.edges_apart
    name: str
    counted: FruitlessHandovers | None
    if view.cycle is not None and view.cycle.inside(source):
        run.cycle_memories.enter(view.cycle, view.index)
    if apart:
        run.handovers.end(tag, True)
    counted = run.handovers.arrive(edge_of_tags(source, tag))
    if counted is not None or turn.node in USER_NODES or not has_evidence(turn) or _goes_on(view, source):
        return counted
    name = turn.from_ or run.handovers.previous_name.get()
    if name in USER_NODES:
        return None
    counted = run.handovers.count(
        view, source, tag, False, run.nodes if apart else None,
        apart and gives_work(turn.node, name), apart and gives_work(name, turn.node),
    )  # fmt: skip
    view.set_handover(name, turn.node, times_of(counted, False), counted.first)
    if apart:
        name_nodes(run.cold.node_names, source, name, tag, turn.node)
    return counted


@cfunc
def _goes_on(view: View, source: u32) -> bool:
    """Return whether a node that makes calls goes on with what it was given: it names its sender in each turn, and that
    has not acted since its last one."""
    sender: NodeState | None = view.run.nodes.find(source)
    before: i32 = view.turn_before
    if before < 0 or (sender is not None and sender.last_turn > before):
        return False
    return bool(view.turn.calls) or view.node.last_call >= 0


@cfunc
def forgive_handover(view: View, handover: FruitlessHandovers | None) -> None:
    """Do not count the handover that a turn answers if the turn does not show that it was fruitless: it polls, meets
    only errors of the infrastructure, or reports nothing. If edges are apart, a poll must say that something still
    runs; else it may be known as one by its changes, and the node may look at things again."""
    turn: Turn = view.turn
    apart: bool = view.switches.edges_apart
    polls: bool
    if handover is None:
        return
    if turn.calls:
        polls = _says_it_runs(turn) if apart else (view.known & POLL) > 0
        if not polls and (not view.known or view.known & (IDLE | OVER) or apart):
            return
    elif (turn.next or has_evidence(turn)) and (turn.errors is None or not turn.errors.retryable):
        return
    handover.forgive()
    view.kinds &= ~kind.HANDOVER


def _says_it_runs(turn: Turn) -> bool:
    """Whether an answer says that something still runs."""
    return any(call.marks & WAITS for call in turn.calls)


@cfunc
def observe_choice(view: View) -> None:
    """Apply the choice of a routing node: where to go next."""
    run: RunState = view.run
    turn: Turn = view.turn
    tag: u32 = view.node_tag
    chosen: u32
    leaves: bool
    apart: bool = view.switches.edges_apart
    counted: FruitlessHandovers
    run.handovers.chosen_edge = 0
    if apart:
        run.handovers.end(tag, True)
    if turn.next:
        chosen = view.names.tag(turn.next)
        leaves = view.cycle is not None and not view.cycle.inside(chosen)
        if leaves:  # what is found there is not found within the cycle
            run.cycle_memories.enter(None, view.index)
        run.handovers.chosen_edge = edge_of_tags(tag, chosen)
        counted = run.handovers.count(view, tag, chosen, True, run.nodes if apart else None, False, False)
        if apart:
            name_nodes(run.cold.node_names, tag, turn.node, chosen, turn.next)
        view.set_handover(turn.node, turn.next, times_of(counted, True), counted.first)
        if leaves:
            run.cycle_memories.enter(view.cycle, view.index)


@cfunc
def note_finder_of(view: View, changed: bool) -> None:
    """Note that the node of this turn has found something: more than words if a result has `changed`."""
    handovers: Handovers = view.run.handovers
    handovers.note_finder(0 if changed else view.node_tag, view.index)
    if view.switches.edges_apart:
        handovers.find_for(view.node_tag, view.index)
        if view.run.graphs > 0 and view.cycle is None:
            handovers.credit(view.index)
