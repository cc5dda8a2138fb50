"""Tools: how each one answered its last calls, and turns in which every call failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from streamproc.core.run_state import OCCURRENCE_BYTES, TAG, RunState, Tool
from streamproc.model.wire import ANSWERED, FAILED, FAILED_RETRYABLE, FAILED_RUN, Call, Turn

TOOLS_MAX: Final = 6  # tools remembered in a run
TOOL_CALLS: Final = 6  # of one tool, looked over by ERROR005
NEIGHBOURS: Final = 2  # call turns from one call of a tool to its next, for both to be in a row
TROUBLE: Final = {FAILED, FAILED_RETRYABLE, FAILED_RUN}
TOOL_BYTES: Final = 40  # of an encoded state, as those of `run.py`


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
