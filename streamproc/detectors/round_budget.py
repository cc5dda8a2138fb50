"""BUDGET005 rounds: a deliberation has run for too many rounds, or has reached agreement.

Sees: `round`, `convergence` and `consensus` of the turns of a deliberation. The last allowed round is a warning with
the action `force_synthesis`: finish in this round. A round beyond it halts. The limit is `maxRounds`, and never more
than 15. `evidence.reason` names the reason in the terms of the deliberation requirement: `hard_cap_15_rounds`,
`max_rounds`, `consensus`. Convergence above 0.85, or consensus of 80 percent, is a *good* reason to stop: it is one
notification and never a halt. Rounds only rise: a falling round is a fault of the run and is reported once.

Why: agreement is reached within fifteen rounds or not at all, and every further round costs as much as a useful one.

False alarms: none if `round` counts rounds of a deliberation. A publisher that counts something else under this name
is halted at its sixteenth.

Tuning: declare `maxRounds` on `run.started` or in the policy: 5 to 15 are usual, 7 in the preset `deliberation`, and
less is accepted. A policy that sets more than 15, or turns this detector off, is refused; on `run.started`, a higher
value is reported and 15 applies.

Reference: deliberation requirement, layer 3: round counter, hard cap, invariants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from streamproc.core import kind
from streamproc.core.decision import BUDGET_EXCEEDED, Evidence, Finding, Level
from streamproc.core.run_state import HASH
from streamproc.core.view import View
from streamproc.detectors.base import Example, said
from streamproc.detectors.breach import layer_of
from streamproc.model.wire import RunStarted

HARD_CAP: Final = 15  # no policy can lift it


@dataclass(frozen=True, slots=True)
class Limits:
    """When a deliberation has reached agreement, in percent; the limit itself is a budget (`maxRounds`)."""

    convergence_percent: int = 85  # above this, arguments are the same opinion in other words
    consensus_percent: int = 80  # four of five


class RoundBudget:
    """BUDGET005."""

    code = "BUDGET005"
    name = "rounds"
    budgets = ("maxRounds",)
    kinds = kind.ROUND | kind.STARTED

    def check(self, view: View, limits: Limits) -> tuple[Finding, ...]:
        if type(view.event) is RunStarted:
            declared = (view.event.budgets or {}).get("maxRounds", 0)
            limit = min(view.budgets.get("maxRounds", HARD_CAP), HARD_CAP)
            return (self._above_cap(declared, limit),) if declared > HARD_CAP else ()
        return (*self._counted(view), *self._agreed(view, limits))

    def _counted(self, view: View) -> Iterator[Finding]:
        if view.turn.round is None:
            return
        current, before = min(view.turn.round, HASH), view.round_before
        if current < before:
            message = f"The round fell from {before} to {current}; rounds must only rise."
            yield self._finding(Level.WARN, 2, message, "round_fell", current, before)
            return
        limit = min(view.budgets.get("maxRounds", HARD_CAP), HARD_CAP)
        if current > HARD_CAP:
            limit = HARD_CAP  # the graver of the two limits: a message names one
        capped = limit == HARD_CAP
        reason, layer = (
            ("hard_cap_15_rounds", "hard_cap") if capped else ("max_rounds", layer_of(view, "maxRounds").name)
        )
        if current > limit:
            message = f"Round {current} has started, but only {limit} rounds are allowed ({reason})."
            found = self._finding(Level.HALT, 0, message, reason, current, limit)
            found.evidence.limit_from = layer
            yield found
        elif current == limit:
            message = f"Round {current} is the last allowed round ({reason}); finish in this round."
            found = self._finding(Level.WARN, 0, message, reason, current, limit)
            found.action = "force_synthesis"
            found.evidence.limit_from = layer
            yield found

    def _agreed(self, view: View, limits: Limits) -> Iterator[Finding]:
        turn = view.turn
        convergence, consensus = turn.convergence or 0.0, turn.consensus or 0.0
        if convergence > limits.convergence_percent / 100:
            how = f"convergence {convergence:.2f}"
        elif consensus >= limits.consensus_percent / 100:
            how = f"consensus {consensus:.0%}"
        else:
            return
        message = f"The deliberation has reached agreement ({how}) and can stop."
        found = self._finding(Level.INFO, 1, message, "consensus", view.run.round or None, None)
        found.type = "notification"
        yield found

    def _above_cap(self, declared: int, limit: int) -> Finding:
        declared = min(declared, HASH)
        message = f"maxRounds {declared} is above the hard cap, so {HARD_CAP} applies; declare 5 to {HARD_CAP}."
        if limit < HARD_CAP:
            message = f"maxRounds {declared} is above the hard cap of {HARD_CAP}; the policy's limit, {limit}, applies."
        return self._finding(Level.WARN, 3, message, "hard_cap_15_rounds", declared, HARD_CAP)

    def _finding(
        self, level: Level, loop: int, message: str, reason: str, used: int | None, limit: int | None
    ) -> Finding:
        return Finding(
            code=self.code,
            level=level,
            loop=loop,
            message=message,
            evidence=Evidence(kind="rounds_budget", used=used, limit=limit, unit="rounds", reason=reason),
            reason=BUDGET_EXCEEDED,
            status="budget_exceeded",
        )


DETECTOR = RoundBudget()


def _rounds(*rounds: int, **more: object) -> list[dict[str, object]]:
    return [said("persona", f"argument {n}", round=number, **more) for n, number in enumerate(rounds)]


_SEVEN = {"type": "run.started", "budgets": {"maxRounds": 7}}

HEALTHY = [
    Example("six of seven rounds, three turns each", [_SEVEN, *_rounds(*(n // 3 for n in range(3, 21)))]),
    Example("turns without rounds", [said("persona", f"argument {n}") for n in range(60)]),
    Example("no agreement yet", _rounds(1, 2, 3, 4, convergence=0.85, consensus=0.79)),
]
STUCK = [
    Example("more rounds declared than the hard cap", [
        {"type": "run.started", "budgets": {"maxRounds": 20}}, *_rounds(1, 2),
    ], "warn", 0),
    Example("an eighth round where seven are allowed", [_SEVEN, *_rounds(*range(1, 9))], "halt", 7),
    Example("the hard cap, whatever was declared", [
        {"type": "run.started", "budgets": {"maxRounds": 15}}, *_rounds(*range(1, 17)),
    ], "halt", 15),
    Example("the hard cap, with nothing declared", _rounds(*range(1, 17)), "halt", 15),
    Example("the last round", [_SEVEN, *_rounds(*range(1, 8))], "warn", 6),
    Example("the round falls", _rounds(1, 2, 3, 1), "warn", 3),
    Example("an agreement is a good stop", _rounds(1, 2, 3, 4, convergence=0.9), "info", 0),
    Example("four of five agree", [*_rounds(1, 2), said("check", "voted", round=3, consensus=0.8)], "info", 2),
]  # fmt: skip
