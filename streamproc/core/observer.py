"""What a turn brings, taken into the run's memory: the first half of `step`, before any detector is asked."""

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
from streamproc.core.signals.cycles import cycle_of, hand_over
from streamproc.core.signals.errors import observe_errors
from streamproc.core.signals.handovers import count_hop, note_finder
from streamproc.core.signals.metrics import observe_metrics
from streamproc.core.signals.monologues import observe_monologue
from streamproc.core.signals.open_turns import end_turn
from streamproc.core.signals.pace import observe_pace
from streamproc.core.signals.periods import TALK, push
from streamproc.core.signals.queries import observe_query
from streamproc.core.signals.similarity import observe_near, says_alike
from streamproc.core.signals.spend import new_counts, spend
from streamproc.core.signals.statements import observe_said, settle_pending
from streamproc.core.signals.streaks import remember, said_again
from streamproc.core.signals.tests import observe_tests
from streamproc.core.signals.tools import observe_tools
from streamproc.core.size_budget import EACH_CALL, OTHER_EVENT, RESULTS, SAID
from streamproc.core.view import GAP_MS, Hop, View
from streamproc.model.wire import NO_ANSWER, Content, Turn, Usage

# A person who says "go on" is no fruitless hand-over: whoever publishes people's words as turns names them like this.
PEOPLE: Final = frozenset({"user", "User", "human", "Human", "customer", "Customer"})
SPENDING: Final = kind.USAGE | kind.SPENDING
TASK: Final = "task\0"  # a worker is often named for its task: the two must not cancel each other out


class Observer:
    """Takes turns in. It owns nothing but the tags of names, which can be computed again."""

    __slots__ = ("_names", "_tag")

    def __init__(self, names: Names) -> None:
        self._names = names
        self._tag = names.__getitem__

    def turn(self, view: View, rules: Rules) -> None:
        """Take the turn into the run's memory, and note which kinds of evidence it brought."""
        run, turn, names = view.run, view.turn, self._names
        tag = view.node_tag = names[turn.node]
        node = view.node = run.nodes.get(tag) or _new_node(run, tag)
        node.last = view.index
        counts = view.counts = run.counts.get(tag) or new_counts(run, tag)
        counts[0] += 1
        usage = turn.usage
        if usage is not None or run.begun:
            usage = self._observe_measures(view, rules, turn, tag)
        if turn.round is not None or turn.convergence is not None or turn.consensus is not None:
            self._observe_round(view, turn)
        if run.pending:
            _settle(view, tag)
        if turn.from_:
            self._hand_over(view, names[turn.from_])
        elif run.previous != tag and run.previous:
            self._hand_over(view, run.previous)
        if turn.next or run.chosen:
            self._choose(view)
        if run.cycles:
            cycle = view.cycle = cycle_of(run, tag, usage)
            if cycle is not None and cycle.iterations and view.budgets:
                view.kinds |= kind.CYCLE
        if turn.calls:
            self._observe_calls(view, rules)
        self._observe_rest(view, rules, turn, tag, node)
        if view.budgets:
            view.kinds |= kind.BUDGET
        if view.took_ms or run.begun or run.at_ms - view.heard_ms >= GAP_MS:
            view.kinds |= kind.CLOCK

    def _observe_rest(self, view: View, rules: Rules, turn: Turn, tag: int, node: NodeState) -> None:
        """Results, words and habits, in this order: what is new must be known before streaks are counted."""
        run, index, output = view.run, view.index, turn.output
        left, errors, made = turn.artifact or turn.docs, turn.errors, False
        if left is not None or turn.tests is not None or errors is not None or turn.progress:
            self._observe_results(view, rules, turn, tag, node)
            made = _changed(turn, node)
        made = made or run.found == index
        said = output if not turn.calls else None  # a text beside calls is narration
        if said is not None or left is not None or turn.structured is not None:
            self._observe_content(view, turn, said, tag, node)
        if said is not None or run.monologue is not None:
            self._observe_monologue(view, turn, said, tag)
        if turn.query is not None:
            view.query = observe_query(node, turn.query, index)
            if view.query is not None:
                view.kinds |= kind.QUERY
        if output is not None or turn.structured is not None:
            node.answered = True
        found = run.found == index
        if found:
            view.near = observe_near(run, turn, index)
            if view.near >= 0:
                view.kinds |= kind.NEAR
        alike = output is not None and says_alike(node, output)
        if made or (found and not alike) or _untold(turn):
            note_finder(run, 0 if made else tag, index)
        if run.news == index:
            view.forget_loops()

    def _hand_over(self, view: View, source: int) -> None:
        """Work was handed over from `source`, unless that was counted when it was decided."""
        run, turn, tag = view.run, view.turn, view.node_tag
        view.iterated = hand_over(run, source, tag)
        if run.chosen != (source << 32 | tag) and turn.node not in PEOPLE and _told(turn):
            hops = count_hop(run, source, tag, view.index)
            view.hands_over(Hop(turn.from_ or run.previous_name, turn.node, *hops))

    def _choose(self, view: View) -> None:
        """A routing node has chosen where to go next."""
        run, turn, tag = view.run, view.turn, view.node_tag
        run.chosen = 0
        if turn.next:
            chosen = self._tag(turn.next)
            run.chosen = tag << 32 | chosen
            view.hands_over(Hop(turn.node, turn.next, *count_hop(run, tag, chosen, view.index, chosen=True)))

    def _observe_calls(self, view: View, rules: Rules) -> None:
        run, turn, tag = view.run, view.turn, view.node_tag
        run.room -= EACH_CALL * len(turn.calls)
        actor = tag ^ self._names[TASK + turn.task_id] if turn.task_id else tag  # who calls, and for what
        observe_calls(view, actor, rules.still_poll)
        view.tools = tools = observe_tools(run, turn, view.index, self._names)
        for tool in tools:
            if tool.same > 2 or (tool.failures and tool.failures[-1]):
                view.kinds |= kind.TOOL
        if run.failures > 1 or run.retries > 1:
            view.kinds |= kind.FAILING

    def _observe_measures(self, view: View, rules: Rules, turn: Turn, tag: int) -> Usage | None:
        run, usage = view.run, turn.usage
        if usage is not None:
            if rules.prices:
                usage = priced(usage, turn.model, rules.prices)
            spend(run, usage, view.counts)
            observe_pace(run, usage)
            view.kinds |= SPENDING if view.budgets else kind.USAGE
        if run.begun:
            view.took_ms = end_turn(run, turn, tag, self._tag)
        return usage

    def _observe_round(self, view: View, turn: Turn) -> None:
        run = view.run
        view.kinds |= kind.ROUND
        if turn.round is not None:
            view.round_before, run.round = run.round, max(run.round, min(turn.round, HASH))

    def _observe_monologue(self, view: View, turn: Turn, said: Content | None, tag: int) -> None:
        """Whether a node talks to itself; anything but words, and words beside it, put an end to that."""
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
        run.room -= RESULTS
        # Stamps of turns outside cycles are negative, so that none equals an iteration of a cycle found later.
        stamp = cycle.iterations if cycle is not None else -2 - index
        # In a cycle the others work, too; but what is told beside new work of its own may be a harness that tells it
        # with every turn, as it is.
        worked = -1 if cycle is not None and node.call_news != index else node.call_news
        if turn.progress:
            view.flat = observe_metrics(
                run, tag, turn.progress, index, self._tag, rules.lower_is_better, stamp, max(run.progress, worked)
            )
            if view.flat is not None:
                view.kinds |= kind.METRIC
        if turn.tests is not None:
            view.kinds |= kind.TESTS
            anew = _fails_anew(turn, node)
            observe_tests(run, node, tag, turn.tests, index, stamp, max(run.progress, worked), anew=anew)
        if turn.artifact is not None or turn.docs is not None:
            view.kinds |= kind.ARTIFACT
            period = observe_artifact(run, node, tag, turn, index, stamp, max(run.progress, worked))
            if period is not None:
                view.repeats(period)
        if turn.errors is not None:
            if observe_errors(node, turn.errors, index, max(run.progress, node.call_news)):
                view.kinds |= kind.ERRORS
            if turn.task_id and turn.errors.error_class and not turn.errors.retryable:
                run.room -= OTHER_EVENT
                view.step = apply_failure(run, turn, rules.board, self._tag)
                view.kinds |= kind.BOARD

    def _observe_content(self, view: View, turn: Turn, output: Content | None, tag: int, node: NodeState) -> None:
        """Take in what was said. Streaks come last: what is new in this turn has been noted by then."""
        run, index = view.run, view.index
        run.room -= SAID
        left = turn.structured or turn.artifact or turn.docs
        topic = self._topic(turn)
        if output is not None and node.called >= 0 and left is None and turn.tests is None:
            said = (tag ^ output.norm ^ topic) & HASH
            if period := push(run, TALK, said & TAG & ~1, index):
                view.repeats(period)
            run.pending = [tag, said, index]
        elif output is not None or left is not None:
            for period in observe_said(run, tag, turn, topic, index):
                view.repeats(period)
        if output is not None:
            remember(run.outputs, output.norm)
            streak = node.output = said_again(node.output, output.norm ^ topic, index, max(run.news, node.called))
            if streak.count > 1:
                view.says_again(streak)
        if turn.structured is not None:
            if output is None:
                remember(run.outputs, turn.structured.norm)
            streak = node.structured = said_again(node.structured, turn.structured.norm ^ topic, index, run.news)
            if streak.count > 1:
                view.says_again(streak)

    def _topic(self, turn: Turn) -> int:
        """What the words of a turn are about, where it says so: the same words about another thing are not the same."""
        topic = self._names[TASK + turn.task_id] if turn.task_id else 0
        if turn.query is not None:
            topic ^= turn.query.norm >> 4
        if turn.errors is not None and turn.errors.count:
            topic ^= turn.errors.norm >> 5
        return topic


def _new_node(run: RunState, tag: int) -> NodeState:
    if len(run.nodes) >= NODES_MAX:
        del run.nodes[min(run.nodes, key=lambda known: run.nodes[known].last)]
        run.evicted += 1
    node = run.nodes[tag] = NodeState()
    run.room = 0  # it will remember what it says, leaves, tests
    return node


def _settle(view: View, tag: int) -> None:
    """Somebody has taken the turn after a text: now it is known whether that was a message or narration."""
    run = view.run
    waiting, _, since = run.pending
    for period in settle_pending(run, tag):
        view.repeats(period)
    if run.found == since:
        note_finder(run, waiting, since)


def _told(turn: Turn) -> bool:
    """Whether anything is known of what a turn did: without that, nobody can say that a hand-over was fruitless."""
    return bool(
        turn.calls or turn.output or turn.structured or turn.artifact or turn.docs or turn.tests or turn.errors
        or turn.progress or turn.query
    )  # fmt: skip


def _changed(turn: Turn, node: NodeState) -> bool:
    """Whether a turn left something else behind than its node did before, or failed in another way."""
    if turn.artifact is not None and node.artifact is not None and node.artifact.count == 1:
        return True
    return bool(turn.errors is not None and turn.errors.count and node.errors is not None and node.errors.count == 1)


def _fails_anew(turn: Turn, node: NodeState) -> bool:
    """Whether a turn reports another error than its node did before."""
    errors, before = turn.errors, node.errors
    return errors is not None and errors.count > 0 and before is not None and before.value != errors.norm & TAG


def _untold(turn: Turn) -> bool:
    """Whether calls were made and nothing is known of their answers: that is no sign of a fruitless turn."""
    return bool(turn.calls) and turn.calls[0].outcome == NO_ANSWER and turn.output is None
