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
from streamproc.core.signals.open_turns import end_turn
from streamproc.core.signals.pace import observe_pace
from streamproc.core.signals.periods import NARRATION, push
from streamproc.core.signals.queries import has_answer, observe_query
from streamproc.core.signals.similarity import observe_near, says_alike
from streamproc.core.signals.spend import new_counts, spend
from streamproc.core.signals.statements import observe_statement, settle_pending
from streamproc.core.signals.streaks import remember, said_again
from streamproc.core.signals.tools import observe_tools
from streamproc.core.size_budget import CALL_HASH_BYTES, OTHER_EVENT_BYTES, RESULT_BYTES, TEXT_BYTES
from streamproc.core.view import GAP_MS, Handover, View
from streamproc.model.wire import NO_ANSWER, Content, Turn, Usage

# Nodes for which users' messages are published as turns. A user who says "continue" is not a fruitless handover.
USER_NODES: Final = frozenset({"user", "User", "human", "Human", "customer", "Customer"})
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
            cycle = view.cycle = cycle_of(run, tag, usage)
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
            self._observe_content(view, turn, said, tag, node)
        if said is not None or run.monologue is not None:
            self._observe_monologue(view, turn, said, tag)
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
            counted = count_handover(run, source, tag, view.index, apart=apart)
            name = turn.from_ or run.previous_node_name
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
        observe_calls(view, actor, rules.still_poll)
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
        return usage

    def _observe_round(self, view: View, turn: Turn) -> None:
        run = view.run
        view.kinds |= kind.ROUND
        if turn.round is not None:
            view.round_before, run.round = run.round, max(run.round, min(turn.round, HASH))
        if turn.convergence is not None or turn.consensus is not None:
            run.checks_rounds = True

    def _observe_monologue(self, view: View, turn: Turn, said: Content | None, tag: int) -> None:
        """Apply a text to the monologue in progress; a turn with anything but text ends it."""
        if turn.tests or turn.artifact or turn.structured or turn.docs:
            said = None
        if said is None:
            view.run.monologue = None
            return
        topic = self._names[TASK + turn.task_id] if turn.task_id else 0
        view.monologue = observe_monologue(view.run, tag, said, topic, view.index)
        if view.monologue is not None:
            view.kinds |= kind.MONOLOGUE

    def _observe_results(self, view: View, rules: Rules, turn: Turn, tag: int, node: NodeState) -> None:
        run, index, cycle = view.run, view.index, view.cycle
        run.size_left -= RESULT_BYTES
        # Stamps of turns outside cycles are negative: none equals an iteration of a cycle that is found later.
        stamp = cycle.iterations if cycle is not None else -2 - index
        # In a cycle other nodes do the work, so a node's own calls do not restart its streaks, unless they brought news
        # in this very turn: a harness may attach unchanged results to every turn.
        worked = -1 if cycle is not None and node.last_call_news != index else node.last_call_news
        if turn.progress:
            view.flat = observe_metrics(
                run, tag, turn.progress, index, self._tag, rules.lower_is_better, stamp, max(run.last_progress, worked)
            )
            if view.flat is not None:
                view.kinds |= kind.METRIC
        if turn.tests is not None:
            view.kinds |= kind.TESTS
            new_error = _has_new_error(turn, node)
            since = max(run.last_progress, worked)
            apart = rules.edges_apart
            observe_tests(run, node, tag, turn.tests, index, stamp, since, new_error=new_error, new_set_counts=apart)
        if turn.artifact is not None or turn.docs is not None:
            view.kinds |= kind.ARTIFACT
            period = observe_artifact(run, node, tag, turn, index, stamp, max(run.last_progress, worked))
            if period is not None:
                view.add_period(period)
        if turn.errors is not None:
            if observe_errors(node, turn.errors, index, max(run.last_progress, node.last_call_news)):
                view.kinds |= kind.ERRORS
            if turn.task_id and turn.errors.error_class and not turn.errors.retryable:
                run.size_left -= OTHER_EVENT_BYTES
                view.board_change = apply_failure(run, turn, rules.board, self._tag)
                view.kinds |= kind.BOARD

    def _observe_content(self, view: View, turn: Turn, output: Content | None, tag: int, node: NodeState) -> None:
        """Apply texts and structured outputs. Streaks come last: they need to know what is new in this turn."""
        run, index = view.run, view.index
        run.size_left -= TEXT_BYTES
        left = turn.structured or turn.artifact or turn.docs
        topic = self._topic(turn)
        if output is not None and node.last_call >= 0 and left is None and turn.tests is None:
            said = (tag ^ output.norm ^ topic) & HASH
            if period := push(run, NARRATION, said & TAG & ~1, index):
                view.add_period(period)
            run.pending_text = [tag, said, index]
        elif output is not None or left is not None:
            for period in observe_statement(run, tag, turn, topic, index):
                view.add_period(period)
        if output is not None:
            remember(run.recent_outputs, output.norm)
            since = max(run.last_news, node.last_call)
            streak = node.output = said_again(node.output, output.norm ^ topic, index, since)
            if streak.count > 1:
                view.add_repeated_text(streak)
        if turn.structured is not None:
            if output is None:
                remember(run.recent_outputs, turn.structured.norm)
            streak = node.structured = said_again(node.structured, turn.structured.norm ^ topic, index, run.last_news)
            if streak.count > 1:
                view.add_repeated_text(streak)

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
        del run.nodes[min(run.nodes, key=lambda known: run.nodes[known].last_turn)]
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
