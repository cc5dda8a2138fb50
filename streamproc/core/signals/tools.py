"""Tools: how each one answered its last calls, and turns in which every call failed.

Memory: `TOOLS_MAX` tools of callers with the outcomes of their last `TOOL_CALLS` calls; past it, the least recent
without failures is dropped. Streaks of failed turns are those of the caller whose turn it is (`callers`).
Read by ERROR003, ERROR005, INFRA001 and LOOP004.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from streamproc.core.now import Now
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
    i64,
    mixed,
    tag32,
    u32,
    u64,
)
from streamproc.model.wire import ANSWERED, FAILED, FAILED_RETRYABLE, FAILED_RUN, LONG_ANSWER, WRITES, Call, Turn

TOOLS_MAX: Final = 16  # tools of all callers; agents that loop use a few, and those without failures take 30 bytes
TOOL_CALLS: Final = 8  # calls of one tool: the larger window of ERROR005
NEIGHBOURS: Final = 2  # two calls of a tool are in a row if they are at most this many call turns apart
KEY_TAG: Final = 0xFFFF  # two calls with equal tags by accident only make a halt come earlier


class ToolAnswers(NamedTuple):
    """How a tool answered its last calls, if that may be a loop."""

    failures: list[int]  # error tag of each of the last calls; 0: it succeeded
    turns: list[int]  # the turn of each of them
    keys: list[int]  # of each of them, 16 bits of the hash of its arguments
    answer: int  # tag of the last answer
    same: int  # calls in close succession that had different arguments and the same answer
    first: int  # turn of the first of them
    varied: bool  # whether it has given two different answers in a row


class ToolsSeen(NamedTuple):
    """How the tools of a turn answered, if a detector may report it."""

    answers: tuple[ToolAnswers, ...]
    same: bool  # whether one of them answers different calls alike
    same_error: bool  # whether one of them fails again with the same error
    failed: bool  # whether all calls of so many turns in a row failed
    retried: bool  # whether so many turns in a row met retryable errors


def has_long_answer(turn: Turn) -> bool:
    """Whether a call of a turn was answered with more than an acknowledgement."""
    return any(call.marks & LONG_ANSWER for call in turn.calls)


@final
@cclass
class Tool(Row):
    """The latest answers of one tool to one caller, whatever its arguments were. Key: tags of both."""

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
    def note_failure(self, error: u32, index: i32) -> None:
        """Append the error of a call (0: it succeeded), and clear the list once none of them failed."""
        place: u32
        self.failures.push(error, index)
        self.keys.push(self.call_key & KEY_TAG, index)
        if not error:
            for place in range(1, self.failures.size + 1):
                if self.failures.ago(place):
                    return
            self.failures.clear()
            self.keys.clear()

    @cfunc
    def fails_again(self, mark: i64) -> bool:
        """Whether so many of the last calls failed with the latest error."""
        times: i64 = 0
        place: u32
        if self.failures.size < mark or not self.failures.size or not self.failures.ago(1):
            return False
        for place in range(1, self.failures.size + 1):
            if self.failures.ago(place) == self.failures.ago(1):
                times += 1
        return times >= mark

    @cfunc
    def answers(self) -> ToolAnswers:
        """Return its last answers."""
        size: u32 = self.failures.size
        return ToolAnswers(
            self.failures.last_numbers(size), self.failures.last_turns(size), self.keys.last_numbers(size),
            self.answer, self.same, self.first, bool(self.varied),
        )  # fmt: skip


@final
@cclass
class Tools(Record):
    """The tools of a run, and the turns of a caller in which every call failed."""

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

    @ccall
    def reset(self) -> None:
        """Start the counts of failed turns again."""
        self.failed_turns = self.excused_failures = self.retries = 0

    @cfunc
    def observe(self, now: Now) -> ToolsSeen | None:
        """Record how tools answered. Parallel calls count once for each tool."""
        failed: bool
        tool: Tool
        calls: Any = now.turn.calls
        call: Call = calls[0]
        outcome: u64 = hash64(call.outcome)
        noticed: dict[str, Tool]
        if len(calls) == 1 and outcome <= ANSWERED:  # most turns
            self.reset()
            tool = self._observe_call(now, call)
            return self._seen(now, (tool,), False, False) if tool.same >= now.marks.same_answers else None
        noticed = {}
        for call in calls:
            if call.outcome != FAILED_RETRYABLE and call.name not in noticed:
                noticed[call.name] = self._observe_call(now, call)
        failed = self._count_failures(now, {call.outcome for call in calls})
        return self._seen(now, tuple(noticed.values()), failed, self.retries >= now.marks.retries)

    @cfunc
    def _seen(self, now: Now, tools: tuple[Tool, ...], failed: bool, retried: bool) -> ToolsSeen | None:
        """Return how tools answered, if one of them answers different calls alike, or fails with the same error, as
        often as the marks say."""
        answers: tuple[ToolAnswers, ...] = ()
        same: bool = False
        same_error: bool = False
        tool: Tool
        alike: bool
        fails: bool
        long: bool = has_long_answer(now.turn)
        for tool in tools:
            alike = tool.same >= now.marks.same_answers
            fails = tool.fails_again(now.marks.same_errors)
            if alike or fails:
                answers = (*answers, tool.answers())
                same_error = same_error or fails
                same = same or (alike and (tool.varied or long or tool.same >= now.marks.same_acknowledgements))
        if not answers and not failed and not retried:
            return None
        return ToolsSeen(answers, same, same_error, failed, retried)

    @cfunc
    def _observe_call(self, now: Now, call: Call) -> Tool:
        key_of_tool: u64 = now.names.tag(call.name) ^ mixed(now.caller)
        outcome: u64 = hash64(call.outcome)
        key: u32 = tag32(hash64(call.key))
        marks: u64 = hash64(call.marks)
        answer: u32 = tag32(hash64(call.exact))
        before: u32
        error: u32
        tool: Tool | None = self.table.touch(key_of_tool)
        if tool is None:
            if self.table.full():
                _forget_a_tool(self.table)
            tool = self.table.add(key_of_tool)
        before = tool.call_key
        tool.call_key = key
        if outcome in (FAILED, FAILED_RUN):
            error = tag32(hash64(call.norm))
            tool.note_failure(error or 1, now.index)
            tool.same, tool.first, tool.answer = 0, now.index, 0
        else:
            if tool.failures.size:
                tool.note_failure(0, now.index)
            if outcome != ANSWERED or answer != tool.answer or now.call_turns > tool.call_turn + NEIGHBOURS:
                if answer != tool.answer and tool.answer:
                    tool.varied = True
                tool.same, tool.first = 1 if outcome == ANSWERED else 0, now.index
            elif key != before and not marks & WRITES:  # every text that is written is acknowledged alike
                tool.same += 1
            tool.answer = answer
        tool.call_turn = now.call_turns
        return tool

    @cfunc
    def _count_failures(self, now: Now, outcomes: set[int]) -> bool:
        """Count turns in a row whose calls all failed, and those that met retryable errors and got no answer. Return
        whether this one failed, and so many did that a detector may report it."""
        failed: bool = False
        answered: bool = bool(outcomes - {FAILED, FAILED_RETRYABLE, FAILED_RUN})
        if answered:
            self.failed_turns = self.excused_failures = 0
        elif FAILED in outcomes or FAILED_RUN in outcomes:
            self.failed_turns += 1
            if FAILED_RUN in outcomes and now.novelty.last_discovery == now.index:
                self.excused_failures = self.failed_turns  # a command fails with a new error: the work continues
            if self.failed_turns == 1:
                self.failing_since = now.index
            failed = self.failed_turns >= now.marks.failed_turns
        self.retries = self.retries + 1 if FAILED_RETRYABLE in outcomes and not answered else 0
        return failed


@cfunc
def _forget_a_tool(tools: Table) -> None:
    """Drop the tool that was not called for the longest time, preferring tools without failures."""
    tool: Tool
    for tool in tools.rows:
        if not tool.failures.size:
            tools.forget(tool.key)
            return
    tool = tools.rows[0]
    tools.forget(tool.key)
