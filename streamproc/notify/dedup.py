"""What was told already: each control event once, and of a series only the first, until it gets worse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.notify.triggers import subject_of

if TYPE_CHECKING:
    from streamproc.model.controls import ControlEvent
    from streamproc.model.notification import Urgency

IDS_MAX: Final = 20_000  # control events: some minutes of a fleet in which everything goes wrong
RUNS_MAX: Final = 20_000  # with their codes and tasks, for the same reason
TASKS_MAX: Final = 200  # of one run, with their codes


class _Series(NamedTuple):
    since_s: float
    urgency: Urgency
    held_back: int


class Dedup:
    """Bounded: past their numbers the oldest are forgotten, and then something may be told twice, never not at all."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._ids: dict[str, None] = {}
        self._series: dict[str, dict[tuple[str, str], _Series]] = {}
        self.same = 0
        """Control events that came again."""
        self.held_back = 0
        """Others of a series that was told within the window; the next one says how many."""

    def admit(self, control: ControlEvent, urgency: Urgency, now_s: float) -> int | None:
        """How many of the same series were held back before this one is told; None where it is held back itself."""
        if control.id in self._ids:
            self.same += 1
            return None
        self._ids[control.id] = None
        if len(self._ids) > IDS_MAX:
            del self._ids[next(iter(self._ids))]
        subject = subject_of(control)
        codes = self._series.pop(subject, {})
        self._series[subject] = codes  # now the newest
        if len(self._series) > RUNS_MAX:
            del self._series[next(iter(self._series))]
        key = (control.code, control.task_id or "")
        known = codes.get(key)
        if known is not None and now_s - known.since_s < self._window_s and urgency <= known.urgency:
            codes[key] = known._replace(held_back=known.held_back + 1)
            self.held_back += 1
            return None
        codes.pop(key, None)
        codes[key] = _Series(now_s, urgency, 0)
        if len(codes) > TASKS_MAX:
            del codes[next(iter(codes))]
        return known.held_back if known is not None else 0

    def begin_again(self, run_id: str) -> None:
        """Somebody looked after this run: what happens to it now is news."""
        self._series.pop(run_id, None)
