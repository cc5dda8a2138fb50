"""Marks: the numbers below which no detector in force could say anything, so that none is asked.

A detector that counts something gives the number from which it may report (`Detector.marks`). The lowest of all
detectors that are asked about a kind of evidence is its mark. A detector without marks is asked from the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from streamproc.core import kind
from streamproc.core.records import cclass, final, flag, i64
from streamproc.core.scope import Scope

NEVER: Final = 1 << 62
KINDS: Final[Mapping[str, int]] = {
    "same_answers": kind.TOOL,
    "same_acknowledgements": kind.TOOL,
    "same_errors": kind.TOOL_FAILS,
    "failed_turns": kind.FAILING,
    "retries": kind.RETRIES,
    "stale_turns": kind.STALE,
    "stale_turns_known": kind.STALE,
    "unacknowledged_turns": kind.UNACKNOWLEDGED,
    "long_turns": kind.LONG,
    "long_halt": kind.LONG,
    "pace_multiple": kind.USAGE,
    "pace_micro_usd": kind.USAGE,
    "pace_tokens": kind.USAGE,
}
"""The kind of evidence that each mark is about."""


@final
@cclass
class Marks:
    """The marks of a policy, for one scope."""

    same_answers: i64  # different calls of one tool in a row with the same answer
    same_acknowledgements: i64  # the same of a tool that has given no other answer in this run
    same_errors: i64  # failures of one tool with the same error among its last calls
    failed_turns: i64  # turns in a row whose calls all failed
    retries: i64  # turns in a row in which calls met retryable errors
    stale_turns: i64  # of the last six call turns
    stale_turns_known: i64  # the same in an episode that began before a halt, which has reported it
    unacknowledged_turns: i64  # turns since a halt that nothing acknowledged
    long_turns: i64  # turns after which a run is long
    long_halt: i64  # turns after which a long run may be halted
    pace_multiple: i64  # how many times as much as earlier ones a turn must cost; 1: any turn with usage counts
    pace_micro_usd: i64  # spent within five minutes
    pace_tokens: i64


@final
@cclass
class Switches:
    """What a policy turns on, as numbers that each turn reads."""

    edges_apart: flag  # whether news counts only for the edge that it came back on
    every_error: flag  # whether failed calls and retryable errors are attempts as well
    outputs_gated: flag  # whether the gate of outputs is another than `any` ...
    sequences_gated: flag  # ... that of their sequences
    calls_gated: flag  # ... that of calls
    accounts_needed: flag  # whether all runs are charged
    priced: flag  # whether usage without a cost gets one
    task_budgets: flag  # whether a detector watches the tokens of tasks


def marks_of(detectors: Iterable[tuple[Any, Any]]) -> Marks:
    """Return the marks of detectors with their limits."""
    lowest = dict.fromkeys(KINDS, NEVER)
    for detector, limits in detectors:
        given = detector.marks(limits) if hasattr(detector, "marks") else {}
        for name, bit in KINDS.items():
            if detector.kinds & bit:
                lowest[name] = min(lowest[name], given.get(name, 1))
    marks = Marks()
    for name, value in lowest.items():
        setattr(marks, name, value)
    return marks


def first_of(*limits: int) -> int:
    """Return the lowest limit that is on; a limit of 0 is off."""
    return min((limit for limit in limits if limit > 0), default=NEVER)


BUDGET_KINDS: Final[Mapping[str, int]] = {
    "steps": kind.BUDGET,
    "runtime_ms": kind.BUDGET,
    "node_turns": kind.BUDGET,
    "node_runtime_ms": kind.BUDGET,
    "cost_usd_micro": kind.SPENDING,
    "unpriced": kind.SPENDING,
    "turn_tokens": kind.SPENDING,
    "turn_ms": kind.SPENDING,
    "cycle_iterations": kind.CYCLE,
    "cycle_runtime_ms": kind.CYCLE,
    "cycle_cost": kind.CYCLE,
}
"""The kind of evidence that each mark of a budget is about."""


@final
@cclass
class BudgetMarks:
    """What a run of one scope must have used before any detector of budgets could say something."""

    steps: i64  # turns
    runtime_ms: i64
    node_turns: i64  # of one node
    node_runtime_ms: i64
    cost_usd_micro: i64
    unpriced: i64  # turns without a price
    turn_tokens: i64  # of one turn
    turn_ms: i64
    cycle_iterations: i64  # of one cycle
    cycle_runtime_ms: i64
    cycle_cost: i64  # micro-USD


def budget_marks_of(detectors: Iterable[tuple[Any, Any]], budgets: Mapping[str, int], scope: Scope) -> BudgetMarks:
    """Return the marks of the budgets in force for a scope. A detector without `budget_marks` is always asked."""
    lowest = dict.fromkeys(BUDGET_KINDS, NEVER)
    for detector, limits in detectors:
        if hasattr(detector, "budget_marks"):
            for name, value in detector.budget_marks(limits, budgets, scope).items():
                lowest[name] = min(lowest[name], value)
        else:
            lowest |= {name: 0 for name, bit in BUDGET_KINDS.items() if detector.kinds & bit}
    marks = BudgetMarks()
    for name, value in lowest.items():
        setattr(marks, name, value)
    return marks


@final
@cclass
class InForce:
    """What counts for the runs of one scope."""

    budgets: Mapping[str, int]  # those that the run declared, over the policy's
    limits: BudgetMarks
    marks: Marks
    switches: Switches

    def __init__(self, budgets: Mapping[str, int], limits: BudgetMarks, marks: Marks, switches: Switches) -> None:
        self.budgets, self.limits, self.marks, self.switches = budgets, limits, marks, switches
