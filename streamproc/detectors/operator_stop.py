"""OPERATOR001 operator_stop: an operator has stopped this run.

Sees: an `operator.stop` event of the run. The worker also creates one for every run of a killed user or tenant, and
for a run killed with `streamproc kill RUN`.

Why: an operator can stop a run whatever the other detectors find, and the log records who, when and why. A finished
run is halted, too: an agent could end its run and start it again before the command arrives.

False alarms: none: it is a command. If commands must be signed, unsigned ones are refused before they get here.

Tuning: there is nothing to tune.

Reference: fleet commands and people: STOP with who, when and why; kill one run, all of a user or tenant.
"""

from __future__ import annotations

from streamproc.core.decision import USER_STOP
from streamproc.detectors.base import Detector, Example, Finding, Level, View, kind, said, steps
from streamproc.model.wire import OperatorStop


class OperatorStopped(Detector):
    code, name = "OPERATOR001", "operator_stop"
    kinds = kind.COMMAND
    evidence = "by", "reason"
    reason = USER_STOP
    status = "stopped"

    class Limits:
        """There are none."""

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if type(event) is not OperatorStop:
            return None
        by, why = " ".join(event.by.split()), " ".join(event.reason.split())
        reason = f": {why}" if why else ""
        message = f"Stopped by {by or 'an operator'}{reason}."
        return self.finding(Level.HALT, 0, message, by=event.by or None, reason=event.reason or None)


DETECTOR = OperatorStopped()
HEALTHY = [
    Example("no command at all", steps(6)),
    Example("a resume of a run that was not stopped", [said("agent", "step 0"), {"type": "operator.resume"}]),
]  # fmt: skip
STUCK = [
    Example("an operator stops the run", [
        said("agent", "step 0"), said("agent", "step 1"),
        {"type": "operator.stop", "by": "ada", "reason": "wrong branch"}, said("agent", "step 2"),
    ], "halt", 1),
    Example("a stop before the first turn", [{"type": "operator.stop"}], "halt", 0),
    Example("a stop after the run has finished: its id may be used again", [
        said("agent", "done"), {"type": "run.finished"}, {"type": "operator.stop", "by": "ada"},
    ], "halt", 0),
]  # fmt: skip
