"""BUDGET004 steps: a run has taken too many steps (the recursion limit).

Sees: turns of a run against `maxSteps`. If only `maxRounds` was declared, the limit is 3 x rounds + 10: three nodes a
round, and ten steps around them. A run without such a limit, or with one that is higher, has a backstop: at turn 500 it
is reported once, with a warning.

Why: a run that hits its limit has a fundamental problem, whatever it reports. The backstop is for runs in which every
turn looks new, such as those of an agent that adds a random word: no other detector can find those.

False alarms: none for a limit that you declare, if the number is right. The backstop reports long runs, healthy or not.

Tuning: declare `maxSteps` (also `recursionLimit`) on `run.started` or in the policy. `warn_turns` moves the backstop;
`halt_turns` makes it halt as well, unless an operator has resumed the run. It is off by default, because a number that
fits all workflows does not exist.

Reference: deliberation requirement, layer 1: 55 steps = 15 rounds x 3 nodes + 10. Backstop: of 777 recorded runs of
four kinds of agents, one has more than 175 turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamproc.core.marks import NEVER, first_of
from streamproc.core.scope import Scope
from streamproc.core.view import AGAIN
from streamproc.detectors.base import Example, Finding, Level, View, kind, level, started, steps
from streamproc.detectors.budget_detector import BudgetDetector, layer_of

BACKSTOP: Final = 1  # loop of the findings about a run without a limit of its own


class StepBudget(BudgetDetector):
    code, name = "BUDGET004", "steps"
    budgets = ("maxSteps", "maxRounds")
    kinds = kind.BUDGET | kind.LONG

    class Limits:
        """How the limit follows from `maxRounds` if only that was declared, and the backstop in turns; 0 turns it
        off."""

        steps_per_round: int = 3  # persona, convergence check, facilitator
        steps_around: int = 10  # decompose, select, vote, synthesise
        warn_turns: int = 500  # three times as many as recorded runs have, apart from one
        halt_turns: int = 0  # off: a long run may be a healthy one

    def marks(self, limits: Limits) -> dict[str, int]:
        first = first_of(limits.warn_turns, limits.halt_turns)
        return {"long_turns": first, "long_halt": first_of(limits.halt_turns)}

    def budget_marks(self, limits: Limits, budgets: Mapping[str, int], _: Scope) -> dict[str, int]:
        return {"steps": self._limit(limits, budgets)[0]}

    def check(self, view: View, limits: Limits) -> Finding | None:
        limit, budget = self._limit(limits, view.budgets)
        steps = view.index + 1
        if steps >= limit:
            layer = layer_of(view, budget)
            if budget == "maxRounds":
                layer = layer._replace(words=f"follows from maxRounds, {layer.words}")
            stop = "recursion_limit" if steps > limit else ""
            return self.breach(steps, limit, "turns", "The run", 0, layer, stop=stop)
        if view.kinds & kind.LONG and (steps in (limits.warn_turns, limits.halt_turns) or steps % AGAIN == 0):
            return self._backstop(view, limits, steps)
        return None

    def _backstop(self, view: View, limits: Limits, steps: int) -> Finding | None:
        # An operator who resumes a run knows how long it is.
        halt = 0 if view.run.escalation.resumes else limits.halt_turns
        reached = level(steps, limits.warn_turns, halt)
        if reached is None or self.reported(view, BACKSTOP, reached):
            return None
        message = f"The run has taken {steps} turns, and has no lower limit on its steps (`maxSteps`)."
        limit = halt if reached == Level.HALT else limits.warn_turns
        return self.finding(
            reached, BACKSTOP, message, kind="long_run", used=steps, limit=limit, unit="turns", limit_from="detector"
        )

    def _limit(self, limits: Limits, budgets: Mapping[str, int]) -> tuple[int, str]:
        """Return the limit on steps, and the budget that it comes from."""
        if (rounds := budgets.get("maxRounds")) is not None and "maxSteps" not in budgets:
            return limits.steps_per_round * rounds + limits.steps_around, "maxRounds"
        return budgets.get("maxSteps", NEVER), "maxSteps"


DETECTOR = StepBudget()
HEALTHY = [
    Example("no limit is set", steps(120)),
    Example("within its budget", [started(maxSteps=4), *steps(3)]),
    Example("a long run", steps(499)),
]  # fmt: skip
STUCK = [
    Example("one step too many", [started(maxSteps=4), *steps(5)], "halt", 4),
    Example("a limit derived from the rounds", [started(maxRounds=5), *steps(26)], "halt", 25),
    Example("a new word in each turn, without a limit", steps(510), "warn", 499),
]  # fmt: skip
