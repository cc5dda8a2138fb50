"""Kinds of evidence, as bits. A detector is asked only about turns and events that bring one of its kinds.

This is a module of constants because an enum would add a microsecond to each test of a bit, and a class four times
the cost of a module.
"""

from __future__ import annotations

from typing import Final

BUDGET: Final = 1 << 0  # any turn of a run that has a budget, its own or from the policy
REPEATED_CALL: Final = 1 << 1  # a call returned an answer that it had returned before
SAID: Final = 1 << 2  # a node repeated its last text or structured output
PERIOD: Final = 1 << 3  # a stream of hashes repeats with a period
ARTIFACT: Final = 1 << 4  # a node left an artifact or a page
TESTS: Final = 1 << 5  # test results were reported
ERRORS: Final = 1 << 6  # a node reported errors that are not retryable
METRIC: Final = 1 << 7  # a named metric is no better than its best value so far
TOOL: Final = 1 << 8  # a tool answers different calls alike
FAILING: Final = 1 << 9  # turns in a row whose calls all failed
STALE: Final = 1 << 10  # a turn with calls that brought nothing new
NEAR: Final = 1 << 11  # a long text that is almost equal to an earlier one
QUERY: Final = 1 << 12  # a query was asked again
MONOLOGUE: Final = 1 << 13  # a node repeats almost the same text and does nothing else
HANDOVER: Final = 1 << 14  # a handover between nodes that brought nothing new
ROUND: Final = 1 << 15  # a round, a convergence or a consensus was reported
CLOCK: Final = 1 << 16  # time has passed: a deadline, or an event after a pause
STARTED: Final = 1 << 17  # `run.started`, with its graph and budgets
BOARD: Final = 1 << 18  # a task was created, moved, delegated or judged; a cycle of the board was completed
COMMAND: Final = 1 << 19  # an operator's command
USAGE: Final = 1 << 20  # measured spend of tokens or money, unusual if all detectors have marks for that
CYCLE: Final = 1 << 21  # a turn in a cycle that has completed an iteration, under a budget
SPENDING: Final = 1 << 22  # measured spend of a run that has a budget
LONG: Final = 1 << 23  # a turn at which a long run is looked at (`Marks.long_turns`): with a plug-in for it, all
ACCOUNT: Final = 1 << 24  # an account that the run spends from has reached a level of its budget
TASK_TOKENS: Final = 1 << 25  # a task has reached a level of its token budget
TEXT_STREAK: Final = 1 << 26  # a node that has used tools writes only texts
REPLY: Final = 1 << 27  # a node answers another message of a person with the text of its last answer
TOOL_FAILS: Final = 1 << 28  # a tool fails again with the same error
RETRIES: Final = 1 << 29  # turns in a row in which calls met retryable errors, and none was answered
UNACKNOWLEDGED: Final = 1 << 30  # a turn after a halt that was not acknowledged
WARNED: Final = 1 << 31  # another detector has warned of this turn: asked last
COMPACTED: Final = 1 << 32  # the context of an agent was compacted
CONTINUED: Final = 1 << 33  # the run was about to stop, and was sent on
FINISHED: Final = 1 << 34  # `run.finished`
UNFINISHED: Final = 1 << 35  # the model's answer was cut off, empty or malformed
REVIEWED: Final = 1 << 36  # a review has listed its open findings
TASK_FAILED: Final = 1 << 37  # a decision about a turn, or about several tasks, has failed a task

# Kinds that progress clears.
LOOPS: Final = PERIOD | REPEATED_CALL | TOOL | TOOL_FAILS | FAILING | RETRIES | HANDOVER | MONOLOGUE
