"""Kinds of evidence, as bits. A detector is only asked about turns that bring one of its kinds.

A module, because an enum would cost a microsecond for each of them, and a class four times as much as a module does.
"""

from __future__ import annotations

from typing import Final

BUDGET: Final = 1 << 0  # any turn of a run on which somebody declared a budget
REPEATED_CALL: Final = 1 << 1  # a call with an answer that it had before
SAID: Final = 1 << 2  # a text or structured output that its node said last time, too
PERIOD: Final = 1 << 3  # a stream that repeats with a period
ARTIFACT: Final = 1 << 4
TESTS: Final = 1 << 5
ERRORS: Final = 1 << 6
METRIC: Final = 1 << 7
TOOL: Final = 1 << 8  # a tool that answers other calls alike, or fails again
FAILING: Final = 1 << 9  # calls in error in a row, or retries
STALE: Final = 1 << 10  # a call turn without anything new
NEAR: Final = 1 << 11  # a long text that is almost an earlier one
QUERY: Final = 1 << 12  # a query that was asked before
MONOLOGUE: Final = 1 << 13
HOP: Final = 1 << 14  # a hand-over that brought nothing new
ROUND: Final = 1 << 15  # a round, a convergence or a consensus was reported
CLOCK: Final = 1 << 16  # time has passed: a deadline, or an event that came late
STARTED: Final = 1 << 17  # run.started, with what it declared
BOARD: Final = 1 << 18  # a task moved, or was created, delegated, judged; a cycle of the board was completed
ORDER: Final = 1 << 19  # an operator's order, or a halt that was acknowledged or not
USAGE: Final = 1 << 20  # measured spend of tokens or money
CYCLE: Final = 1 << 21  # a turn inside a cycle that has had an iteration, under a budget
SPENDING: Final = 1 << 22  # measured spend of a run on which somebody declared a budget
ACCOUNT: Final = 1 << 24  # an account that the run spends from has come to a mark
TASK_TOKENS: Final = 1 << 25  # a task has come to a rung of its token budget

LOOPS: Final = PERIOD | REPEATED_CALL | TOOL | FAILING | HOP | MONOLOGUE  # what progress puts an end to
