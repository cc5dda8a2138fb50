"""What people can command: what each command needs and does, the words for it, and what a resume grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streamproc.model.fleet_command import FLEET, MEMBER, Status

RUN: Final = frozenset({"run"})
MANY: Final = frozenset({"user", "tenant", "session", MEMBER})
WHOLE: Final = frozenset({FLEET})


@dataclass(frozen=True, slots=True)
class VerbRule:
    """What a command needs and does. `title`, `short` (of a row's button) and `what` are for people."""

    title: str
    what: str
    parts: frozenset[str]
    """The kinds of scope that it can have."""
    status: Status | None = None
    """Of the command; None: an event of its run, of type `event`."""
    event: str = ""
    releases: bool = False
    """Whether it is right only for those who see all that stands now: work may go on after it."""
    counted: bool = False
    """Whether a person types in the number of runs that it hits."""
    short: str = ""
    needs: str = ""
    """The status of the runs that it is for; empty: any."""
    verdict: str = ""
    """Of feedback about a halt, which needs no reason."""

    def refusal(self, status: str) -> str:
        """Return why it is not for a run with this status; empty if it is, or if no worker knows the run."""
        if not self.needs or status in ("", self.needs):
            return ""
        return f"This run is {status}: {self.short.lower()} is for a {self.needs} one."


RULES: Final[Mapping[str, VerbRule]] = {
    "halt": VerbRule(
        "Halt this run", "A worker halts the run, and guards cancel its work.", RUN, "STOP", short="Halt",
        needs="running",
    ),
    "resume": VerbRule(
        "Resume this run", "The run may go on, on probation: the next sign of a loop halts it for good.", RUN,
        event="operator.resume", releases=True, short="Resume", needs="halted",
    ),
    "acknowledge": VerbRule(
        "Acknowledge the halt", "The halt is being handled: it is not escalated. Nothing else changes.", RUN,
        event="halt.acknowledged", releases=True, short="Acknowledge", needs="halted",
    ),
    "right": VerbRule(
        "This halt was right", "Stored with the run, for `backtest` to count. Nothing else changes.", RUN,
        event="feedback", short="Right", needs="halted", verdict="right",
    ),
    "false-alarm": VerbRule(
        "This halt was a false alarm", "Stored with the run, for `backtest` to count. The run stays halted.", RUN,
        event="feedback", short="False alarm", needs="halted", verdict="false-alarm",
    ),
    "kill": VerbRule(
        "Halt these runs, and future ones", "Workers halt these runs, and every later one, until it is cleared.", MANY,
        "STOP", counted=True,
    ),
    "stop": VerbRule(
        "Stop the fleet", "Every guard cancels its work now, and no work starts until the fleet is cleared.", WHOLE,
        "STOP", counted=True,
    ),
    "pause": VerbRule(
        "Pause the fleet", "Work in progress finishes, and no work starts until the fleet is cleared.", WHOLE, "PAUSE"
    ),
    "clear": VerbRule(
        "Clear: work may start again", "Work may start again. Halted runs stay halted.", WHOLE | MANY, "CLEAR",
        releases=True,
    ),
}  # fmt: skip

GRANTS: Final[Mapping[str, str]] = {
    "turns": "additional turns", "iterations": "additional iterations", "tokens": "additional tokens of each task",
    "rounds": "additional rounds", "cost": "additional cost in USD",
}  # fmt: skip
