"""Callers: who makes calls, each node for itself, and each agent of a node.

Streaks of calls (`Tools`, `Reruns`, `Calls.writes`) and the count of call turns are those of the caller whose turn it
is. When another one calls, they wait here until it is their caller's turn again: what one agent's calls do neither adds
to the streaks of another nor ends them. Retries after errors of the infrastructure, which all share, are counted over
the run.

Memory: `CALLERS_MAX` callers; past it, the one that has not called for the longest time is dropped, and begins again. A
run with one caller has none here. Read by ERROR003, LOOP003 and LOOP012, by way of the streaks.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Record, Sparse, Table, ccall, cclass, cfunc, final, i32, u32
from streamproc.core.signals.calls import Calls
from streamproc.core.signals.reruns import Reruns
from streamproc.core.signals.streaks import Streak
from streamproc.core.signals.tools import Tools

CALLERS_MAX: Final = 16  # as many as there are nodes with full memory


@final
@cclass
class Caller(Sparse):
    """The streaks of one caller while another one calls. Key: tag of the node and of its agent."""

    call_turns: u32  # its turns with calls
    failed_turns: u32  # as in `Tools`
    excused_failures: u32
    failing_since: i32
    writes: Streak  # as in `Calls`
    reruns: Reruns

    def __init__(self) -> None:
        self.writes, self.reruns = Streak(), Reruns()
        super().__init__(self.writes, self.reruns)

    @cfunc
    def keep(self, call_turns: u32, tools: Tools, calls: Calls, reruns: Reruns) -> None:
        """Take over the streaks that are in force."""
        self.call_turns = call_turns
        self.failed_turns, self.excused_failures = tools.failed_turns, tools.excused_failures
        self.failing_since = tools.failing_since
        self.writes.copy(calls.writes)
        self.reruns.copy(reruns)

    @cfunc
    def put_in_force(self, tools: Tools, calls: Calls, reruns: Reruns) -> None:
        """Put these streaks in force."""
        tools.failed_turns, tools.excused_failures = self.failed_turns, self.excused_failures
        tools.failing_since = self.failing_since
        calls.writes.copy(self.writes)
        reruns.copy(self.reruns)


@final
@cclass
class Callers(Record):
    """The callers of a run, and the one whose streaks are in force."""

    current: u32  # tag of the caller; 0: there was no call yet
    table: Table  # of `Caller`, those that have called last at the end

    def __init__(self) -> None:
        self.table = Table(Caller, CALLERS_MAX)
        super().__init__(self.table)

    @cfunc
    def enter(self, now: Now, caller: u32, tools: Tools, calls: Calls, reruns: Reruns) -> None:
        """Put the streaks of a caller in force, and its count of call turns."""
        row: Caller | None
        if self.current:
            row = self.table.touch(self.current)
            if row is None:
                row = self.table.add(self.current)
            row.keep(now.call_turns, tools, calls, reruns)
            row = self.table.find(caller)
            if row is not None:
                row.put_in_force(tools, calls, reruns)
                now.call_turns = row.call_turns
            else:  # new, or dropped before: its count of call turns may not fall below that of any earlier call
                now.call_turns = now.index
                tools.failed_turns = tools.excused_failures = 0
                tools.failing_since = -1
                calls.writes.clear()
                reruns.clear()
        self.current = caller

    def drop_half(self) -> None:
        """Drop half of the callers, because the state is full: those whose calls neither fail nor repeat, and of those
        the ones that have not called for the longest time."""
        for row in sorted(self.table.rows, key=_has_streak)[: len(self.table) // 2]:
            self.table.forget(row.key)

    @ccall
    def reset(self) -> None:
        """Forget the streaks of the callers whose turn it is not."""
        row: Caller
        for row in self.table.rows:
            row.failed_turns = row.excused_failures = 0


def _has_streak(row: Caller) -> bool:
    return row.failed_turns > 0 or max(row.writes.count, row.reruns.count) > 1
