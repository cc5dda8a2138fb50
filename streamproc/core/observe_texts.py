"""Applies the texts of a turn: statements and their repeats, monologues, text-only streaks and replies."""

from __future__ import annotations

from streamproc.core import kind
from streamproc.core.records import cfunc, hash64, i32, tag32, u64
from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.core.signals.handovers import says_only
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.own_turns import OWN_TIMES, PHRASE_CHARS, beside_of, count_own, observe_own_period
from streamproc.core.signals.periods import NARRATION
from streamproc.core.signals.statements import NO_WORK, USER_NODES, observe_statement
from streamproc.core.signals.streaks import Said
from streamproc.core.signals.text_streaks import is_text_only
from streamproc.core.view import View
from streamproc.model.wire import HAND_OVER_MAX, Content, Turn


@cfunc
def observe_content(view: View, output: Content | None) -> None:
    """Apply texts and structured outputs. Repeats come last: they need to know what is new in this turn."""
    run: RunState = view.run
    turn: Turn = view.turn
    topic: u64 = _subject(view)
    value: u64
    left: Content | None = turn.structured or turn.artifact or turn.docs
    if output is not None and view.node.last_call >= 0 and left is None and turn.tests is None:
        value = (view.node_tag ^ hash64(output.norm) ^ topic) & ~NO_WORK
        if view.switches.edges_apart and says_only(turn.node, turn):
            value |= NO_WORK
        if turn.query is not None and not run.novelty.seen.has(tag32(value)):
            run.novelty.last_result = view.index  # the answer to a query, whether or not it turns out to be narration
        run.streams.observe(NARRATION, tag32(value) & ~1, view.index)
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
    repeated: tuple[Said, ...] = ()
    value: u64
    if output is not None:
        run.evidence.outputs.push(hash64(output.norm))
        if not turn.next or output.size > HAND_OVER_MAX:  # repeated hand-overs are LOOP005's
            value = hash64(output.norm) ^ topic ^ beside_of(turn.structured)
            node.output.extend(value, view.index, news, result, _last_call(view, output))
            if node.output.count > 1 or node.output.own >= OWN_TIMES:
                repeated = (node.output,)
    if turn.structured is not None:
        if output is None:
            run.evidence.outputs.push(hash64(turn.structured.norm))
        node.structured.extend(hash64(turn.structured.norm) ^ topic, view.index, news, result, -1)
        if node.structured.count > 1 or node.structured.own >= OWN_TIMES:
            repeated = (*repeated, node.structured)
    if repeated:
        view.said = repeated
        view.kinds |= kind.SAID


@cfunc
def _last_call(view: View, output: Content) -> i32:
    """Return the last turn with calls that restarts the count of a text: of the node itself, or, of a node that calls
    nothing and says a phrase ("Continue."), of any of its cycle: the calls in between are judged by themselves."""
    last: i32 = view.node.last_call
    other: NodeState
    if last < 0 and output.size <= PHRASE_CHARS:
        for other in view.run.nodes.rows:
            if view.cycle is None or view.cycle.inside(other.key):
                last = max(last, other.last_call)
    return last


@cfunc
def observe_own_turns(view: View, rules: Rules) -> None:
    """Count repeats in the node's own turns: the policy has a gate of its own for outputs or their sequences."""
    content: Content | None = view.turn.output or view.turn.structured
    if view.switches.outputs_gated:
        if content is not None:
            view.run.evidence.outputs.push(hash64(content.norm))
        view.said = count_own(
            view, _subject(view) ^ _reported(view.turn), rules.gates.outputs, view.run.nodes, view.cycle
        )
        if view.said:
            view.kinds |= kind.SAID
    if view.switches.sequences_gated:
        observe_own_period(view, _subject(view), rules.gates.sequences)


@cfunc
def observe_talk(view: View, said: Content | None) -> None:
    """Apply a text to the monologue and the text-only streak in progress; a turn with anything else ends them."""
    run: RunState = view.run
    turn: Turn = view.turn
    if said is None or turn.tests or turn.artifact or turn.structured or turn.docs or turn.next:
        run.monologue.clear()
        if run.text_streak.count and (turn.calls or turn.next or has_evidence(turn)):
            run.text_streak.end()
        return
    if run.monologue.observe(view, said):
        view.kinds |= kind.MONOLOGUE
    if turn.node in USER_NODES:
        run.text_streak.end()
        run.messages.note(hash64(said.norm))
    elif not is_text_only(turn):
        run.text_streak.end()
    else:
        if turn.from_ and view.names.tag(turn.from_) != view.node_tag:
            run.text_streak.end()  # handed over: another node has decided in between
        run.text_streak.observe(view, said)
        if run.text_streak.count > 1 and view.node.last_call >= 0:
            view.kinds |= kind.TEXT_STREAK
        if run.messages.count and run.messages.observe(view, said, run.nodes):
            view.kinds |= kind.REPLY


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
def _reported(turn: Turn) -> u64:
    """Return a hash of the failing tests and findings of a turn: the same words about others are another output."""
    reported: u64 = 0
    if turn.tests is not None and turn.tests.failing:
        reported ^= hash64(turn.tests.failing_set) >> 6
    if turn.findings:
        for issue in turn.findings:
            reported ^= hash64(issue.key) >> 7
    return reported


@cfunc
def has_evidence(turn: Turn) -> bool:
    """Whether a turn reports any work. Without that, a handover cannot be called fruitless."""
    return bool(
        turn.calls or turn.output or turn.structured or turn.artifact or turn.docs or turn.tests or turn.errors
        or turn.progress or turn.query
    )  # fmt: skip
