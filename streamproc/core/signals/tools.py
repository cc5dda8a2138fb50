"""Tools: how each one answered its last calls, and turns in which every call failed.

Memory: `TOOLS_MAX` tools with the outcomes of their last `TOOL_CALLS` calls; past it, the least recent is dropped.
Read by ERROR002, ERROR005, LOOP004 and STALL005.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamproc.core import kind
from streamproc.core.records import (
    Record,
    Row,
    Table,
    Trail,
    ccall,
    cclass,
    cfunc,
    final,
    flag,
    hash64,
    i32,
    tag32,
    u32,
    u64,
)
from streamproc.model.wire import ANSWERED, FAILED, FAILED_RETRYABLE, FAILED_RUN, Call

if TYPE_CHECKING:
    from streamproc.core.names import Names
    from streamproc.core.run_state import RunState
    from streamproc.core.view import View

TOOLS_MAX: Final = 6  # tools of a run; agents that loop use a few
TOOL_CALLS: Final = 8  # calls of one tool: the larger window of ERROR005
NEIGHBOURS: Final = 2  # two calls of a tool are in a row if they are at most this many call turns apart
KEY_TAG: Final = 0xFFFF  # two calls with equal tags by accident only make a halt come earlier
TOOL_BYTES: Final = 31  # of a state
FAILURE_BYTES: Final = 16


class ToolAnswers(NamedTuple):
    """How a tool answered its last calls, if that may be a loop."""

    failures: list[int]  # error tag of each of the last calls; 0: it succeeded
    turns: list[int]  # the turn of each of them
    keys: list[int]  # of each of them, 16 bits of the hash of its arguments
    answer: int  # tag of the last answer
    same: int  # calls in close succession that had different arguments and the same answer
    first: int  # turn of the first of them
    varied: bool  # whether it has given two different answers in a row


@final
@cclass
class Tool(Row):
    """The latest answers of one tool, whatever its arguments were. Key: tag of its name."""

    answer: u32  # tag of the last answer
    call_key: u32  # tag of the last call's arguments
    same: u32  # calls in close succession that had different arguments and the same answer
    first: i32  # turn of the first of them
    call_turn: u32  # when the tool was last called, counted in call turns
    varied: flag  # whether it has given two different answers in a row
    failures: Trail  # error tag of each of the last calls, and its turn; 0: it succeeded
    keys: Trail  # of each of them, 16 bits of the hash of its arguments

    def __init__(self) -> None:
        self.failures, self.keys = Trail(TOOL_CALLS), Trail(TOOL_CALLS)
        super().__init__(self.failures, self.keys)

    @cfunc
    def note_failure(self, run: RunState, error: u32, index: i32) -> None:
        """Append the error of a call (0: it succeeded), and clear the list once none of them failed."""
        place: u32
        if self.failures.size < TOOL_CALLS:
            run.size_left -= FAILURE_BYTES
        self.failures.push(error, index)
        self.keys.push(self.call_key & KEY_TAG, index)
        if not error:
            for place in range(1, self.failures.size + 1):
                if self.failures.ago(place):
                    return
            self.failures.clear()
            self.keys.clear()

    @cfunc
    def last_error_times(self) -> u32:
        """Return how many of the last calls failed with the latest error."""
        times: u32 = 0
        place: u32
        for place in range(1, self.failures.size + 1):
            if self.failures.ago(place) == self.failures.ago(1):
                times += 1
        return times


@final
@cclass
class Tools(Record):
    """The tools of a run, and its turns in which every call failed."""

    failed_turns: u32  # turns in a row whose calls all failed
    excused_failures: u32  # the part of them up to the last command that failed with a new error: work continues
    retries: u32  # turns in a row in which calls met retryable errors and none was answered
    failing_since: i32  # turn of the first of `failed_turns`
    table: Table  # of `Tool`

    def __init__(self) -> None:
        self.table = Table(Tool, TOOLS_MAX)
        super().__init__(self.table)

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.failing_since = -1


@cfunc
def observe_tools(view: View, names: Names) -> None:
    """Record how tools answered. Parallel calls count once for each tool."""
    run: RunState = view.run
    tools: Tools = run.tools
    tool: Tool
    calls: Any = view.turn.calls
    call: Call = calls[0]
    outcome: u64 = hash64(call.outcome)
    view.tools = ()
    if len(calls) == 1 and outcome <= ANSWERED:  # most turns
        tools.failed_turns = tools.excused_failures = tools.retries = 0
        _show(view, _observe_tool(run, names.tag(call.name), call, view.index))
        return
    noticed: set[str] = set()
    for call in calls:
        if call.outcome != FAILED_RETRYABLE and call.name not in noticed:
            noticed.add(call.name)
            tool = _observe_tool(run, names.tag(call.name), call, view.index)
            _show(view, tool)
    _count_failures(view, {call.outcome for call in calls})


@cfunc
def _show(view: View, tool: Tool) -> None:
    """Observe a tool if it answers different calls alike, or fails with the same error, as often as the marks say."""
    size: u32 = tool.failures.size
    kinds: u32 = 0
    alike: bool = tool.same >= view.marks.same_answers
    if alike and (tool.varied or tool.same >= view.marks.same_acknowledgements):
        kinds = kind.TOOL
    if size >= view.marks.same_errors and tool.failures.ago(1) and tool.last_error_times() >= view.marks.same_errors:
        kinds |= kind.TOOL_FAILS
    if kinds or alike:
        seen = ToolAnswers(
            tool.failures.last_numbers(size), tool.failures.last_turns(size), tool.keys.last_numbers(size),
            tool.answer, tool.same, tool.first, bool(tool.varied),
        )  # fmt: skip
        view.tools = (*view.tools, seen)
        view.kinds |= kinds


@cfunc
def _observe_tool(run: RunState, name: u32, call: Call, index: i32) -> Tool:
    outcome: u64 = hash64(call.outcome)
    key: u32 = tag32(hash64(call.key))
    answer: u32 = tag32(hash64(call.exact))
    before: u32
    error: u32
    tool: Tool | None = run.tools.table.touch(name)
    if tool is None:
        if not run.tools.table.full():
            run.size_left -= TOOL_BYTES
        tool = run.tools.table.add(name)
    before = tool.call_key
    tool.call_key = key
    if outcome in (FAILED, FAILED_RUN):
        error = tag32(hash64(call.norm))
        tool.note_failure(run, error or 1, index)
        tool.same, tool.first, tool.answer = 0, index, 0
    else:
        if tool.failures.size:
            tool.note_failure(run, 0, index)
        if outcome != ANSWERED or answer != tool.answer or run.call_turns > tool.call_turn + NEIGHBOURS:
            if answer != tool.answer and tool.answer:
                tool.varied = True
            tool.same, tool.first = 1 if outcome == ANSWERED else 0, index
        elif key != before:
            tool.same += 1
        tool.answer = answer
    tool.call_turn = run.call_turns
    return tool


@cfunc
def _count_failures(view: View, outcomes: set[int]) -> None:
    """Count turns in a row whose calls all failed, and those that met retryable errors and got no answer."""
    run: RunState = view.run
    tools: Tools = run.tools
    answered: bool = bool(outcomes - {FAILED, FAILED_RETRYABLE, FAILED_RUN})
    if answered:
        tools.failed_turns = tools.excused_failures = 0
    elif FAILED in outcomes or FAILED_RUN in outcomes:
        tools.failed_turns += 1
        if FAILED_RUN in outcomes and run.novelty.last_discovery == view.index:
            tools.excused_failures = tools.failed_turns  # a command fails with a new error: the work continues
        if tools.failed_turns == 1:
            tools.failing_since = view.index
        if tools.failed_turns >= view.marks.failed_turns:
            view.kinds |= kind.FAILING
    tools.retries = tools.retries + 1 if FAILED_RETRYABLE in outcomes and not answered else 0
    if tools.retries >= view.marks.retries:
        view.kinds |= kind.RETRIES
