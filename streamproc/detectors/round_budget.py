"""BUDGET005 rounds: a deliberation has run for too many rounds, or has reached agreement.

Sees: `round`, `convergence` and `consensus` of the turns of a deliberation. It ends in the round `maxRounds`, and never
later than in round 15: halted at the turn that checks this round, with the action `force_synthesis`. Turns that report
`convergence` or `consensus` are checks, and so are those of nodes whose names begin a word with *check*, *converge* or
*consensus*; the first turn of the last round is a warning to finish. In a run without such turns, any turn with a
`round` is a check. `stop_reason` names the reason in the terms of the deliberation
requirement: `hard_cap_15_rounds`, `max_rounds`, `consensus`. Convergence above 0.85, or consensus of 80 percent, is a
*good* reason to stop before the last round: a notification with the action `force_synthesis`, and never a halt. Rounds
only rise: a falling round is a fault of the run and is reported once.

Why: agreement is reached within fifteen rounds or not at all, and every further round costs as much as a useful one.

False alarms: none if `round` counts rounds of a deliberation. A publisher that counts something else under this name
is halted at its fifteenth.

Tuning: declare `maxRounds`, 5 to 15, on `run.started` or in the policy; 7 in the preset `deliberation`. Other values
are refused where they are read, and a publisher that sends one all the same gets a warning, and the policy's limit.
No policy turns this detector off. `invariants_halt: 1`, as in `deliberation`, ends a run whose round falls;
`streamproc baseline` proposes a limit for each workflow from its recorded runs.

Reference: deliberation requirement, layer 3: round counter, hard cap, invariants.
"""

from __future__ import annotations

from typing import Any, Final

from streamproc.core.decision import STALLED
from streamproc.core.records import HASH
from streamproc.core.signals.handovers import is_round_check
from streamproc.detectors.base import Example, Finding, Level, View, kind, said, started
from streamproc.detectors.budget_detector import BudgetDetector, layer_of
from streamproc.model.wire import RunStarted

HARD_CAP: Final = 15  # no policy can lift it
LEAST: Final = 5  # rounds that a limit must allow: fewer give no agreement a chance


class RoundBudget(BudgetDetector):
    code, name = "BUDGET005", "rounds"
    budgets = ("maxRounds",)
    kinds = kind.ROUND | kind.STARTED
    evidence = (*BudgetDetector.evidence, "reason")
    hard_cap = HARD_CAP

    class Limits:
        """When a deliberation has reached agreement, in percent; the limit itself is a budget (`maxRounds`)."""

        convergence_percent: int = 85  # above this, arguments are the same opinion in other words
        consensus_percent: int = 80  # four of five
        invariants_halt: int = 0  # 1: a falling round ends the run; elsewhere rounds may start again with a new subject

    def check(self, view: View, limits: Limits) -> tuple[Finding, ...]:
        limit = min(view.budgets.get("maxRounds", HARD_CAP), HARD_CAP)
        if type(view.event) is RunStarted:
            declared = (view.event.budgets or {}).get("maxRounds", LEAST)
            return () if LEAST <= declared <= HARD_CAP else (self._out_of_range(declared, limit),)
        found = self._counted(view, limit, limits)
        if found is not None and found.level == Level.HALT:
            return (found,)  # the limit comes before agreement
        return (*(() if found is None else (found,)), *self._agreed(view, limits))

    def _counted(self, view: View, limit: int, limits: Limits) -> Finding | None:
        turn = view.turn
        checks = turn.convergence is not None or turn.consensus is not None or is_round_check(turn.node)
        if turn.round is None and not checks:
            return None
        current = view.run.round if turn.round is None else min(turn.round, HASH)
        if turn.round is not None and current < view.round_before:
            return self._fell(view, current, limits)
        if current < limit:
            return None
        if current >= HARD_CAP:
            limit = HARD_CAP  # the graver of the two limits: a message names one
        reason, layer = "hard_cap_15_rounds", "hard_cap"
        if limit < HARD_CAP:
            reason, layer = "max_rounds", layer_of(view, "maxRounds").name
        if current == limit and view.run.checks_rounds and not checks:
            message = f"Round {current} is the last allowed round ({reason}); finish in this round."
            return self._about_rounds(
                Level.WARN, 0, message, reason, current, limit, action="force_synthesis", limit_from=layer
            )
        message = f"The deliberation ends in round {current} of {limit} ({reason})."
        if current > limit:
            message = f"Round {current} has started, but only {limit} rounds are allowed ({reason})."
        return self._about_rounds(Level.HALT, 0, message, reason, current, limit, stop=reason, limit_from=layer)

    def _fell(self, view: View, current: int, limits: Limits) -> Finding:
        before = view.round_before
        message = f"The round fell from {before} to {current}; rounds must only rise."
        if not limits.invariants_halt:
            return self._about_rounds(Level.WARN, 2, message, "round_fell", current, before)
        onset = max(0, view.index - 1)  # the round was still higher
        return self._about_rounds(
            Level.HALT, 2, message, "round_fell", current, before, kind=self.name, halt_reason=STALLED,
            status="blocked", action="halt", stop="round_fell", onset=onset,
        )  # fmt: skip

    def _agreed(self, view: View, limits: Limits) -> tuple[Finding, ...]:
        turn = view.turn
        convergence, consensus = turn.convergence or 0.0, turn.consensus or 0.0
        if convergence > limits.convergence_percent / 100:
            how = f"convergence {convergence:.2f}"
        elif consensus >= limits.consensus_percent / 100:
            how = f"consensus {consensus:.0%}"
        else:
            return ()
        message = f"The deliberation has reached agreement ({how}) and can stop."
        found = self._about_rounds(
            Level.INFO, 1, message, "consensus", view.run.round or None, None,
            type="notification", action="force_synthesis", stop="consensus",
        )  # fmt: skip
        return (found,)

    def _out_of_range(self, declared: int, limit: int) -> Finding:
        message = f"maxRounds {declared} is refused, so {limit} applies; declare {LEAST} to {HARD_CAP}."
        return self._about_rounds(Level.WARN, 3, message, "max_rounds_refused", min(declared, HASH), limit)

    def _about_rounds(
        self, level: Level, loop: int, message: str, reason: str, used: int | None, limit: int | None, **more: Any
    ) -> Finding:
        return self.finding(level, loop, message, reason=reason, used=used, limit=limit, unit="rounds", **more)


DETECTOR = RoundBudget()
Limits = RoundBudget.Limits


def _rounds(*rounds: int, **more: object) -> list[dict[str, object]]:
    return [said("persona", f"argument {n}", round=number, **more) for n, number in enumerate(rounds)]


_SEVEN = started(maxRounds=7)
HEALTHY = [
    Example("six of seven rounds, three turns each", [_SEVEN, *_rounds(*(n // 3 for n in range(3, 21)))]),
    Example("turns without rounds", [said("persona", f"argument {n}") for n in range(60)]),
    Example("no agreement yet", _rounds(1, 2, 3, 4, convergence=0.85, consensus=0.79)),
]
STUCK = [
    Example("the last of seven rounds", [_SEVEN, *_rounds(*range(1, 9))], "halt", 6),
    Example("the last of seven rounds, once it is checked", [
        _SEVEN, *(
            turn for n in range(1, 9)
            for turn in (said("persona", f"view {n}", round=n), said("check", f"apart {n}", round=n, convergence=0.2))
        ),
    ], "halt", 13),
    Example("the hard cap, whatever was declared", [started(maxRounds=15), *_rounds(*range(1, 17))], "halt", 14),
    Example("the hard cap, with nothing declared", _rounds(*range(1, 17)), "halt", 14),
    Example("the round falls", _rounds(1, 2, 3, 1), "warn", 3),
    Example("the round of a deliberation falls", _rounds(1, 2, 3, 1), "halt", 3, {
        "detectors": {"BUDGET005": {"invariants_halt": 1}},
    }),
    Example("an agreement is a good stop", _rounds(1, 2, 3, 4, convergence=0.9), "info", 0),
    Example("four of five agree", [*_rounds(1, 2), said("check", "voted", round=3, consensus=0.8)], "info", 2),
]  # fmt: skip
