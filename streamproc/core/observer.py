"""Applies a turn to the state of its run: the first half of `step`, before detectors are asked.

Each signal sees the turn once, in the order in which it is written here: what is new must be known before repeats are
counted. What a signal says it saw becomes evidence in the view, under the bit of its kind.
"""

from __future__ import annotations

from typing import Final

from streamproc.core import kind
from streamproc.core.board.owners import task_in_progress
from streamproc.core.names import Names
from streamproc.core.observe_handovers import forgive_handover, note_finder_of, observe_choice, observe_handover
from streamproc.core.observe_results import has_changed_result, observe_results
from streamproc.core.observe_spend import observe_measures, reaches_a_limit, reaches_a_limit_of_cycles
from streamproc.core.observe_texts import observe_content, observe_own_turns, observe_talk
from streamproc.core.records import HASH, Table, ccall, cfunc, hash64, i32, i64, tag32, u32, u64
from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.core.signals.calls import Repeats
from streamproc.core.signals.cycles import Cycle
from streamproc.core.signals.handovers import (
    FruitlessHandovers,
    brought_results,
    failing_set_of,
    is_round_check,
    only_failed,
    says_only,
    shows_results,
)
from streamproc.core.signals.node_errors import observe_attempt
from streamproc.core.signals.nodes import NodeState, longest_silent
from streamproc.core.signals.own_turns import others_work
from streamproc.core.signals.periods import own_stream
from streamproc.core.signals.queries import has_answer, observe_query
from streamproc.core.signals.recent_calls import observe_recent_calls
from streamproc.core.signals.similarity import says_alike
from streamproc.core.signals.spend import amount_of, counts_of
from streamproc.core.signals.statements import NO_WORK, USER_NODES
from streamproc.core.signals.task_attempts import attempted_task, observe_task_attempt
from streamproc.core.signals.tools import ToolsSeen
from streamproc.core.view import GAP_MS, View
from streamproc.model.wire import NO_ANSWER, Call, Content, Turn, Usage

AGENT: Final = "agent\0"  # prefix of agents, for the same reason as that of tasks
TASK: Final = "task\0"  # prefix of task ids: a node is often named for its task, and equal tags would cancel out


@ccall
def observe_turn(view: View, rules: Rules) -> None:
    """Apply a turn to the state of its run, and set the kinds of evidence that it brings."""
    run: RunState = view.run
    turn: Turn = view.turn
    usage: Usage | None = turn.usage
    tag: u32 = view.names.tag(turn.node)
    source: u32 = view.names.tag(turn.from_) if turn.from_ else _implied_source(run, tag)
    beside: bool
    handover: FruitlessHandovers | None = None
    view.node_tag = tag
    view.topic = _topic(run, turn, rules, view.names)
    view.node = _node_of_turn(view)
    view.turn_before, view.node.last_turn = view.node.last_turn, view.index
    view.counts = counts_of(run.node_counts, view)
    view.counts.turns += 1
    if usage is not None or run.turns_open:
        usage = observe_measures(view, rules, usage)
    view.spent_usd_micro = run.ledger.cost_usd_micro
    if turn.round is not None or turn.convergence is not None or turn.consensus is not None:
        _observe_round(view)
    if source and (turn.from_ or source != tag):
        beside = run.graphs > 0 and not turn.from_  # cycles of a declared graph take turns: they hand nothing over
        view.iterated = run.cycles.observe(view, source, beside, run.node_counts)
    if len(run.cycles.table):
        _observe_cycle(view, usage, source)
    if run.pending.node:
        _settle_pending_text(view)
    if source and source != tag:  # a node that names itself goes on: it hands nothing over
        handover = observe_handover(view, source)
    run.cycle_memories.enter(view.cycle, view.index)
    if turn.next or run.handovers.chosen_edge:
        observe_choice(view)
    if turn.calls:
        _observe_calls(view, rules)
    forgive_handover(view, handover)
    _observe_results_and_texts(view, rules)
    if len(run.cycle_memories.table) and turn.node in USER_NODES:
        run.cycle_memories.reset()
    if view.budgets and reaches_a_limit(view):
        view.kinds |= kind.BUDGET
    if view.took_ms or run.turns_open or run.at_ms - view.last_event_ms >= GAP_MS:
        view.kinds |= kind.CLOCK


@cfunc
def _node_of_turn(view: View) -> NodeState:
    """Return the memory of the turn's node, new if there is none."""
    nodes: Table = view.run.nodes
    oldest: NodeState
    node: NodeState | None = nodes.find(view.node_tag)
    if node is None:
        if nodes.full():
            oldest = longest_silent(nodes)
            view.streams.windows.forget(own_stream(oldest.key))
            nodes.forget(oldest.key)
            view.evicted += 1
        node = nodes.add(view.node_tag)
    return node


@cfunc
def _implied_source(run: RunState, target: u32) -> u32:
    """Return the node that handed over to the node of this turn, if only the order of the turns says so: the node of
    the last turn. In a run that has declared its graph, cycles beside each other take turns: there it is the node of
    the same cycle that acted last."""
    cycle: Cycle | None
    node: NodeState
    last: NodeState | None = None
    previous: u32 = run.handovers.previous_node
    if not run.graphs or previous == target:
        return previous
    cycle = run.cycles.of_node(target)
    if cycle is None or cycle.inside(previous):
        return previous
    for node in run.nodes.rows:
        if cycle.members.has(node.key) and (last is None or node.last_turn > last.last_turn):
            last = node
    return previous if last is None else last.key


@cfunc
def _observe_cycle(view: View, usage: Usage | None, source: u32) -> None:
    """Find the cycle that the turn is in, and apply the turn to those that it is outside of. A node with a self-loop
    that follows itself completes an iteration without a handover."""
    run: RunState = view.run
    cost: i64 = amount_of(usage.cost_usd_micro) if usage is not None else 0
    cycle: Cycle | None = run.cycles.enter(view, cost)
    view.cycle = cycle
    if cycle is not None and source == view.node_tag and not view.turn.from_ and cycle.stays_at(source):
        cycle.iterations += 1
        view.iterated = cycle
    if cycle is None or len(run.cycles.table) > 1:
        run.cycle_memories.pass_others(view, run.cycles.table, cycle, cost)
    if cycle is not None and cycle.iterations and view.budgets and reaches_a_limit_of_cycles(view):
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
    worked: bool = apart and others_work(run.nodes, node, None) > view.turn_before
    passes: bool = worked and turn.tests is not None and not turn.tests.failing
    _find_task(view)
    if left is not None or turn.tests is not None or turn.errors is not None or turn.progress:
        observe_results(view, rules)
        changed = has_changed_result(turn, node)
    changed = changed or run.novelty.last_discovery == index
    if view.switches.every_error:
        _observe_attempts(view)
    if said is not None or left is not None or turn.structured is not None:
        observe_content(view, said)
    if view.switches.outputs_gated or view.switches.sequences_gated:
        observe_own_turns(view, rules)
    if said is not None or run.monologue.count or run.text_streak.count:
        observe_talk(view, said)
    if turn.query is not None and observe_query(view, turn.query, run.nodes):
        view.kinds |= kind.QUERY
    if node.query.count and not node.has_answered:
        node.has_answered = has_answer(turn)
    found = run.novelty.last_discovery == index
    if found:
        view.near = run.long_texts.observe(view)
        if view.near:
            view.kinds |= kind.NEAR
    told = output is not None and says_alike(node, output)
    told = changed or (found and not told) or _has_unreported_answers(turn)
    if apart:
        told = told and not shows_results(node) and not says_only(turn.node, turn) and not only_failed(turn)
        told = brought_results(view, had_tests, failing_set, passes) or told
        told = told or (worked and run.novelty.last_answer_change == index)  # as from failed to passed
    if told:
        note_finder_of(view, changed)
    view.excuse_loops()


@cfunc
def _find_task(view: View) -> None:
    """Set the task that the turn is an attempt at."""
    run: RunState = view.run
    turn: Turn = view.turn
    view.task = 0
    if view.switches.every_error and (turn.task_id or turn.errors is not None or turn.call_errors is not None):
        view.task = attempted_task(view, run.cold.task_attempts if run.cold_raw or run.cold_changed else {})


@cfunc
def _observe_attempts(view: View) -> None:
    run: RunState = view.run
    failed: bool = observe_attempt(view, run.attempts, run.nodes, run.handovers.previous_name.get())
    if failed:
        view.kinds |= kind.ERRORS
    view.task_attempt = None
    if (view.turn.task_id or view.turn.errors is not None) and (failed or run.cold_raw or run.cold_changed):
        view.task_attempt = observe_task_attempt(view, run.cold.task_attempts, failed=failed)


@cfunc
def _observe_calls(view: View, rules: Rules) -> None:
    run: RunState = view.run
    seen: Repeats | None
    tools: ToolsSeen | None
    view.caller = view.node_tag ^ _tag_of_agent(view.turn, view.names)
    _note_found(view)
    if run.callers.current != view.caller:
        run.callers.enter(view, view.caller, run.tools, run.calls, run.reruns)
    seen = run.calls.observe(view, rules.judge_poll)
    run.call_turns = view.call_turns
    if seen is not None:
        if seen.calls or seen.written:
            view.repeated = seen.calls
            view.kinds |= kind.REPEATED_CALL
        if seen.stale:
            view.kinds |= kind.STALE
    if run.reruns.observe(view, run.calls) and not view.kinds & kind.REPEATED_CALL:
        view.repeated = ()
        view.kinds |= kind.REPEATED_CALL
    if view.switches.calls_gated:
        view.recent = observe_recent_calls(view, run.cold.recent_calls, rules.gates.calls)
        if view.recent and not view.kinds & kind.REPEATED_CALL:
            view.repeated = ()
            view.kinds |= kind.REPEATED_CALL
    tools = run.tools.observe(view)
    view.tools = () if tools is None else tools.answers
    if tools is not None:
        _show_tools(view, tools)


@cfunc
def _note_found(view: View) -> None:
    """Set what was new before the calls of this turn, without the words of their own node: announced in other words, a
    repeat is one."""
    run: RunState = view.run
    view.found, view.news = run.novelty.last_discovery, run.novelty.last_news
    if run.handovers.finder != view.caller or run.handovers.found != view.found:
        return
    view.found = run.handovers.others_found
    if view.news == run.handovers.found:
        view.news = max(view.found, run.novelty.last_result)


@cfunc
def _show_tools(view: View, tools: ToolsSeen) -> None:
    if tools.same:
        view.kinds |= kind.TOOL
    if tools.same_error:
        view.kinds |= kind.TOOL_FAILS
    if tools.failed:
        view.kinds |= kind.FAILING
    if tools.retried:
        view.kinds |= kind.RETRIES


@cfunc
def _observe_round(view: View) -> None:
    run: RunState = view.run
    turn: Turn = view.turn
    current: u64
    view.kinds |= kind.ROUND
    if turn.round is not None:
        current = min(turn.round, HASH)
        view.round_before, run.round = run.round, max(run.round, current)
    if turn.convergence is not None or turn.consensus is not None or is_round_check(turn.node):
        run.checks_rounds = True


@cfunc
def _topic(run: RunState, turn: Turn, rules: Rules, names: Names) -> u32:
    """Return a tag of what a turn is about, and of which agent: equal answers and calls for other tasks or requests,
    and those of other agents at the same node, are not repeats."""
    topic: u32 = 0
    if turn.task_id:
        topic = names.tag(TASK + turn.task_id)
    elif run.has_board:
        topic = _topic_on_board(run, turn, rules, names)
    topic ^= _tag_of_agent(turn, names)
    if turn.request:
        topic ^= tag32(hash64(turn.request))
    return topic


@cfunc
def _tag_of_agent(turn: Turn, names: Names) -> u32:
    """Return a tag of the agent of a turn; 0 if it has the name of the node, or none."""
    return names.tag(AGENT + turn.agent) if turn.agent and turn.agent != turn.node else 0


@cfunc
def _topic_on_board(run: RunState, turn: Turn, rules: Rules, names: Names) -> u32:
    """Return a tag of the one task that the agent of a turn has in progress; 0 if it has none, or several."""
    task = run.board.tasks.get(task_in_progress(run.board, rules.board, turn.agent or turn.node))
    return 0 if task is None else names.tag(TASK + task.id)


@cfunc
def _settle_pending_text(view: View) -> None:
    """Decide whether the text of the turn before was a message or narration, now that the next node is known."""
    run: RunState = view.run
    author: u32 = run.pending.node
    since: i32 = run.pending.turn
    no_work: bool = run.pending.value >= NO_WORK
    judged: bool
    run.cycle_memories.enter(run.cycles.of_node(author), view.index)
    run.pending.settle(view)
    judged = view.switches.edges_apart and (no_work or shows_results(run.nodes.find(author)))
    if run.novelty.last_discovery == since and not judged:
        run.handovers.note_finder(author, since)
        if view.switches.edges_apart:
            run.handovers.find_for(author, since)
    run.cycle_memories.enter(None, view.index)


@cfunc
def _has_unreported_answers(turn: Turn) -> bool:
    """Whether a turn made calls whose answers were not reported: the turn may have found something."""
    call: Call
    if turn.output is not None or not turn.calls:
        return False
    call = turn.calls[0]
    return hash64(call.outcome) == NO_ANSWER
