"""Applies a turn to the state of its run: the first half of `step`, before detectors are asked.

The order matters: what is new must be known before repeats are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.core import kind
from streamproc.core.observe_results import has_changed_result, observe_results
from streamproc.core.observe_spend import observe_measures, reaches_a_limit, reaches_a_limit_of_cycles
from streamproc.core.records import HASH, ccall, cfunc, hash64, i32, i64, tag32, u32, u64
from streamproc.core.run_state import RunState
from streamproc.core.signals.calls import observe_calls
from streamproc.core.signals.cycle_memory import enter_cycle, pass_others, restart_cycles
from streamproc.core.signals.cycles import cycle_of, cycle_with, implied_source, observe_handover
from streamproc.core.signals.handovers import (
    FruitlessHandovers,
    brought_results,
    count_handover,
    edge_of_tags,
    end_handovers,
    failing_set_of,
    name_nodes,
    note_finder,
    shows_results,
    times_of,
)
from streamproc.core.signals.monologues import observe_monologue
from streamproc.core.signals.node_errors import observe_attempt
from streamproc.core.signals.nodes import NodeState, node_of_turn
from streamproc.core.signals.own_turns import OWN_TIMES, count_own, own_period
from streamproc.core.signals.periods import NARRATION, Period, push
from streamproc.core.signals.queries import has_answer, observe_query
from streamproc.core.signals.recent_calls import recent_repeats
from streamproc.core.signals.replies import note_message, observe_reply
from streamproc.core.signals.similarity import observe_near, says_alike
from streamproc.core.signals.spend import amount_of, counts_of
from streamproc.core.signals.statements import USER_NODES, observe_statement, settle_pending
from streamproc.core.signals.streaks import STREAK_BYTES
from streamproc.core.signals.text_streaks import is_text_only, observe_text_streak
from streamproc.core.signals.tools import observe_tools
from streamproc.core.view import GAP_MS, View
from streamproc.model.wire import HAND_OVER_MAX, NO_ANSWER, Call, Content, Turn, Usage

if TYPE_CHECKING:
    from streamproc.core.names import Names
    from streamproc.core.rules import Rules

TASK: Final = "task\0"  # prefix of task ids: a node is often named for its task, and equal tags would cancel out


@ccall
def observe_turn(view: View, rules: Rules) -> None:
    """Apply a turn to the state of its run, and set the kinds of evidence that it brings."""
    run: RunState = view.run
    turn: Turn = view.turn
    usage: Usage | None = turn.usage
    tag: u32 = view.names.tag(turn.node)
    source: u32 = view.names.tag(turn.from_) if turn.from_ else implied_source(run, tag)
    view.node_tag = tag
    view.topic = _topic(turn, view.names)
    view.node = node_of_turn(run, tag)
    view.node.last_turn = view.index
    view.counts = counts_of(run, tag)
    view.counts.turns += 1
    if usage is not None or run.turns_open:
        usage = observe_measures(view, rules, usage)
    if turn.round is not None or turn.convergence is not None or turn.consensus is not None:
        _observe_round(view)
    if source and (turn.from_ or source != tag):
        view.iterated = observe_handover(run, source, tag, not turn.from_)
    if len(run.cycles.table):
        _observe_cycle(view, usage, source)
    if run.pending.node:
        _settle_pending_text(view)
    if source and source != tag:  # a node that names itself goes on: it hands nothing over
        _observe_handover(view, source)
    enter_cycle(run, view.cycle)
    if turn.next or run.handovers.chosen_edge:
        _observe_choice(view)
    if turn.calls:
        _observe_calls(view, rules)
    _observe_results_and_texts(view, rules)
    if len(run.cycle_memories) and turn.node in USER_NODES:
        restart_cycles(run)
    if view.budgets and reaches_a_limit(view):
        view.kinds |= kind.BUDGET
    if view.took_ms or run.turns_open or run.at_ms - view.last_event_ms >= GAP_MS:
        view.kinds |= kind.CLOCK


@cfunc
def _observe_cycle(view: View, usage: Usage | None, source: u32) -> None:
    """Find the cycle that the turn is in, and apply the turn to those that it is outside of."""
    run: RunState = view.run
    cost: i64 = 0
    view.cycle = cycle_of(view, usage, source)
    if view.cycle is None or len(run.cycles.table) > 1:
        if usage is not None and usage.cost_usd_micro is not None:
            cost = amount_of(usage.cost_usd_micro)
        pass_others(run, view.cycle, cost, view.last_event_ms)
    if view.cycle is not None and view.cycle.iterations and view.budgets and reaches_a_limit_of_cycles(view):
        view.kinds |= kind.CYCLE


@cfunc
def _observe_results_and_texts(view: View, rules: Rules) -> None:
    """Apply results and texts, and then streaks: counting them needs to know what is new."""
    run: RunState = view.run
    turn: Turn = view.turn
    node: NodeState = view.node
    index: i32 = view.index
    output: Content | None = turn.output
    left: Content | None = turn.artifact or turn.docs
    said: Content | None = None if turn.calls else output  # a text beside calls is narration
    changed: bool = False
    told: bool
    found: bool
    apart: bool = view.switches.edges_apart
    had_tests: bool = apart and len(node.suites) > 0
    failing_set: u64 = failing_set_of(node) if apart else 0
    if left is not None or turn.tests is not None or turn.errors is not None or turn.progress:
        observe_results(view, rules)
        changed = has_changed_result(turn, node)
    changed = changed or run.novelty.last_discovery == index
    if view.switches.every_error and observe_attempt(run, node, turn, index, view.names):
        view.kinds |= kind.ERRORS
    if said is not None or left is not None or turn.structured is not None:
        _observe_content(view, said)
    if view.switches.outputs_gated or view.switches.sequences_gated:
        _observe_own_turns(view, rules)
    if said is not None or run.monologue.count or run.text_streak.count:
        _observe_talk(view, said)
    if turn.query is not None or node.query.count:
        _observe_query(view)
    found = run.novelty.last_discovery == index
    if found:
        view.near = observe_near(run, turn, index)
        if view.near >= 0:
            view.kinds |= kind.NEAR
    told = output is not None and says_alike(node, output)
    told = changed or (found and not told) or _has_unreported_answers(turn)
    if apart:
        told = brought_results(run, turn, node, index, had_tests, failing_set) or (told and not shows_results(node))
    if told:
        note_finder(run, 0 if changed else view.node_tag, index)
    if run.novelty.last_news == index:
        view.clear_loops()


@cfunc
def _observe_query(view: View) -> None:
    if not view.node.query.count:
        view.run.size_left -= STREAK_BYTES
    if view.turn.query is not None and observe_query(view.node, view.turn.query, view.index):
        view.kinds |= kind.QUERY
    if not view.node.has_answered:
        view.node.has_answered = has_answer(view.turn)


@cfunc
def _observe_handover(view: View, source: u32) -> None:
    """Apply a handover from `source`, unless it was counted when a routing node chose it. Within a cycle, only what
    the cycle has found since counts."""
    run: RunState = view.run
    turn: Turn = view.turn
    tag: u32 = view.node_tag
    apart: bool = view.switches.edges_apart
    name: str
    counted: FruitlessHandovers
    if view.cycle is not None and view.cycle.inside(source):
        enter_cycle(run, view.cycle)
    if apart:
        end_handovers(run, tag)
    if run.handovers.chosen_edge != edge_of_tags(source, tag) and turn.node not in USER_NODES and _has_evidence(turn):
        name = turn.from_ or run.handovers.previous_name.get()
        if name not in USER_NODES:
            counted = count_handover(run, source, tag, view.index, False, apart)
            view.set_handover(name, turn.node, times_of(counted, False), counted.first)
            if apart:
                name_nodes(run, source, name, tag, turn.node)


@cfunc
def _observe_choice(view: View) -> None:
    """Apply the choice of a routing node: where to go next."""
    run: RunState = view.run
    turn: Turn = view.turn
    tag: u32 = view.node_tag
    chosen: u32
    apart: bool = view.switches.edges_apart
    counted: FruitlessHandovers
    run.handovers.chosen_edge = 0
    if apart:
        end_handovers(run, tag)
    if turn.next:
        chosen = view.names.tag(turn.next)
        run.handovers.chosen_edge = edge_of_tags(tag, chosen)
        counted = count_handover(run, tag, chosen, view.index, True, apart)
        if apart:
            name_nodes(run, tag, turn.node, chosen, turn.next)
        view.set_handover(turn.node, turn.next, times_of(counted, True), counted.first)


@cfunc
def _observe_calls(view: View, rules: Rules) -> None:
    run: RunState = view.run
    turn: Turn = view.turn
    actor: u32 = view.node_tag ^ view.topic  # who calls, and for what
    observe_calls(view, actor, rules.judge_poll)
    if view.switches.calls_gated:
        view.recent = recent_repeats(run, turn.calls, actor, view.index, rules.gates.calls)
        if view.recent and not view.kinds & kind.REPEATED_CALL:
            view.repeated = ()
            view.kinds |= kind.REPEATED_CALL
    observe_tools(view, view.names)


@cfunc
def _observe_round(view: View) -> None:
    run: RunState = view.run
    turn: Turn = view.turn
    current: u64
    view.kinds |= kind.ROUND
    if turn.round is not None:
        current = min(turn.round, HASH)
        view.round_before, run.round = run.round, max(run.round, current)
    if turn.convergence is not None or turn.consensus is not None:
        run.checks_rounds = True


@cfunc
def _observe_talk(view: View, said: Content | None) -> None:
    """Apply a text to the monologue and the text-only streak in progress; a turn with anything else ends them."""
    run: RunState = view.run
    turn: Turn = view.turn
    if said is None or turn.tests or turn.artifact or turn.structured or turn.docs or turn.next:
        run.monologue.clear()
        if run.text_streak.count and (turn.calls or turn.next or _has_evidence(turn)):
            run.text_streak.end()
        return
    if observe_monologue(run, view.node_tag, said, view.topic, view.index):
        view.kinds |= kind.MONOLOGUE
    if turn.node in USER_NODES:
        run.text_streak.end()
        note_message(run, hash64(said.norm))
    elif not is_text_only(turn):
        run.text_streak.end()
    else:
        if turn.from_ and view.names.tag(turn.from_) != view.node_tag:
            run.text_streak.end()  # handed over: another node has decided in between
        observe_text_streak(run, view.node_tag, view.topic, said, view.index)
        if run.text_streak.count > 1 and view.node.last_call >= 0:
            view.kinds |= kind.TEXT_STREAK
        if run.messages.count and observe_reply(run, view.node, said, view.topic, view.index):
            view.kinds |= kind.REPLY


@cfunc
def _observe_content(view: View, output: Content | None) -> None:
    """Apply texts and structured outputs. Repeats come last: they need to know what is new in this turn."""
    run: RunState = view.run
    turn: Turn = view.turn
    topic: u64 = _subject(view)
    value: u64
    period: Period | None
    left: Content | None = turn.structured or turn.artifact or turn.docs
    if output is not None and view.node.last_call >= 0 and left is None and turn.tests is None:
        value = view.node_tag ^ hash64(output.norm) ^ topic
        if turn.query is not None and not run.novelty.seen.has(tag32(value)):
            run.novelty.last_result = view.index  # the answer to a query, whether or not it turns out to be narration
        period = push(run, NARRATION, tag32(value) & ~1, view.index)
        if period is not None:
            view.add_period(period)
        run.pending.node, run.pending.value, run.pending.turn = view.node_tag, value, view.index
    elif output is not None or left is not None:
        observe_statement(view, topic)
    if not view.switches.outputs_gated:  # else they are counted with the texts beside calls
        _observe_repeats(view, output, topic)


@cfunc
def _observe_repeats(view: View, output: Content | None, topic: u64) -> None:
    run: RunState = view.run
    turn: Turn = view.turn
    node: NodeState = view.node
    news: i32 = run.novelty.last_news
    result: i32 = run.novelty.last_result
    if output is not None:
        run.evidence.outputs.push(hash64(output.norm))
        if not turn.next or output.size > HAND_OVER_MAX:  # repeated hand-overs are LOOP005's
            if not node.output.count:
                run.size_left -= STREAK_BYTES
            node.output.extend(hash64(output.norm) ^ topic, view.index, news, result, node.last_call)
            if node.output.count > 1 or node.output.own >= OWN_TIMES:
                view.add_repeated_text(node.output)
    if turn.structured is not None:
        if output is None:
            run.evidence.outputs.push(hash64(turn.structured.norm))
        if not node.structured.count:
            run.size_left -= STREAK_BYTES
        node.structured.extend(hash64(turn.structured.norm) ^ topic, view.index, news, result, -1)
        if node.structured.count > 1 or node.structured.own >= OWN_TIMES:
            view.add_repeated_text(node.structured)


@cfunc
def _observe_own_turns(view: View, rules: Rules) -> None:
    """Count repeats in the node's own turns: the policy has a gate of its own for outputs or their sequences."""
    content: Content | None = view.turn.output or view.turn.structured
    period: Period | None
    if content is not None and view.switches.outputs_gated:
        view.run.evidence.outputs.push(hash64(content.norm))
        count_own(view, _subject(view), rules.gates.outputs)
    if view.switches.sequences_gated:
        period = own_period(view.run, view.node_tag, view.turn, _subject(view), rules.gates.sequences, view.index)
        if period is not None:
            view.add_period(period)


@cfunc
def _topic(turn: Turn, names: Names) -> u32:
    """Return a tag of what a turn is about: equal answers and calls for other tasks or requests are not repeats."""
    topic: u32 = names.tag(TASK + turn.task_id) if turn.task_id else 0
    if turn.request:
        topic ^= tag32(hash64(turn.request))
    return topic


@cfunc
def _subject(view: View) -> u64:
    """Return a hash of the topic of a turn with its query and errors: equal texts about others are not repeats."""
    turn: Turn = view.turn
    topic: u64 = view.topic
    if turn.query is not None:
        topic ^= hash64(turn.query.norm) >> 4
    if turn.errors is not None and turn.errors.count:
        topic ^= hash64(turn.errors.norm) >> 5
    return topic


@cfunc
def _settle_pending_text(view: View) -> None:
    """Decide whether the text of the turn before was a message or narration, now that the next node is known."""
    run: RunState = view.run
    author: u32 = run.pending.node
    since: i32 = run.pending.turn
    judged: bool
    enter_cycle(run, cycle_with(run, author))
    settle_pending(view)
    judged = view.switches.edges_apart and shows_results(run.nodes.find(author))
    if run.novelty.last_discovery == since and not judged:
        note_finder(run, author, since)
    enter_cycle(run, None)


@cfunc
def _has_evidence(turn: Turn) -> bool:
    """Whether a turn reports any work. Without that, a handover cannot be called fruitless."""
    return bool(
        turn.calls or turn.output or turn.structured or turn.artifact or turn.docs or turn.tests or turn.errors
        or turn.progress or turn.query
    )  # fmt: skip


@cfunc
def _has_unreported_answers(turn: Turn) -> bool:
    """Whether a turn made calls whose answers were not reported: the turn may have found something."""
    call: Call
    if turn.output is not None or not turn.calls:
        return False
    call = turn.calls[0]
    return hash64(call.outcome) == NO_ANSWER
