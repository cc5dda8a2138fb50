"""Which runs are halted, according to the records read so far. Pure: no I/O, no clock.

Two topics report on a run: `control` each decision at once; `runs` the full latest status, slightly later, and
permanently. Each keeps the order of one run, but there is no order between the topics. So the listener keeps, for
each run, the broker's time of the newest record that it used; an older record changes nothing. A status "running"
written before the halt does not lift it, and a halt from before a resume does not return.

Records also say which event of the run they follow from, and where both do, that decides instead of the broker's time.
So a record that a worker sends late, after its partition has moved, changes nothing, and neither does a signed one that
was recorded and sent again.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from streamproc.errors import Halted
from streamproc.fleet.record_signing import LogPlace
from streamproc.model.controls import ControlEvent, read_control
from streamproc.model.raw_fields import read_time_ms

HALTED_MAX: Final = 1_000_000  # halted runs known by id: about 350 MB
DETAILED_MAX: Final = 20_000  # of these, those with their whole control event: about 1.5 KB each
RELEASED_MAX: Final = 100_000  # runs that are not halted, with the time of their newest record
IDS_MAX: Final = 100_000  # control ids; a restarted worker repeats what it sent in the second before its crash


class Halt(NamedTuple):
    """Why a run is halted: the control event as JSON (empty if evicted, see DETAILED_MAX), the detector's code, the
    broker's time of the record, the log time of the halt (0: not known), what the record follows from, and the
    `traceparent` in its header."""

    control: bytes
    code: str
    at_ms: int
    log_ms: int = 0
    place: LogPlace | None = None
    traceparent: str = ""


class StatusNews(NamedTuple):
    """The relevant part of a record of the `runs` topic. `halt` is None if the run is not halted."""

    run_id: str
    at_ms: int
    halt: Halt | None
    place: LogPlace | None = None

    def is_before(self, other: StatusNews) -> bool:
        """Return whether another status of the run follows from a later event."""
        return self.place is not None and other.place is not None and self.place.before(other.place)


class ControlNews(NamedTuple):
    """The relevant part of a record of the `control` topic."""

    run_id: str
    at_ms: int
    id: str
    halt: Halt | None
    resumes: bool
    place: LogPlace | None = None
    traceparent: str = ""


NEVER: Final = (-1, None)
NOTHING: Final = msgspec.Raw(b"null")


class _Status(msgspec.Struct):
    run_id: str
    status: str
    halt: msgspec.Raw = NOTHING
    at: str | None = None
    partition: int = -1
    offset: int = -1


class _Trigger(msgspec.Struct):
    partition: int | None = None
    offset: int | None = None


class _Control(msgspec.Struct):
    id: str
    type: str
    run_id: str
    severity: str
    code: str = ""
    at: str | None = None
    trigger: _Trigger | None = None


class _Code(msgspec.Struct):
    code: str = ""
    at: str | None = None


_status_decoder = msgspec.json.Decoder(_Status)
_control_decoder = msgspec.json.Decoder(_Control)
_code_decoder = msgspec.json.Decoder(_Code)


def read_status_news(value: bytes | None, at_ms: int, traceparent: str = "") -> StatusNews | None:
    """Read a record of the `runs` topic, with the `traceparent` in its header.

    None is a tombstone: the workers keep the status of the run no longer. A listener that knows of a halt keeps it, and
    one that starts later does not know of it.
    A run that was halted and then finished still counts as halted, so that no caller restarts it by accident.
    Raises `ValueError` (the base of msgspec's errors) for anything that is not a status.
    """
    if value is None:
        return None
    try:
        status = _status_decoder.decode(value)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    control = bytes(status.halt)
    if control == b"null":
        control = b""
    place = _place(status.partition, status.offset, status.at)
    if (status.status != "halted" and not control) or status.status == "running":
        return StatusNews(status.run_id, at_ms, None, place)
    why = _code_decoder.decode(control) if control else _Code()
    halt = Halt(control, why.code, at_ms, _log_ms(why.at), traceparent=traceparent)
    return StatusNews(status.run_id, at_ms, halt, place)


def read_control_news(value: bytes, at_ms: int, traceparent: str = "") -> ControlNews:
    """Read a record of the `control` topic with the `traceparent` in its header.

    Raises `ValueError` for anything that is not a control event.
    """
    try:
        control = _control_decoder.decode(value)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    command = control.type == "fleet.state"  # commands arrive on their own topic
    halt = None
    if control.severity == "halt" and not command:
        halt = Halt(value, control.code, at_ms, _log_ms(control.at), traceparent=traceparent)
    trigger = control.trigger
    place = None if trigger is None or command else _place(trigger.partition, trigger.offset, control.at)
    return ControlNews(control.run_id, at_ms, control.id, halt, control.type == "run.resumed", place, traceparent)


def _place(partition: int | None, offset: int | None, at: str | None) -> LogPlace | None:
    """Return what a record follows from, by its own words; the verifier replaces it by what was signed."""
    if partition is None or offset is None or min(partition, offset) < 0:
        return None
    return LogPlace(partition, offset, _log_ms(at))


def _log_ms(at: str | None) -> int:
    try:
        return read_time_ms(at) if at else 0
    except ValueError:
        return 0


class Halts:
    """The halted runs. Any thread may read `runs`; only one thread may change it."""

    def __init__(
        self, halted_max: int = HALTED_MAX, detailed_max: int = DETAILED_MAX, released_max: int = RELEASED_MAX
    ) -> None:
        self.runs: dict[str, Halt] = {}
        self.forgotten = 0
        """Halted runs that were evicted because `halted_max` others were halted after them."""
        self._halted_max = halted_max
        self._detailed_max = detailed_max
        self._released_max = released_max
        self._detailed: dict[str, None] = {}
        self._released: dict[str, tuple[int, LogPlace | None]] = {}
        self._ids: dict[str, None] = {}

    def status(self, news: StatusNews) -> bool:
        """Apply a status. Returns whether it halts a run that was running."""
        if news.halt is not None:
            return not self._is_old(news) and self._halt(news.run_id, news.halt._replace(place=news.place))
        # In the same millisecond, a halt is newer than the status before it, and a later status will follow.
        halt = self.runs.get(news.run_id)
        if not self._is_old(news) if halt is None else self._is_newer(news) and _may_release(halt.place, news.place):
            self._release(news)
        return False

    def control(self, news: ControlNews) -> bool:
        """Apply a control event for which `is_new` returned True. Returns whether it halts a run that was running."""
        if self._is_old(news):
            return False
        if news.halt is not None:
            return self._halt(news.run_id, news.halt._replace(place=news.place))
        if news.resumes and (news.place is None or self._is_newer(news)):
            self._release(news)
        return False

    def is_new(self, control_id: str) -> bool:
        """Return whether this control event arrives for the first time. At-least-once delivery repeats some."""
        if control_id in self._ids:
            return False
        self._ids[control_id] = None
        _evict(self._ids, IDS_MAX)
        return True

    def _used(self, run_id: str) -> tuple[int, LogPlace | None]:
        """Return the broker's time and the place of the newest record that was used for a run."""
        halt = self.runs.get(run_id)
        return self._released.get(run_id, NEVER) if halt is None else (halt.at_ms, halt.place)

    def _is_old(self, news: StatusNews | ControlNews) -> bool:
        at_ms, place = self._used(news.run_id)
        if news.halt is not None and news.run_id not in self.runs and not _may_release(news.place, place):
            return False
        return news.at_ms < at_ms if news.place is None or place is None else news.place.before(place)

    def _is_newer(self, news: StatusNews | ControlNews) -> bool:
        at_ms, place = self._used(news.run_id)
        return news.at_ms > at_ms if news.place is None or place is None else place.before(news.place)

    def _halt(self, run_id: str, halt: Halt) -> bool:
        known = self.runs.get(run_id)
        if known is not None and not halt.control:
            halt = known._replace(
                at_ms=halt.at_ms, place=halt.place
            )  # a status without a reason must not remove the known one
        elif known is not None and not halt.traceparent and (known.log_ms, known.code) == (halt.log_ms, halt.code):
            halt = halt._replace(traceparent=known.traceparent)  # a later status lacks it
        self._released.pop(run_id, None)
        self.runs[run_id] = halt
        self.forgotten += len(_evict(self.runs, self._halted_max))
        if halt.control:
            self._detailed[run_id] = None
            for oldest in _evict(self._detailed, self._detailed_max):
                if oldest in self.runs:
                    self.runs[oldest] = self.runs[oldest]._replace(control=b"")
        return known is None

    def _release(self, news: StatusNews | ControlNews) -> None:
        run_id = news.run_id
        self.runs.pop(run_id, None)
        self._detailed.pop(run_id, None)
        self._released.pop(run_id, None)  # reinserted below as the newest
        self._released[run_id] = news.at_ms, news.place
        _evict(self._released, self._released_max)


def _may_release(halted: LogPlace | None, released: LogPlace | None) -> bool:
    """Return whether a status may release a run that was halted there: not that of the same id in another partition.

    Anyone who may write turns can begin the id of a halted run there, where no worker knows the halt.
    """
    return halted is None or released is None or halted.partition == released.partition


def halted_error(run_id: str, halt: Halt | None) -> Halted:
    """Return `Halted`, with the control event if it is still known."""
    control = control_of(halt)
    if control is not None:
        return Halted(run_id, control)
    by = f" by {halt.code}" if halt is not None and halt.code else ""
    return Halted(run_id, None, f"it was halted earlier{by}; run `streamproc replay --run {run_id}` to see why")


def control_of(halt: Halt | None) -> ControlEvent | None:
    """Return the control event of a halt, if it is still known and readable."""
    if halt is None or not halt.control:
        return None
    try:
        return read_control(halt.control, halt.traceparent)
    except ValueError:  # from a newer version, with an unknown value: the run is halted all the same
        return None


def _evict(known: dict[str, Any], most: int) -> list[str]:
    """Evict the oldest entries: the excess plus a hundredth.

    Evicting one at a time would be slow: a dict scans past all its deleted first keys on each look-up of the first.
    """
    if len(known) <= most:
        return []
    oldest = list(islice(known, len(known) - most + most // 100))
    for key in oldest:
        del known[key]
    return oldest
