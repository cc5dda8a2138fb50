"""OPERATOR003 operator_resume: an operator resumes a halted run.

Sees: an `operator.resume` event of a halted run.

Why: listeners need to know that the run may continue (`run.resumed`). The run is then half-open: its streaks start
from zero and its budgets have grown by the grant, but it is on probation for one iteration. During probation, a
warning from a detector that could halt becomes a halt, and every halt is final (`escalated`).

False alarms: a run that legitimately repeats itself once after a resume is halted. Resume it again, or lower
`probation_turns`.

Tuning: `probation_turns` counts turns. If the run is in a cycle, probation also lasts until one iteration is complete.
0: no probation.

Reference: fleet commands and people: resume a halted run with a grant, through a half-open state.
"""

from __future__ import annotations

from streamproc.core.decision import USER_STOP
from streamproc.core.resume import put_on_probation
from streamproc.detectors.base import Detector, Example, Finding, Level, View, kind, said, started, steps
from streamproc.model.wire import OperatorResume


class OperatorResumed(Detector):
    code, name = "OPERATOR003", "operator_resume"
    kinds = kind.COMMAND
    evidence = "by", "reason", "grant"
    reason = USER_STOP
    status = ""

    class Limits:
        """Turns on probation."""

        probation_turns: int = 3  # most streaks warn at the second repeat: a loop that goes on shows within three turns

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if type(event) is not OperatorResume:
            return None
        put_on_probation(view.run, limits.probation_turns)
        grant = event.grant or None
        granted = ", ".join(f"{name} +{added}" for name, added in (grant or {}).items())
        by, why = " ".join(event.by.split()), " ".join(event.reason.split())
        reason = f": {why}" if why else ""
        message = f"Resumed by {by or 'an operator'}{reason}{f' ({granted})' if granted else ''}."
        return self.finding(
            Level.INFO, 0, message, type="run.resumed", by=event.by or None, reason=event.reason or None, grant=grant
        )


DETECTOR = OperatorResumed()
_AGAIN = said("agent", "I will try again")
_RESUME = {"type": "operator.resume", "by": "ada", "reason": "one more try"}
HEALTHY = [
    Example("a run that was not halted", [said("agent", "step 0"), _RESUME, said("agent", "step 1")]),
    Example("no command at all", steps(6)),
]
STUCK = [
    Example("a halted run is resumed", [*[_AGAIN] * 3, _RESUME, said("agent", "now I read the docs")], "info", 2),
    Example("a halted run is resumed with a grant", [
        started(maxSteps=2), *steps(3), _RESUME | {"grant": {"turns": 2}}, said("agent", "step 3"),
    ], "info", 2),
]  # fmt: skip
