"""OPERATOR001 operator_stop: a person has ordered this run to stop.

Sees: an `operator.stop` event of the run. The worker makes one, too, for every run of a user or tenant that was
killed, and for a run that was killed by `streamproc kill --run`.

Why: whatever the other detectors say, a person can stop a run, and the log holds who, when and why.

False alarms: none: it is an order. Where orders must be signed, one that is not is refused before it comes here.

Tuning: there is nothing to tune.

Reference: fleet orders and people: STOP with who, when and why; kill one run, all of a user or tenant.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import USER_STOP, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.detectors.base import Example, said
from streamproc.model.wire import OperatorStop


@dataclass(frozen=True, slots=True)
class Limits:
    """Nothing to set."""


class OperatorStopped:
    """OPERATOR001."""

    code = "OPERATOR001"
    name = "operator_stop"
    kinds = kind.COMMAND

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if type(event) is not OperatorStop:
            return None
        by, why = " ".join(event.by.split()), " ".join(event.reason.split())
        reason = f": {why}" if why else ""
        return Finding(
            code=self.code,
            level=Level.HALT,
            loop=0,
            message=f"Stopped by {by or 'an operator'}{reason}.",
            evidence=Evidence(kind=self.name, by=event.by or None, reason=event.reason or None),
            reason=USER_STOP,
            status="stopped",
        )


DETECTOR = OperatorStopped()

HEALTHY = [
    Example("nobody ordered anything", [said("agent", f"step {n}") for n in range(6)]),
    Example("a stop after the end is too late", [
        said("agent", "done"), {"type": "run.finished"}, {"type": "operator.stop", "by": "ada"},
    ]),
]  # fmt: skip
STUCK = [
    Example("a person stops it", [
        said("agent", "step 0"), said("agent", "step 1"),
        {"type": "operator.stop", "by": "ada", "reason": "wrong branch"}, said("agent", "step 2"),
    ], "halt", 1),
    Example("before its first turn", [{"type": "operator.stop"}], "halt", 0),
]  # fmt: skip
