"""Applies a turn to the state of its run: the first half of `step`, before detectors are asked."""

from __future__ import annotations

from typing import Final

from streamproc.core import kind
from streamproc.core.board.transitions import apply_failure
from streamproc.core.names import Names
from streamproc.core.prices import priced
from streamproc.core.rules import Rules
from streamproc.core.run_state import HASH, NODES_MAX, TAG, NodeState, RunState
from streamproc.core.signals.artifacts import observe_artifact
from streamproc.core.signals.calls import observe_calls
from streamproc.core.signals.cycles import cycle_of, observe_handover
from streamproc.core.signals.failing_tests import observe_tests
from streamproc.core.signals.handovers import (
    brought_results,
    count_handover,
    end_handovers,
    failing_set_of,
    name_nodes,
    note_finder,
    shows_results,
)
from streamproc.core.signals.metrics import observe_metrics
from streamproc.core.signals.monologues import observe_monologue
from streamproc.core.signals.node_errors import observe_attempt, observe_errors
from streamproc.core.signals.novelty import Gate, note_result, restart_of
from streamproc.core.signals.open_turns import end_turn
from streamproc.core.signals.own_turns import OWN_TIMES, count_own, own_period
from streamproc.core.signals.pace import observe_pace
from streamproc.core.signals.periods import NARRATION, own_stream, push
from streamproc.core.signals.queries import has_answer, observe_query
from streamproc.core.signals.recent_calls import recent_repeats
from streamproc.core.signals.replies import note_message, observe_reply
from streamproc.core.signals.similarity import observe_near, says_alike
from streamproc.core.signals.spend import add_runtime, new_counts, spend
from streamproc.core.signals.statements import USER_NODES, observe_statement, settle_pending
from streamproc.core.signals.streaks import remember, said_again
from streamproc.core.signals.text_streaks import is_text_only, observe_text_streak
from streamproc.core.signals.tools import observe_tools
from streamproc.core.size_budget import CALL_HASH_BYTES, OTHER_EVENT_BYTES, RESULT_BYTES, TEXT_BYTES
from streamproc.core.view import GAP_MS, Handover, View
from streamproc.model.wire import HAND_OVER_MAX, NO_ANSWER, Content, Turn, Usage

SPENDING: Final = kind.USAGE | kind.SPENDING
TASK: Final = "task\0"  # prefix of task ids: a node is often named for its task, and equal tags would cancel out


class Observer:
    """Applies turns to states. It owns only a cache of name tags, which can be computed again."""

    __slots__ = ("_names", "_tag")

    def __init__(self, names: Names) -> None:
        self._names = names
        self._tag = names.__getitem__

    def observe_turn(self, view: View, rules: Rules) -> None:
        """Apply a turn to the state of its run, and set the kinds of evidence that it brings."""
        run, turn, names = view.run, view.turn, self._names
        tag = view.node_tag = names[turn.node]
        node = view.node = run.nodes.get(tag) or _new_node(run, tag)
        node.last_turn = view.index
        counts = view.counts = run.node_counts.get(tag) or new_counts(run, tag)
        counts[0] += 1
        usage = turn.usage
        if usage is not None or run.open_turns:
            usage = self._observe_measures(view, rules, turn, tag)
        if turn.round is not None or turn.convergence is not None or turn.consensus is not None:
            self._observe_round(view, turn)
        if run.pending_text:
            _settle_pending_text(view, rules, tag)
        if turn.from_:
            self._observe_handover(view, rules, names[turn.from_])
        elif run.previous_node != tag and run.previous_node:
            self._observe_handover(view, rules, run.previous_node)
        if turn.next or run.chosen_edge:
            self._observe_choice(view, rules)
        if run.cycles:
            cycle = view.cycle = cycle_of(view, tag, usage)
            if cycle is not None and cycle.iterations and view.budgets:
                view.kinds |= kind.CYCLE
        if turn.calls:
            self._observe_calls(view, rules)
        self._observe_results_and_texts(view, rules, turn, tag, node)
        if view.budgets:
            view.kinds |= kind.BUDGET
        if view.took_ms or run.open_turns or run.at_ms - view.last_event_ms >= GAP_MS:
            view.kinds |= kind.CLOCK

    def _observe_results_and_texts(self, view: View, rules: Rules, turn: Turn, tag: int, node: NodeState) -> None:
        """Apply results and texts, and then streaks: counting them needs to know what is new."""
        run, index, output = view.run, view.index, turn.output
        left, errors, changed = turn.artifact or turn.docs, turn.errors, False
        failing_set = failing_set_of(node) if rules.edges_apart else -1
        if left is not None or turn.tests is not None or errors is not None or turn.progress:
            self._observe_results(view, rules, turn, tag, node)
            changed = _has_changed_result(turn, node)
        changed = changed or run.last_discovery == index
        if rules.every_error and observe_attempt(run, node, turn, index, self._names):
            view.kinds |= kind.ERRORS
        said = output if not turn.calls else None  # a text beside calls is narration
        if said is not None or left is not None or turn.structured is not None:
            self._observe_content(view, rules, turn, said, tag, node)
        if rules.own_turns:
            self._observe_own_turns(view, rules, turn, tag, node)
        if said is not None or run.monologue is not None or run.text_streak is not None:
            self._observe_talk(view, turn, said, tag)
        if turn.query is not None or node.query is not None:
            self._observe_query(view, turn, node)
        found = run.last_discovery == index
        if found:
            view.near = observe_near(run, turn, index)
            if view.near >= 0:
                view.kinds |= kind.NEAR
        alike = output is not None and says_alike(node, output)
        told = changed or (found and not alike) or _has_unreported_answers(turn)
        if rules.edges_apart:
            told = brought_results(run, turn, node, tag, index, failing_set) or (told and not shows_results(node))
        if told:
            note_finder(run, 0 if changed else tag, index)
        if run.last_news == index:
            view.clear_loops()

    def _observe_query(self, view: View, turn: Turn, node: NodeState) -> None:
        if turn.query is not None:
            view.query = observe_query(node, turn.query, view.index)
            if view.query is not None:
                view.kinds |= kind.QUERY
        if not node.has_answered:
            node.has_answered = has_answer(turn)

    def _observe_handover(self, view: View, rules: Rules, source: int) -> None:
        """Apply a handover from `source`, unless it was counted when a routing node chose it."""
        run, turn, tag, apart = view.run, view.turn, view.node_tag, rules.edges_apart
        view.iterated = observe_handover(run, source, tag)
        if apart:
            end_handovers(run, tag)
        if run.chosen_edge != (source << 32 | tag) and turn.node not in USER_NODES and _has_evidence(turn):
            name = turn.from_ or run.previous_node_name
            if name not in USER_NODES:
                counted = count_handover(run, source, tag, view.index, apart=apart)
                view.set_handover(Handover(name, turn.node, *counted))
                if apart:
                    name_nodes(run, source, name, tag, turn.node)

    def _observe_choice(self, view: View, rules: Rules) -> None:
        """Apply the choice of a routing node: where to go next."""
        run, turn, tag, apart = view.run, view.turn, view.node_tag, rules.edges_apart
        run.chosen_edge = 0
        if apart:
            end_handovers(run, tag)
        if turn.next:
            chosen = self._tag(turn.next)
            run.chosen_edge = tag << 32 | chosen
            counted = count_handover(run, tag, chosen, view.index, chosen=True, apart=apart)
            if apart:
                name_nodes(run, tag, turn.node, chosen, turn.next)
            view.set_handover(Handover(turn.node, turn.next, *counted))

    def _observe_calls(self, view: View, rules: Rules) -> None:
        run, turn, tag = view.run, view.turn, view.node_tag
        run.size_left -= CALL_HASH_BYTES * len(turn.calls)
        actor = tag ^ self._names[TASK + turn.task_id] if turn.task_id else tag  # who calls, and for which task
        observe_calls(view, actor, rules.judge_poll)
        if rules.calls_gated:
            view.recent = recent_repeats(run, turn.calls, actor, view.index, rules.gates.calls)
            if view.recent and not view.kinds & kind.REPEATED_CALL:
                view.repeated = ()
                view.kinds |= kind.REPEATED_CALL
        view.tools = tools = observe_tools(run, turn, view.index, self._names)
        for tool in tools:
            if tool.same > 2 or (tool.failures and tool.failures[-1]):
                view.kinds |= kind.TOOL
        if run.failed_turns > 1 or run.retries > 1:
            view.kinds |= kind.FAILING

    def _observe_measures(self, view: View, rules: Rules, turn: Turn, tag: int) -> Usage | None:
        run, usage = view.run, turn.usage
        if usage is not None:
            if rules.prices:
                usage = priced(usage, turn.model, rules.prices)
            spend(run, usage, view.counts)
            observe_pace(run, usage)
            view.kinds |= SPENDING if view.budgets else kind.USAGE
        if run.open_turns:
            view.took_ms = end_turn(run, turn, tag, self._tag)
            reported_ms = usage.duration_ms if usage is not None else 0
            if view.took_ms > reported_ms:  # the time since `turn.started` contains what the turn reports itself
                add_runtime(view.counts, view.took_ms - reported_ms)
        return usage

    def _observe_round(self, view: View, turn: Turn) -> None:
        run = view.run
        view.kinds |= kind.ROUND
        if turn.round is not None:
            view.round_before, run.round = run.round, max(run.round, min(turn.round, HASH))
        if turn.convergence is not None or turn.consensus is not None:
            run.checks_rounds = True

    def _observe_talk(self, view: View, turn: Turn, said: Content | None, tag: int) -> None:
        """Apply a text to the monologue and the text-only streak in progress; a turn with anything else ends them."""
        run = view.run
        if said is None or turn.tests or turn.artifact or turn.structured or turn.docs or turn.next:
            run.monologue = None
            if run.text_streak is not None and (turn.calls or turn.next or _has_evidence(turn)):
                run.text_streak = None
            return
        topic = self._names[TASK + turn.task_id] if turn.task_id else 0
        view.monologue = observe_monologue(run, tag, said, topic, view.index)
        if view.monologue is not None:
            view.kinds |= kind.MONOLOGUE
        if turn.node in USER_NODES:
            run.text_streak = None
            note_message(run, said.norm)
        elif not is_text_only(turn):
            run.text_streak = None
        else:
            if turn.from_ and self._names[turn.from_] != tag:
                run.text_streak = None  # handed over: another node has decided in between
            streak = observe_text_streak(run, tag, topic, said, view.index)
            if streak.count > 1 and view.node.last_call >= 0:
                view.kinds |= kind.TEXT_STREAK
            messages = run.messages
            if messages is not None and observe_reply(run, messages, tag, view.node, said, view.index) is not None:
                view.kinds |= kind.REPLY

    def _observe_results(self, view: View, rules: Rules, turn: Turn, tag: int, node: NodeState) -> None:
        run, index, cycle = view.run, view.index, view.cycle
        run.size_left -= RESULT_BYTES
        if run.messages is not None:
            run.messages.worked = index
        # Stamps of turns outside cycles are negative: none equals an iteration of a cycle that is found later.
        stamp = cycle.iterations if cycle is not None else -2 - index
        # In a cycle other nodes do the work, so a node's own calls do not restart its streaks, unless they brought news
        # in this very turn: a harness may attach unchanged results to every turn.
        worked = -1 if cycle is not None and node.last_call_news != index else node.last_call_news
        if turn.progress:
            since = restart_of(run, rules.gates.metrics, worked)
            view.flat = observe_metrics(run, tag, turn.progress, index, self._tag, rules.lower_is_better, stamp, since)
            if view.flat is not None:
                view.kinds |= kind.METRIC
        if turn.tests is not None:
            view.kinds |= kind.TESTS
            gates = rules.gates
            restarts = restart_of(run, gates.failing_sets, worked), restart_of(run, gates.failing_counts, worked)
            new_error = gates.failing_sets is not Gate.NONE and _has_new_error(turn, node)
            apart = rules.edges_apart
            observe_tests(run, node, tag, turn.tests, index, stamp, restarts, new_error=new_error, new_set_counts=apart)
        if turn.artifact is not None or turn.docs is not None:
            view.kinds |= kind.ARTIFACT
            since = restart_of(run, rules.gates.artifacts, worked)
            period = observe_artifact(run, node, tag, turn, index, stamp, since)
            if node.artifact is not None and node.artifact.first == index:
                note_result(run, index)
            if period is not None:
                view.add_period(period)
        if turn.errors is not None:
            if observe_errors(node, turn.errors, index, max(run.last_progress, node.last_call_news)):
                view.kinds |= kind.ERRORS
                if node.errors is not None and node.errors.first == index:
                    note_result(run, index)
            if turn.task_id and turn.errors.error_class and not turn.errors.retryable:
                run.size_left -= OTHER_EVENT_BYTES
                view.board_change = apply_failure(run, turn, rules.board, self._tag)
                view.kinds |= kind.BOARD

    def _observe_content(
        self, view: View, rules: Rules, turn: Turn, output: Content | None, tag: int, node: NodeState
    ) -> None:
        """Apply texts and structured outputs. Repeats come last: they need to know what is new in this turn."""
        run, index = view.run, view.index
        run.size_left -= TEXT_BYTES
        left = turn.structured or turn.artifact or turn.docs
        topic = self._topic(turn)
        if output is not None and node.last_call >= 0 and left is None and turn.tests is None:
            said_tag = (tag ^ output.norm ^ topic) & HASH
            if turn.query is not None and said_tag & TAG not in run.seen:
                note_result(run, index)  # the answer to a query, whether or not it turns out to be narration
            if period := push(run, NARRATION, said_tag & TAG & ~1, index):
                view.add_period(period)
            run.pending_text = [tag, said_tag, index]
        elif output is not None or left is not None:
            for period in observe_statement(run, tag, turn, topic, index):
                view.add_period(period)
        if not rules.outputs_gated:  # else they are counted with the texts beside calls
            self._observe_repeats(view, turn, output, topic, node)

    def _observe_repeats(self, view: View, turn: Turn, output: Content | None, topic: int, node: NodeState) -> None:
        run, index = view.run, view.index
        if output is not None:
            remember(run.recent_outputs, output.norm)
            if not turn.next or output.size > HAND_OVER_MAX:  # repeated hand-overs are LOOP005's
                value, called = output.norm ^ topic, node.last_call
                said = node.output = said_again(node.output, value, index, run.last_news, run.last_result, called)
                if said.count > 1 or said.own >= OWN_TIMES:
                    view.add_repeated_text(said)
        if turn.structured is not None:
            if output is None:
                remember(run.recent_outputs, turn.structured.norm)
            value = turn.structured.norm ^ topic
            said = node.structured = said_again(node.structured, value, index, run.last_news, run.last_result)
            if said.count > 1 or said.own >= OWN_TIMES:
                view.add_repeated_text(said)

    def _observe_own_turns(self, view: View, rules: Rules, turn: Turn, tag: int, node: NodeState) -> None:
        """Count repeats in the node's own turns: the policy has a gate of its own for outputs or their sequences."""
        run, index, gates, topic = view.run, view.index, rules.gates, self._topic(turn)
        content = turn.output or turn.structured
        if content is not None and rules.outputs_gated:
            remember(run.recent_outputs, content.norm)
            for said in count_own(run, node, turn, topic, gates.outputs, index):
                view.add_repeated_text(said)
        if rules.sequences_gated:
            period = own_period(run, tag, turn, topic, gates.sequences, index)
            if period is not None:
                view.add_period(period)

    def _topic(self, turn: Turn) -> int:
        """Return a hash of what a turn is about (task, query, errors): equal texts on other topics are not repeats."""
        topic = self._names[TASK + turn.task_id] if turn.task_id else 0
        if turn.query is not None:
            topic ^= turn.query.norm >> 4
        if turn.errors is not None and turn.errors.count:
            topic ^= turn.errors.norm >> 5
        return topic


def _new_node(run: RunState, tag: int) -> NodeState:
    if len(run.nodes) >= NODES_MAX:
        oldest = min(run.nodes, key=lambda known: run.nodes[known].last_turn)
        del run.nodes[oldest]
        run.hash_windows.pop(own_stream(oldest), None)
        run.evicted += 1
    node = run.nodes[tag] = NodeState()
    run.size_left = 0  # its streaks and test results will need much more: measure
    return node


def _settle_pending_text(view: View, rules: Rules, tag: int) -> None:
    """Decide whether the text of the turn before was a message or narration, now that the next node is known."""
    run = view.run
    author, _, since = run.pending_text
    for period in settle_pending(run, tag):
        view.add_period(period)
    if run.last_discovery == since and not (rules.edges_apart and shows_results(run.nodes.get(author))):
        note_finder(run, author, since)


def _has_evidence(turn: Turn) -> bool:
    """Whether a turn reports any work. Without that, a handover cannot be called fruitless."""
    return bool(
        turn.calls or turn.output or turn.structured or turn.artifact or turn.docs or turn.tests or turn.errors
        or turn.progress or turn.query
    )  # fmt: skip


def _has_changed_result(turn: Turn, node: NodeState) -> bool:
    """Whether a turn left another artifact than its node did before, or failed with other errors."""
    if turn.artifact is not None and node.artifact is not None and node.artifact.count == 1:
        return True
    return bool(turn.errors is not None and turn.errors.count and node.errors is not None and node.errors.count == 1)


def _has_new_error(turn: Turn, node: NodeState) -> bool:
    """Whether a turn reports other errors than its node did before."""
    errors, before = turn.errors, node.errors
    return errors is not None and errors.count > 0 and before is not None and before.value != errors.norm & TAG


def _has_unreported_answers(turn: Turn) -> bool:
    """Whether a turn made calls whose answers were not reported: the turn may have found something."""
    return bool(turn.calls) and turn.calls[0].outcome == NO_ANSWER and turn.output is None
