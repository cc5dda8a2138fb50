"""What tools and nodes do over and over, beyond the single call: per tool, per edge, per node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from streamproc.core.run import HASH, OCCURRENCE_BYTES, TAG, Monologue, NodeState, RunState, Streak, Tool
from streamproc.core.window import MIX
from streamproc.wire import ANSWERED, FAILED, FAILED_RETRYABLE, FAILED_RUN, Call, Content, Turn

TOOLS_MAX: Final = 6  # tools remembered in a run
TOOL_CALLS: Final = 6  # of one tool, looked over by ERROR005
SIMS_MAX: Final = 6  # long texts that a new one is compared with
NEAR: Final = 3  # bits of 64 in which alike texts may differ
CLOSE: Final = 4  # turns from one answer of a tool to the next that is almost the same
# Of a node that talks to itself, in bits that may differ: other words in two places of one page or more, of a
# paragraph, of a sentence. Texts about other numbers or names are never alike.
NEAR_LONG: Final = 8
LONG: Final = 600  # characters
NEAR_PARAGRAPH: Final = 10
NEAR_SHORT: Final = 12  # other sentences differ in 16 and more
GROWTH: Final = 40  # characters more, of a text that says something in addition
SHORT: Final = 200  # characters
NEIGHBOURS: Final = 2  # call turns from one call of a tool to its next, for both to be in a row
TROUBLE: Final = {FAILED, FAILED_RETRYABLE, FAILED_RUN}
HOPS_MAX: Final = 8  # edges with fruitless hand-overs
TOOL_BYTES: Final = 40  # of an encoded state, as those of `run.py`
SIM_BYTES: Final = 15
MONOLOGUE_BYTES: Final = 45
HOP_BYTES: Final = 30
NAME_SHOWN: Final = 16  # characters of node names kept for messages


def observe_tools(run: RunState, turn: Turn, index: int, names: Mapping[str, int]) -> Sequence[Tool]:
    """Take in how tools answered: these tools. Siblings in one turn count once for a tool."""
    calls = turn.calls
    if len(calls) == 1 and calls[0].outcome <= ANSWERED:  # most turns
        run.failures = run.footing = run.retries = 0
        return (_observe_tool(run, names[calls[0].name], calls[0], index),)
    noticed: dict[int, Tool] = {}
    for call in calls:
        if call.outcome != FAILED_RETRYABLE and names[call.name] not in noticed:
            noticed[names[call.name]] = _observe_tool(run, names[call.name], call, index)
    _count_failures(run, {call.outcome for call in calls}, index)
    return tuple(noticed.values())


def _count_failures(run: RunState, outcomes: set[int], index: int) -> None:
    """Count turns in a row whose calls all failed, and those in which nothing but the infrastructure did."""
    answered = not outcomes <= TROUBLE
    if answered:
        run.failures = run.footing = 0
    elif FAILED in outcomes or FAILED_RUN in outcomes:
        run.failures += 1
        if FAILED_RUN in outcomes and run.found == index:
            run.footing = run.failures  # a command fails in another way than ever before: it is being worked on
        if run.failures == 1:
            run.failing_since = index
    run.retries = run.retries + 1 if FAILED_RETRYABLE in outcomes and not answered else 0


def _observe_tool(run: RunState, name: int, call: Call, index: int) -> Tool:
    tools, outcome, steps = run.tools, call.outcome, run.steps
    tool = tools.pop(name, None)
    if tool is None:
        tool = Tool()
        if len(tools) >= TOOLS_MAX:
            del tools[next(iter(tools))]
        else:
            run.room -= TOOL_BYTES
    tools[name] = tool
    key, answer = call.key & TAG, call.exact & TAG
    if outcome in (FAILED, FAILED_RUN):
        run.room -= OCCURRENCE_BYTES
        _note_failure(tool, call.norm & TAG or 1, index)
        tool.same, tool.first, tool.answer = 0, index, 0
    else:
        if tool.failures:
            run.room -= OCCURRENCE_BYTES
            _note_failure(tool, 0, index)
        if outcome != ANSWERED or answer != tool.answer or steps > tool.step + NEIGHBOURS:
            tool.same, tool.first = 1 if outcome == ANSWERED else 0, index
        elif key != tool.key:
            tool.same += 1
        tool.answer = answer
    tool.step, tool.key = steps, key
    return tool


def _note_failure(tool: Tool, error: int, index: int) -> None:
    """Remember how the last calls failed (0: this one did not), for as long as one of them did."""
    tool.failures.append(error)
    tool.turns.append(index)
    if len(tool.turns) > TOOL_CALLS:
        del tool.failures[0], tool.turns[0]
    if not any(tool.failures):
        tool.failures.clear()
        tool.turns.clear()


def observe_near(run: RunState, turn: Turn, index: int) -> int:
    """Whether a long new text is almost one of the last: the turn of that one, or -1.

    Of what calls answer, only those that follow each other closely: a second look at a changed file is honest, and so
    is the same call whose answer has moved on.
    """
    if turn.output is not None and turn.output.sim and turn.output.size >= SHORT:
        return _near_one(run, turn.output.sim, index, 0)
    if run.moved != index:
        for call in turn.calls:
            if call.sim and call.outcome == ANSWERED:
                return _near_one(run, call.sim, index, index - CLOSE)
    return -1


def _near_one(run: RunState, sim: int, index: int, since: int) -> int:
    found = -1
    for known, turn in run.sims:
        if (known ^ sim).bit_count() <= NEAR and turn >= since:
            found = turn
    run.sims.append([sim & HASH, index])
    if len(run.sims) > SIMS_MAX:
        del run.sims[0]
    else:
        run.room -= SIM_BYTES
    return found


def observe_query(node: NodeState, query: Content, index: int) -> Streak | None:
    """The same or almost the same query to a node that has answered before; None where there is nothing to look at."""
    value = query.norm & TAG
    streak, sim = node.query, node.query_sim
    asked = _sim(query)
    same = streak is not None and (streak.value == value or (sim and asked and (sim ^ asked).bit_count() <= NEAR))
    node.query_sim = asked
    if streak is None or not same:
        node.query = Streak(value, 1, index)
        return None
    streak.count += 1
    return streak if node.answered else None


def observe_monologue(run: RunState, node_tag: int, text: Content | None, topic: int, index: int) -> Monologue | None:
    """Count turns of one node that are nothing but (almost) the same text about a topic; any other turn (None) ends
    it."""
    before = run.monologue
    if text is None:
        run.monologue = None
        return None
    value, sim, near = (text.norm ^ topic) & TAG, _sim(text), _near(text)
    sim = (sim ^ topic * MIX) & HASH if sim else 0
    if before is not None and text.size > max(SHORT, before.size + GROWTH):
        near = -1  # a draft that grows
    alike = (
        before is not None
        and before.node == node_tag
        and (before.value == value or (before.sim and sim and (before.sim ^ sim).bit_count() <= near))
    )
    if before is None or not alike:
        run.monologue = Monologue(node_tag, value, sim, 1, index, text.size)
        run.room -= MONOLOGUE_BYTES if before is None else 0
        return None
    before.count += 1
    before.loose = before.loose or (before.value != value and text.size < SHORT)
    before.grown = before.grown + text.size - before.size if before.grown >= 0 and before.size <= text.size else -1
    before.value, before.sim, before.size = value, sim, text.size
    return before


def says_alike(node: NodeState, text: Content) -> bool:
    """Whether a node says almost what it said last, about the same: other words for it are no finding."""
    before, sim = node.said, _sim(text)
    node.said = sim
    return before != 0 != sim and (before ^ sim).bit_count() <= _near(text)


def _sim(text: Content) -> int:
    """A SimHash that is far from those of texts about something else, however few words differ."""
    return (text.sim ^ text.about * MIX) & HASH if text.sim else 0


def _near(text: Content) -> int:
    """In how many bits texts of this size may differ and still be alike."""
    return NEAR_SHORT if text.size < SHORT else NEAR_LONG if text.size >= LONG else NEAR_PARAGRAPH


def note_finder(run: RunState, node_tag: int, index: int) -> None:
    """Remember who found the last new thing (0: more than words, which counts whoever it was), and when anybody else
    last did."""
    finder, at, others_at = run.finder
    run.finder = [node_tag, index, others_at if finder == node_tag else at]


def speak_to(run: RunState, index: int) -> None:
    """A person spoke: habits that assume that nobody did start again."""
    run.stale = run.failures = run.footing = run.retries = 0
    run.monologue = None
    note_finder(run, 0, index)


def count_hop(run: RunState, source: int, target: int, index: int, *, chosen: bool = False) -> tuple[int, int]:
    """Count a hand-over on its edge: how many in a row, with nothing found in between by anybody but the sender, and
    since which turn.

    A hand-over back to who handed over first is an answer, and not counted, unless it was `chosen` by a decision: a
    moderator may say the same few words again and again between the new ones of others.
    """
    edge = source << 32 | target
    hop = run.hops.pop(edge, None) or [0, 0, int((target << 32 | source) in run.hops), index]
    finder, at, others_at = run.finder
    if (at if finder != source else others_at) >= hop[1]:
        hop[0], hop[3] = 0, index
    hop[0] += 1
    hop[1] = index
    run.hops[edge] = hop
    if len(run.hops) > HOPS_MAX:
        del run.hops[next(iter(run.hops))]
    elif hop[0] == 1:
        run.room -= HOP_BYTES
    return (hop[0] if chosen or not hop[2] else 0), hop[3]
