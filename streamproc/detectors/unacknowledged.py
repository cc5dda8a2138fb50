"""OPERATOR002 unacknowledged: a halted run continues, and no one has acknowledged the halt.

Sees: turns after a halt of the run without a `halt.acknowledged`.

Why: a halt stops nothing by itself. An orchestrator that listens ends the run, or acknowledges that a person is
looking at it. If neither happens, the orchestrator does not listen, and a person has to know.

False alarms: an orchestrator that lets many agents finish their current work. Let it send `halt.acknowledged`, or
raise `turns`.

Tuning: `turns` counts turns since the first unacknowledged halt; 0 turns it off. If a turn is a whole agent session
and not one tool call, ten are enough, as in the presets `loop-safety` and `tickets`. It is reported once, until the
run is resumed.

Reference: the escalation levels: observe, warn, halt, escalate; an unacknowledged halt of a run that continues is
escalated. It is a `notification` and not a second halt, because a run is halted once.
"""

from __future__ import annotations

from streamproc.core.escalation import ESCALATED
from streamproc.core.marks import first_of
from streamproc.detectors.base import Detector, Example, Finding, Level, View, kind, steps
from streamproc.model.wire import Turn


class Unacknowledged(Detector):
    code, name = "OPERATOR002", "unacknowledged"
    kinds = kind.UNACKNOWLEDGED
    evidence = "count", "limit", "unit"
    status = "escalated"

    class Limits:
        """Turns after an unacknowledged halt."""

        turns: int = 100  # some minutes at one tool call a turn; far more than is in flight when a halt arrives

    def marks(self, limits: Limits) -> dict[str, int]:
        return {"unacknowledged_turns": first_of(limits.turns)}

    def check(self, view: View, limits: Limits) -> Finding | None:
        run = view.run
        if type(view.event) is not Turn or run.escalation.unacknowledged_halt < 0:
            return None
        turns = view.index - run.escalation.unacknowledged_halt
        if not 0 < limits.turns <= turns:
            return None
        run.escalation.unacknowledged_halt = ESCALATED
        code = run.escalation.halt_code.get()
        message = f"The run has taken {turns} turns since {code} halted it, without an acknowledgement."
        return self.finding(
            Level.WARN, 0, message, type="notification", action="ask_human",
            count=turns, unit="turns", limit=limits.turns,
        )  # fmt: skip


DETECTOR = Unacknowledged()
_STOP = {"type": "operator.stop", "by": "ada"}
HEALTHY = [
    Example("turns in flight arrive after the halt", [*steps(3), _STOP, *steps(60)[3:]]),
    Example("the halt is acknowledged", [
        *steps(3), _STOP, *steps(6)[3:], {"type": "halt.acknowledged", "by": "ada"}, *steps(130)[6:],
    ]),
]  # fmt: skip
STUCK = [
    Example("the orchestrator does not listen", [*steps(3), _STOP, *steps(120)[3:]], "warn", 103),
    Example("a run that starts although it was stopped before its first turn", [_STOP, *steps(110)], "warn", 100),
]
