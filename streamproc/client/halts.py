"""Which runs are halted, according to the records read so far. Pure: no I/O, no clock.

Two topics report on a run: `control` each decision at once; `runs` the full latest status, slightly later, and
permanently. Each keeps the order of one run, but there is no order between the topics. So the listener keeps, for
each run, the broker's time of the newest record that it used; an older record changes nothing. A status "running"
written before the halt does not lift it, and a halt from before a resume does not return.

Records also say which event of the run they follow from, and where both do, that decides instead of the broker's time.
So a record that a worker sends late, after its partition has moved, changes nothing, and neither does a signed one that
was recorded and sent again.

All of this is kept for each partition of the turns topic: a run is halted while any partition says so, and what follows
from one partition releases what that partition has halted, and nothing else. A run has one home (`kafka.partitioning`);
one that was begun elsewhere, by mistake or to evade a halt, is a stranger of the same name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

from streamproc.client.halt_records import NOWHERE, ControlNews, Halt, StatusNews
from streamproc.client.task_ends import TaskEnds
from streamproc.errors import Halted
from streamproc.fleet.record_signing import LogPlace
from streamproc.model.controls import ControlEvent, read_control

K = TypeVar("K", bound="Hashable")

HALTED_MAX: Final = 1_000_000  # halted runs known by id: about 350 MB
DETAILED_MAX: Final = 20_000  # of these, those with their whole control event: about 1.5 KB each
RELEASED_MAX: Final = 100_000  # runs that are not halted, with the time of their newest record
IDS_MAX: Final = 100_000  # control ids; a restarted worker repeats what it sent in the second before its crash


NEVER: Final = (-1, None)


class Halts:
    """The halted runs. Any thread may read `runs`; only one thread may change it."""

    def __init__(
        self, halted_max: int = HALTED_MAX, detailed_max: int = DETAILED_MAX, released_max: int = RELEASED_MAX
    ) -> None:
        self.runs: dict[str, Halt] = {}
        """Why each run is halted; if several partitions say so, as the last of them has said."""
        self.forgotten = 0
        """Halted runs that were evicted because `halted_max` others were halted after them."""
        self.ends = TaskEnds()
        """The tasks that have ended while their runs go on."""
        self._halted_max = halted_max
        self._detailed_max = detailed_max
        self._released_max = released_max
        self._others: dict[str, dict[int, Halt]] = {}  # what else is said of runs in `runs`, by partition
        self._detailed: dict[str, None] = {}
        self._released: dict[tuple[str, int], tuple[int, LogPlace | None]] = {}
        self._ids: dict[str, None] = {}

    def status(self, news: StatusNews) -> bool:
        """Apply a status. Returns whether it halts a run that was running, or a task has ended."""
        ends = self.ends.status(news.run_id, news.place, news.ended)
        return self._apply(news) or ends

    def control(self, news: ControlNews) -> bool:
        """Apply a control event for which `is_new` returned True. Returns whether it halts a run that was running, or
        ends a task."""
        if news.end is not None:
            return self.ends.end(news.run_id, news.place, news.end)
        if news.releases:
            self.ends.resume(news.run_id, news.place)
        return self._apply(news) if news.halt is not None or news.releases else False

    def of(self, run_id: str) -> tuple[Halt, ...]:
        """Return all that is said of a halted run: one halt from each partition that says so."""
        halt = self.runs.get(run_id)
        return () if halt is None else (halt, *self._others.get(run_id, {}).values())

    def lifted_by(self, news: StatusNews | ControlNews) -> tuple[Halt, ...]:
        """Return which halts of its run a release lifts: that of its own partition, and a person's command, which
        stands until the workers have halted the run for it, or an operator resumes the run."""
        return lifted(news, self.of(news.run_id))

    def is_new(self, control_id: str) -> bool:
        """Return whether this control event arrives for the first time. At-least-once delivery repeats some."""
        if control_id in self._ids:
            return False
        self._ids[control_id] = None
        evict_oldest(self._ids, IDS_MAX)
        return True

    def _apply(self, news: StatusNews | ControlNews) -> bool:
        if news.halt is not None:
            return not self._is_old(news) and self._halt(news, news.halt._replace(place=news.place))
        lifted = self.lifted_by(news)
        if lifted:
            self._release(news, lifted)
        elif not self._is_old(news) and all(halt.partition != news.partition for halt in self.of(news.run_id)):
            self._note_release(news)
        return False

    def _is_old(self, news: StatusNews | ControlNews) -> bool:
        """Return whether a newer record of the same partition was used."""
        at_ms, place = self._used(news)
        return news.at_ms < at_ms if news.place is None or place is None else news.place.before(place)

    def _used(self, news: StatusNews | ControlNews) -> tuple[int, LogPlace | None]:
        """Return the broker's time and the place of the newest record that was used for a run and a partition."""
        for halt in self.of(news.run_id):
            if halt.partition == news.partition:
                return halt.at_ms, halt.place
        return self._released.get((news.run_id, news.partition), NEVER)

    def _halt(self, news: StatusNews | ControlNews, halt: Halt) -> bool:
        run_id = news.run_id
        latest = self.runs.get(run_id)
        known = next((one for one in self.of(run_id) if one.partition == halt.partition), None)
        if known is not None:
            halt = _continued(known, halt, first=isinstance(news, StatusNews))
        elif latest is not None and latest.partition == NOWHERE and latest.at_ms <= halt.at_ms:
            known = latest  # the workers have obeyed the command
        self._released.pop((run_id, halt.partition), None)
        if latest is not None and latest is not known:
            self._others.setdefault(run_id, {})[latest.partition] = latest
        if (others := self._others.get(run_id)) is not None:
            others.pop(halt.partition, None)
            if not others:
                del self._others[run_id]
        self.runs[run_id] = halt
        for gone in evict_oldest(self.runs, self._halted_max):
            self._others.pop(gone, None)
            self.forgotten += 1
        if halt.control:
            self._detailed[run_id] = None
            for oldest in evict_oldest(self._detailed, self._detailed_max):
                if oldest in self.runs:
                    self.runs[oldest] = self.runs[oldest]._replace(control=b"")
        return latest is None

    def _release(self, news: StatusNews | ControlNews, lifted: tuple[Halt, ...]) -> None:
        run_id = news.run_id
        left = [halt for halt in self.of(run_id) if halt not in lifted]
        self._others.pop(run_id, None)
        if left:
            self.runs[run_id] = left[0]
            if left[1:]:
                self._others[run_id] = {halt.partition: halt for halt in left[1:]}
        else:
            self.runs.pop(run_id, None)
            self._detailed.pop(run_id, None)
        self._note_release(news)

    def _note_release(self, news: StatusNews | ControlNews) -> None:
        """Remember the newest record by which a run is not halted. A command from before the resume, too, may come
        late."""
        seen: dict[int, tuple[int, LogPlace | None]] = {news.partition: (news.at_ms, news.place)}
        if news.resumed_ms:
            seen[NOWHERE] = news.resumed_ms, None
        for partition, said in seen.items():
            self._released.pop((news.run_id, partition), None)  # reinserted as the newest
            self._released[news.run_id, partition] = said
        evict_oldest(self._released, self._released_max)


def lifted(news: StatusNews | ControlNews, halts: Iterable[Halt]) -> tuple[Halt, ...]:
    """Return which halts of a run a record lifts, as `Halts.lifted_by` says."""
    return tuple(halt for halt in halts if news.releases and _lifts(news, halt))


def _lifts(news: StatusNews | ControlNews, halt: Halt) -> bool:
    """Return whether a release lifts a halt. In the same millisecond, a halt is newer than the status before it, and a
    later status will follow."""
    if halt.place is None:  # a person's command, which was appended to another topic
        return (news.resumed_ms if news.place is not None else news.at_ms) > halt.at_ms
    if news.place is None:  # of an early version
        return news.at_ms > halt.at_ms
    return halt.partition == news.partition and halt.place.before(news.place)


def _continued(known: Halt, halt: Halt, *, first: bool) -> Halt:
    """Return a later halt of a run that the same partition has halted already. A resume names the first one since the
    last resume. A status says which one that is (`first`); a decision may be another one."""
    if not halt.control:  # a status without a reason must not remove the known one
        return known._replace(at_ms=halt.at_ms, place=halt.place)
    if not halt.traceparent and (known.log_ms, known.code) == (halt.log_ms, halt.code):
        halt = halt._replace(traceparent=known.traceparent)  # a later status lacks it
    return halt if first and halt.id else halt._replace(id=known.id)


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
    except ValueError:  # from a newer version, with a field of another type: the run is halted all the same
        return None


def evict_oldest(known: dict[K, Any], most: int) -> list[K]:
    """Evict the oldest entries: the excess plus a hundredth.

    Evicting one at a time would be slow: a dict scans past all its deleted first keys on each look-up of the first.
    """
    if len(known) <= most:
        return []
    oldest = list(islice(known, len(known) - most + most // 100))
    for key in oldest:
        del known[key]
    return oldest
