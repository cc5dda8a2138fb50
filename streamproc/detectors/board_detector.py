"""What the detectors of the board share: findings about tasks, refused moves, and the decisions of people."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

from streamproc.core.board.change import BoardChange
from streamproc.core.board.owners import owner_of
from streamproc.core.board.state import Task
from streamproc.core.decision import STALLED
from streamproc.detectors.base import Detector, Finding, Level, View, actor, kind, level
from streamproc.model.wire import Event

# The evidence of moves that are refused, and of decisions that let them go.
OF_MOVES: Final[tuple[str, ...]] = (
    "from_state", "to_state", "last_valid", "guard", "missing", "attempts", "agent", "module", "by", "reason",
)  # fmt: skip
CAUSE: Final = "a root cause or a person's approval"


class BoardDetector(Detector):
    """A detector of events of the board."""

    kinds = kind.BOARD

    def task_finding(
        self, view: View, message: str, level: Level = Level.WARN, number: int = 0, **more: Any
    ) -> Finding:
        """Return a finding about a task that leaves the run alone, unless the level is another. `number` tells several
        of one event apart; `more` are arguments of `finding`. The board tracks what was reported."""
        step = view.board_change
        assert step is not None
        about: dict[str, Any] = {
            "task": step.task.id if step.task is not None else "",
            "status": more.get("task_status", ""),
            "remembered": True,
        }
        return self.finding(level, (step.board.events << 8) + number, message, **about | more)

    def refusal(self, view: View, message: str, **more: Any) -> Finding:
        """Return a finding for a refused move, with the move as evidence."""
        step, event = view.board_change, view.event
        assert step is not None
        assert step.task is not None
        config, known = step.config, {"missing": list(step.missing) or None}
        return self.task_finding(
            view, message, type="transition.blocked", halt_reason=STALLED, **known | more,
            from_state=config.name(step.source) or None,
            to_state=config.name(step.target) or getattr(event, "to", "") or None,
            last_valid=config.name(step.task.state) or None,
            guard=step.guard or None,
            attempts=step.attempts or None,
            agent=actor(event) or owner_of(step.board, step.tag(step.task.id)) or None,
            module=module_of(event, step.task) or None,
        )  # fmt: skip

    def override(self, view: View) -> Finding | None:
        """Return a record of a person's decision that overrode this detector: who decided what, and why."""
        step, event = view.board_change, view.event
        if step is None or step.task is None:
            return None
        what = next((what for overridden, what in step.overridden if overridden == self.code), None)
        if what is None:
            return None
        by, reason = getattr(event, "approved_by", ""), getattr(event, "reason", "")
        decision = getattr(event, "decision", "") or "approved"
        why = f": {reason}" if reason else ""
        message = f"{by} decided about {step.task.id} ({decision}), which overrides {self.code}{why}."
        return self.task_finding(
            view, message, Level.INFO, 255, type="decision.recorded", halt_reason=STALLED,
            by=by,
            reason=reason or None,
            guard=what or None,
            to_state=step.to or None,
            last_valid=step.config.name(step.task.state) or None,
            agent=owner_of(step.board, step.tag(step.task.id)) or None,
        )  # fmt: skip

    def still_parked(self, view: View, required: str) -> Finding | None:
        """Return a finding for a task that tries to leave the state this detector forced it into without `required`, or
        the record of the decision that lets it go."""
        step = view.board_change
        if step is None or step.refused != self.code or step.task is None:
            return self.override(view)
        state = step.config.name(step.task.state)
        message = f"{step.task.id} stays in {state} until {required} is recorded."
        return self.refusal(view, message, action="ask_human", missing=[required])


class GuardDetector(BoardDetector):
    """A detector of moves that the board refuses: it refuses each attempt, and asks a person at a later one."""

    evidence: tuple[str, ...] = OF_MOVES

    def check(self, view: View, limits: Any) -> Finding | None:
        step, asks = view.board_change, self.asks_at(limits)
        if step is None or step.task is None or step.refused != self.code:
            return self.override(view)
        problem = self.problem(view, step, step.task)
        if step.attempts == asks > 1:
            message = f"{problem}, at attempt {step.attempts}; {self.advice(view, step.task)}."
            return self.refusal(view, message, action="ask_human")
        again = ", again" if step.attempts > 1 else ""
        return self.refusal(view, f"{problem}{again}; its state is {step.config.name(step.task.state)}.")

    def asks_at(self, limits: Any) -> int:
        """Return the attempt at which a person is asked; 1: never."""
        return 1

    @abstractmethod
    def problem(self, view: View, step: BoardChange, task: Task) -> str:
        """Return what was refused and why, as the beginning of a sentence."""

    def advice(self, view: View, task: Task) -> str:
        """Return what a person should do about the task."""
        return "a person should look at it"


def module_of(event: Event, task: Task) -> str:
    """Return the module that an event names, or else that of its task; empty: none is known."""
    return getattr(event, "module", "") or task.module_name


def level_at(count: int, warn: int, halt: int) -> Level | None:
    """Return the level that a count has reached with this event."""
    return level(count, warn, halt) if count in (warn, halt) else None


def owner(view: View, task: str) -> str | None:
    """Return the agent that owns a task on the board, or else the one that caused the event."""
    step = view.board_change
    known = owner_of(step.board, step.tag(task)) if step is not None else ""
    return known or actor(view.event)
