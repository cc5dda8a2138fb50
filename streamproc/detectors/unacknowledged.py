"""OPERATOR002 unacknowledged: a run was halted, goes on, and nobody says that they take care of it.

Sees: turns, and time, after a halt of the run that no `halt.acknowledged` has answered. Where the log has no times,
turns alone say little about how long an orchestrator had to obey, so many more of them are needed.

Why: a halt stops nothing by itself. An orchestrator that obeys ends the run, or tells that somebody looks at it;
where neither happens, nobody listens, and a person has to know.

False alarms: an orchestrator that lets many agents finish what they have in hand. Let it send `halt.acknowledged`, or
raise the limits.

Tuning: `turns` counts turns and `after_ms` log time since the first halt that was not acknowledged, and both must be
reached; `turns_without_times` is for logs without times. 0 turns each off. It is told once, until the run is resumed.

Reference: the escalation ladder: observe, warn, halt, escalate; an unacknowledged halt while the run goes on is
escalated. It is told as a `notification` and not as a second halt: a run is halted once.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core.decision import STALLED, Evidence, Finding, Level
from streamproc.core.view import Kind, View
from streamproc.detectors.base import Example, said
from streamproc.wire import Turn


@dataclass(frozen=True, slots=True)
class Limits:
    """Turns after a halt that nobody has acknowledged."""

    turns: int = 10  # a team that obeys has a turn of each member in flight when it hears of a halt
    after_ms: int = 60_000  # who listens has heard within a second; what was in flight is mostly over in a minute
    turns_without_times: int = 200  # nobody's turns in flight


class Unacknowledged:
    """OPERATOR002."""

    code = "OPERATOR002"
    name = "unacknowledged"
    kinds = Kind.ORDER

    def check(self, view: View, limits: Limits) -> Finding | None:
        run = view.run
        if type(view.event) is not Turn or run.unheeded < 0:
            return None
        turns, timed = view.index - run.unheeded, run.unheeded_ms > 0
        limit = limits.turns if timed else limits.turns_without_times
        if not 0 < limit <= turns or (timed and run.at_ms - run.unheeded_ms < limits.after_ms):
            return None
        return Finding(
            code=self.code,
            level=Level.WARN,
            loop=0,
            message=f"The run was halted by {run.halt_code} and has taken {turns} turns since; nobody acknowledged it.",
            evidence=Evidence(kind=self.name, count=turns, unit="turns", limit=limit),
            reason=STALLED,
            status="escalated",
            type="notification",
            action="ask_human",
        )


DETECTOR = Unacknowledged()

_STOP = {"type": "operator.stop", "by": "ada", "at": "2026-01-31T12:00:02Z"}


def _steps(first: int, last: int, seconds: int = 1) -> list[dict[str, object]]:
    """Turns with some seconds between them."""
    return [
        said("agent", f"step {n}", at=f"2026-01-31T12:{n * seconds // 60:02}:{n * seconds % 60:02}Z")
        for n in range(first, last)
    ]


HEALTHY = [
    Example("the run ends soon after its halt", [*_steps(0, 3), _STOP, *_steps(3, 9, 30)]),
    Example("many have something in hand", [*_steps(0, 3), _STOP, *_steps(3, 50)]),
    Example("somebody takes care of it", [
        *_steps(0, 3), _STOP, *_steps(3, 6), {"type": "halt.acknowledged", "by": "ada"}, *_steps(6, 40, 30),
    ]),
]  # fmt: skip
STUCK = [
    Example("nobody listens", [*_steps(0, 3), _STOP, *_steps(3, 40, 10)], "warn", 13),
    Example("nobody listens, and the log has no times", [
        said("agent", "step 0"), {"type": "operator.stop"}, *(said("agent", f"step {n}") for n in range(1, 250)),
    ], "warn", 201),
]  # fmt: skip
