"""Tools: how each one answered its last calls, and turns in which every call failed.

Memory: `TOOLS_MAX` tools with the outcomes of their last `TOOL_CALLS` calls; past it, the least recent is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from streamproc.core.run_state import OCCURRENCE_BYTES, TAG, RunState, Tool
from streamproc.model.wire import ANSWERED, FAILED, FAILED_RETRYABLE, FAILED_RUN, Call, Turn

TOOLS_MAX: Final = 6  # tools of a run; agents that loop use a few
TOOL_CALLS: Final = 8  # calls of one tool: the larger window of ERROR005
NEIGHBOURS: Final = 2  # two calls of a tool are in a row if they are at most this many call turns apart
FAILURES: Final = {FAILED, FAILED_RETRYABLE, FAILED_RUN}
TOOL_BYTES: Final = 42  # of an encoded state
FAILURE_BYTES: Final = OCCURRENCE_BYTES + 3
KEY_TAG: Final = 0xFFFF  # two calls with equal tags by accident only make a halt come earlier


def observe_tools(run: RunState, turn: Turn, index: int, names: Mapping[str, int]) -> Sequence[Tool]:
    """Record how tools answered, and return them. Parallel calls count once for each tool."""
    calls = turn.calls
    if len(calls) == 1 and calls[0].outcome <= ANSWERED:  # most turns
        run.failed_turns = run.excused_failures = run.retries = 0
        return (_observe_tool(run, names[calls[0].name], calls[0], index),)
    noticed: dict[int, Tool] = {}
    for call in calls:
        if call.outcome != FAILED_RETRYABLE and names[call.name] not in noticed:
            noticed[names[call.name]] = _observe_tool(run, names[call.name], call, index)
    _count_failures(run, {call.outcome for call in calls}, index)
    return tuple(noticed.values())


def _observe_tool(run: RunState, name: int, call: Call, index: int) -> Tool:
    tools, outcome, steps = run.tools, call.outcome, run.call_turns
    tool = tools.pop(name, None)
    if tool is None:
        tool = Tool()
        if len(tools) >= TOOLS_MAX:
            del tools[next(iter(tools))]
        else:
            run.size_left -= TOOL_BYTES
    tools[name] = tool
    key, answer = call.key & TAG, call.exact & TAG
    if outcome in (FAILED, FAILED_RUN):
        run.size_left -= FAILURE_BYTES
        _note_failure(tool, call.norm & TAG or 1, key, index)
        tool.same, tool.first, tool.answer = 0, index, 0
    else:
        if tool.failures:
            run.size_left -= FAILURE_BYTES
            _note_failure(tool, 0, key, index)
        if outcome != ANSWERED or answer != tool.answer or steps > tool.call_turn + NEIGHBOURS:
            if answer != tool.answer and tool.answer:
                tool.varied = True
            tool.same, tool.first = 1 if outcome == ANSWERED else 0, index
        elif key != tool.key:
            tool.same += 1
        tool.answer = answer
    tool.call_turn, tool.key = steps, key
    return tool


def _note_failure(tool: Tool, error: int, key: int, index: int) -> None:
    """Append the error of a call (0: it succeeded), and clear the list once none of them failed."""
    tool.failures.append(error)
    tool.turns.append(index)
    tool.keys.append(key & KEY_TAG)
    if len(tool.turns) > TOOL_CALLS:
        del tool.failures[0], tool.turns[0]
    if not any(tool.failures):
        tool.failures.clear()
        tool.turns.clear()
        tool.keys.clear()
    elif len(tool.keys) > len(tool.turns):
        del tool.keys[0]


def _count_failures(run: RunState, outcomes: set[int], index: int) -> None:
    """Count turns in a row whose calls all failed, and those that met retryable errors and got no answer."""
    answered = not outcomes <= FAILURES
    if answered:
        run.failed_turns = run.excused_failures = 0
    elif FAILED in outcomes or FAILED_RUN in outcomes:
        run.failed_turns += 1
        if FAILED_RUN in outcomes and run.last_discovery == index:
            run.excused_failures = run.failed_turns  # a command fails with a new error: the work continues
        if run.failed_turns == 1:
            run.failing_since = index
    run.retries = run.retries + 1 if FAILED_RETRYABLE in outcomes and not answered else 0
