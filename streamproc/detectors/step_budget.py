"""BUDGET004 steps: a run has taken too many steps (the recursion limit).

Sees: turns of a run against `maxSteps`. If only `maxRounds` was declared, the limit is 3 x rounds + 10: three nodes a
round, and ten steps around them.

Why: a run that hits this limit has a fundamental problem, whatever it reports.

False alarms: none if the number is right; nothing is limited unless the run or the policy declares it.

Tuning: declare `maxSteps` (also `recursionLimit`) on `run.started` or in the policy.

Reference: deliberation requirement, layer 1: 55 steps = 15 rounds x 3 nodes + 10.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import Finding
from streamproc.core.view import View
from streamproc.detectors.base import Example, said
from streamproc.detectors.breach import breach


@dataclass(frozen=True, slots=True)
class Limits:
    """How the limit follows from `maxRounds` if only that was declared."""

    steps_per_round: int = 3  # persona, convergence check, facilitator
    steps_around: int = 10  # decompose, select, vote, synthesise


class StepBudget:
    """BUDGET004."""

    code = "BUDGET004"
    name = "steps"
    budgets = ("maxSteps", "maxRounds")
    kinds = kind.BUDGET

    def check(self, view: View, limits: Limits) -> Finding | None:
        limit = view.budgets.get("maxSteps")
        if limit is None:
            rounds = view.budgets.get("maxRounds")
            if rounds is None:
                return None
            limit = limits.steps_per_round * rounds + limits.steps_around
        steps = view.index + 1
        return breach(self, steps, limit, "turns", "The run", 0) if steps >= limit else None


DETECTOR = StepBudget()

HEALTHY = [
    Example("no limit is set", [said("agent", f"step {n}") for n in range(120)]),
    Example("within its budget", [
        {"type": "run.started", "budgets": {"maxSteps": 4}}, *(said("agent", f"step {n}") for n in range(3)),
    ]),
]  # fmt: skip
STUCK = [
    Example("one step too many", [
        {"type": "run.started", "budgets": {"maxSteps": 4}}, *(said("agent", f"step {n}") for n in range(5)),
    ], "halt", 4),
    Example("a limit derived from the rounds", [
        {"type": "run.started", "budgets": {"maxRounds": 1}}, *(said("agent", f"step {n}") for n in range(14)),
    ], "halt", 13),
]  # fmt: skip
