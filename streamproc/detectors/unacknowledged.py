"""OPERATOR002 unacknowledged: a run was halted, goes on, and nobody says that they take care of it.

Sees: turns after a halt of the run that no `halt.acknowledged` has answered.

Why: a halt stops nothing by itself. An orchestrator that obeys ends the run, or tells that somebody looks at it;
where neither happens, nobody listens, and a person has to know.

False alarms: an orchestrator that lets many agents finish what they have in hand. Let it send `halt.acknowledged`, or
raise `turns`.

Tuning: `turns` counts turns since the first halt that was not acknowledged; 0 turns it off. Where a turn is a whole
session of an agent, and not one tool call, ten are enough: so in the presets `loop-safety` and `tickets`. It is told
once, until the run is resumed.

Reference: the escalation ladder: observe, warn, halt, escalate; an unacknowledged halt while the run goes on is
escalated. It is told as a `notification` and not as a second halt: a run is halted once.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import STALLED, Evidence, Finding, Level
from streamproc.core.escalation import ESCALATED
from streamproc.core.view import View
from streamproc.detectors.base import Example, said
from streamproc.model.wire import Turn


@dataclass(frozen=True, slots=True)
class Limits:
    """Turns after a halt that nobody has acknowledged."""

    turns: int = 100  # some minutes at one tool call a turn; what is in flight when a halt is heard is far less


class Unacknowledged:
    """OPERATOR002."""

    code = "OPERATOR002"
    name = "unacknowledged"
    kinds = kind.COMMAND

    def check(self, view: View, limits: Limits) -> Finding | None:
        run = view.run
        if type(view.event) is not Turn or run.unacknowledged_halt < 0:
            return None
        turns = view.index - run.unacknowledged_halt
        if not 0 < limits.turns <= turns:
            return None
        run.unacknowledged_halt = ESCALATED
        return Finding(
            code=self.code,
            level=Level.WARN,
            loop=0,
            message=f"The run was halted by {run.halt_code} and has taken {turns} turns since; nobody acknowledged it.",
            evidence=Evidence(kind=self.name, count=turns, unit="turns", limit=limits.turns),
            reason=STALLED,
            status="escalated",
            type="notification",
            action="ask_human",
        )


DETECTOR = Unacknowledged()

_STOP = {"type": "operator.stop", "by": "ada"}


def _steps(first: int, last: int) -> list[dict[str, object]]:
    return [said("agent", f"step {n}") for n in range(first, last)]


HEALTHY = [
    Example("what was in flight comes in", [*_steps(0, 3), _STOP, *_steps(3, 60)]),
    Example("somebody takes care of it", [
        *_steps(0, 3), _STOP, *_steps(3, 6), {"type": "halt.acknowledged", "by": "ada"}, *_steps(6, 130),
    ]),
]  # fmt: skip
STUCK = [
    Example("nobody listens", [*_steps(0, 3), _STOP, *_steps(3, 120)], "warn", 103),
    Example("stopped before its first turn, it begins all the same", [_STOP, *_steps(0, 110)], "warn", 100),
]
