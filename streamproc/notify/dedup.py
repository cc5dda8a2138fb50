"""Deduplication: a control event notifies once, and a series only with its first event until it gets more urgent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.model.newest import Newest
from streamproc.notify.triggers import subject_of

if TYPE_CHECKING:
    from streamproc.model.controls import ControlEvent
    from streamproc.model.notification import Urgency

IDS_MAX: Final = 20_000  # control events: some minutes of a fleet in which every run fails
SUBJECTS_MAX: Final = 20_000  # runs, fleet commands and shared accounts, for the same reason
SERIES_MAX: Final = 200  # of one subject


class _Series(NamedTuple):
    since_s: float
    urgency: Urgency
    held_back: int


def _batch_of(control: ControlEvent) -> str:
    """Return the tasks of a batch: another one is another matter."""
    return " ".join(control.evidence.tasks or ()) if control.evidence is not None else ""


class Dedup:
    """Remembers recent control events and series. Beyond its bounds it drops the oldest: an event may then notify
    twice, but none is lost."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._ids: Newest[str, None] = Newest(IDS_MAX)
        self._series: Newest[str, dict[tuple[str, str], _Series]] = Newest(SUBJECTS_MAX)
        self.same = 0
        """Number of control events that arrived again."""
        self.held_back = 0
        """Number of control events held back because their series notified within the window."""

    def admit(self, control: ControlEvent, urgency: Urgency, now_s: float) -> int | None:
        """Return None to hold a control event back; else how many of its series were held back before it."""
        if control.id in self._ids:
            self.same += 1
            return None
        self._ids[control.id] = None
        subject = subject_of(control)
        series = self._series[subject] = self._series.get(subject, {})
        key = (control.code, control.task_id or _batch_of(control))
        known = series.get(key)
        if known is not None and now_s - known.since_s < self._window_s and urgency <= known.urgency:
            series[key] = known._replace(held_back=known.held_back + 1)
            self.held_back += 1
            return None
        series.pop(key, None)
        series[key] = _Series(now_s, urgency, 0)
        if len(series) > SERIES_MAX:
            del series[next(iter(series))]
        return known.held_back if known is not None else 0

    def reset(self, run_id: str) -> None:
        """Start new series for a run that was resumed."""
        self._series.pop(run_id, None)
