"""Nodes: what each one last said, left and reported. The signals of nodes keep their streaks here.

Memory: `NODES_MAX` nodes; past it, the one that was silent for the longest time is dropped.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.records import Record, Row, Sparse, Table, ccall, cclass, cfunc, final, flag, i32, i64, u32, u64
from streamproc.core.signals.streaks import Said, Streak

NODES_MAX: Final = 16  # nodes with full memory; most teams of agents are smaller
SUITES_MAX: Final = 2  # test suites of one node: it may run two in turn


@final
@cclass
class SuiteTrack(Row):
    """The results of one test suite, as one node reports them. Key: the size of the suite; `HASH`: not reported."""

    best_failing: i64  # fewest failing tests so far
    best_passed: i64  # most passing tests so far; -1: not reported
    unpassed: u32  # iterations in a row in which no test passed
    same: Streak  # the same set of failing tests
    flat: Streak  # iterations without fewer failures than ever

    def __init__(self) -> None:
        self.same, self.flat = Streak(), Streak()
        super().__init__(self.same, self.flat)


@final
@cclass
class NodeState(Sparse):
    """The recent activity of one node. Key: tag of its name."""

    query_simhash: u64  # SimHash of the last query
    text_simhash: u64  # SimHash of its last text
    last_turn: i32  # its last turn; -1: none yet
    last_call: i32  # its last turn with calls; -1: never
    last_call_news: i32  # its last turn in which a call returned something new; -1: never
    attempted_tool: u32  # tag of the tool of the last failure as a call; 0: another call of it has succeeded since
    attempted_call: u32  # ... and of the call
    attempted: flag  # whether the last failure was a call
    has_answered: flag  # whether it has answered its last query
    output: Said  # the same text
    structured: Said  # the same structured output
    artifact: Streak  # the same artifact or page
    errors: Streak  # the same reported errors
    query: Streak  # the same or nearly the same query
    reply: Streak  # the same text to different messages of people; `stamp` is the message
    attempts: Streak  # the same failure, whatever was reported in between; only if every error counts
    suites: Table  # of `SuiteTrack`, the one reported last at the end

    def __init__(self) -> None:
        self.output, self.structured = Said(), Said()
        self.artifact, self.errors, self.query = Streak(), Streak(), Streak()
        self.reply, self.attempts = Streak(), Streak()
        self.suites = Table(SuiteTrack, SUITES_MAX)
        super().__init__(
            self.output, self.structured, self.artifact, self.errors, self.query, self.reply, self.attempts,
            self.suites,
        )  # fmt: skip

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.last_turn = self.last_call = self.last_call_news = -1

    def repeats(self) -> bool:
        """Whether it has said, left or reported the same more than once."""
        streaks = [self.artifact, self.errors, self.query, self.reply, self.attempts]
        streaks += [suite.same for suite in self.suites.rows]
        return max(self.output.count, self.structured.count, *(streak.count for streak in streaks)) > 1


@cfunc
def longest_silent(nodes: Table) -> NodeState:
    """Return the node whose last turn is the oldest."""
    row: NodeState
    oldest: NodeState = nodes.rows[0]
    for row in nodes.rows:
        if row.last_turn < oldest.last_turn:
            oldest = row
    return oldest
