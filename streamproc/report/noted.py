"""What happened in a run besides its turns, in words: births, compactions, what sent it on, how answers ended."""

from __future__ import annotations

from collections import deque
from typing import Final

from streamproc.errors import plural
from streamproc.model.formats import grouped
from streamproc.model.wire import (
    CUT_OFF,
    EMPTY,
    MALFORMED,
    SEVERITIES,
    ContextCompacted,
    Event,
    Issue,
    RunContinued,
    RunFinished,
    RunStarted,
    Turn,
)
from streamproc.report.model import EventShown

EVENTS_MAX: Final = 400  # of a run: the last ones
REASONS_MAX: Final = 1_000  # different reasons for which a run was sent on
ENDS: Final = {
    CUT_OFF: "the answer was cut off at a limit of tokens", EMPTY: "an empty answer", MALFORMED: "a malformed call",
}  # fmt: skip


class NotedEvents:
    """The events of one run besides its turns, the last ones in words."""

    def __init__(self) -> None:
        self.shown: deque[EventShown] = deque(maxlen=EVENTS_MAX)
        self.total = 0
        self._reasons: dict[int, int] = {}  # turn of the first time, by the hash of the reason

    def note(self, event: Event, turn: int, at_ms: int, place: str) -> None:
        """Note an event after so many turns; of a turn itself, its index."""
        words = self._words(event, turn)
        if words:
            self.add(words, event.type, turn, at_ms, place)

    def born(self, child: Event, turn: int, at_ms: int, place: str) -> None:
        """Note that the run has started another one."""
        self.add(f"started {child.run_id}", "child.born", turn, at_ms, place)

    def add(self, words: str, kind: str, turn: int, at_ms: int, place: str) -> None:
        """Note words about an event."""
        self.total += 1
        self.shown.append(EventShown(turn=turn, kind=kind, what=words, at=at_ms, place=place))

    def _words(self, event: Event, turn: int) -> str:
        if isinstance(event, Turn):
            return "; ".join(filter(None, (_ended(event.stop_reason), _findings(event.findings))))
        if isinstance(event, ContextCompacted):
            return _compacted(event)
        if isinstance(event, RunContinued):
            return self._continued(event, turn)
        if isinstance(event, RunStarted):
            return f"started by {event.parent_run_id}" if event.parent_run_id else ""
        if isinstance(event, RunFinished):
            return f"finished: {event.status}" if event.status else ""
        return ""

    def _continued(self, event: RunContinued, turn: int) -> str:
        words = f"sent on by {event.by}" if event.by else "sent on"
        if event.reason is None:
            return words
        if event.reason.norm in self._reasons:
            return f"{words}, for the same reason as after turn {self._reasons[event.reason.norm]}"
        if len(self._reasons) < REASONS_MAX:
            self._reasons[event.reason.norm] = turn
        return f"{words}, for a new reason"


def _ended(stop_reason: str) -> str:
    return ENDS.get(stop_reason, f"the answer ended: {stop_reason}") if stop_reason else ""


def _findings(findings: tuple[Issue, ...] | None) -> str:
    if findings is None:
        return ""
    worst = max((one.severity for one in findings), default=-1)
    return plural(len(findings), "open finding") + (f", the worst {SEVERITIES[worst]}" if worst >= 0 else "")


def _compacted(event: ContextCompacted) -> str:
    trigger = f" ({event.trigger})" if event.trigger else ""
    sizes = [grouped(one) for one in (event.before_tokens, event.after_tokens) if one]
    if not sizes:
        return f"the context was compacted{trigger}"
    return f"the context was compacted{trigger}: {' → '.join(sizes)} tokens"
