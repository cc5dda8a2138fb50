"""Which tasks of runs have ended while their runs go on, according to the records read so far. Pure: no I/O, no clock.

A decision on the topic `control` ends a task at once (`task.ended`, `task.escalated`). The status of the run on the
topic `runs` names the tasks that have ended and were not resumed; it is the whole truth, a little later. Each record
says which event of the run it follows from: an older one changes nothing. A resume of the run resumes its tasks.

As with halts, all of this is kept for each partition of the turns topic: a stranger of the same name in another
partition resumes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from streamproc.errors import TaskEnded
from streamproc.fleet.record_signing import LogPlace
from streamproc.model.controls import ControlEvent, read_control
from streamproc.model.newest import Newest

RUNS_MAX: Final = 100_000  # runs with tasks that have ended, or were resumed; past it, the oldest are forgotten
STATUSES: Final = frozenset({"blocked", "stalled", "escalated", "budget_exceeded"})


class EndOfTask(NamedTuple):
    """How a task has ended: the agent that owned it, the code of the rule, and the control event as JSON, if known."""

    task: str
    agent: str
    code: str
    control: bytes = b""


class _Ends(NamedTuple):
    place: LogPlace | None  # what the newest record follows from
    tasks: dict[str, EndOfTask]


class TaskEnds:
    """The tasks that have ended. Any thread may read; only one thread may change it."""

    def __init__(self) -> None:
        self._runs: Newest[str, dict[int, _Ends]] = Newest(RUNS_MAX)  # by run and partition

    def end(self, run_id: str, place: LogPlace | None, end: EndOfTask) -> bool:
        """Apply a decision that ends a task. Returns whether the end is news."""
        known = self._of(run_id, place)
        if _is_before(place, known.place):
            return False
        self._put(run_id, place, known.tasks | {end.task: end})
        return end.task not in known.tasks

    def status(self, run_id: str, place: LogPlace | None, ended: Iterable[EndOfTask]) -> bool:
        """Apply a status, which names all tasks of the run that have ended. Returns whether one of them is news."""
        tasks = {end.task: end for end in ended}
        if not tasks and run_id not in self._runs:
            return False  # as most statuses of a fleet
        known = self._of(run_id, place)
        if _is_before(place, known.place):
            return False
        self._put(run_id, place, {task: known.tasks.get(task, end) for task, end in tasks.items()})
        return not tasks.keys() <= known.tasks.keys()

    def resume(self, run_id: str, place: LogPlace | None) -> None:
        """Apply a resume of the run; one that names no place, as of an early version, resumes all of its tasks."""
        if place is None:
            self._runs.pop(run_id, None)
        elif run_id in self._runs and not _is_before(place, self._of(run_id, place).place):
            self._put(run_id, place, {})

    def error(self, run_id: str, tasks: set[str], agents: set[str]) -> TaskEnded | None:
        """Return why work on one of these tasks, or of these agents, must stop; None if it may go on."""
        for ends in tuple(self._runs.get(run_id, {}).values()):
            for end in ends.tasks.values():
                if end.task in tasks or (end.agent and end.agent in agents):
                    return TaskEnded(run_id, end.task, _control_of(end), f"{end.code} has ended it earlier")
        return None

    def known(self, run_id: str) -> bool:
        """Return whether tasks of a run have ended."""
        return any(ends.tasks for ends in self._runs.get(run_id, {}).values())

    def _of(self, run_id: str, place: LogPlace | None) -> _Ends:
        return self._runs.get(run_id, {}).get(_partition(place), _NOTHING)

    def _put(self, run_id: str, place: LogPlace | None, tasks: dict[str, EndOfTask]) -> None:
        self._runs[run_id] = self._runs.get(run_id, {}) | {_partition(place): _Ends(place, tasks)}


_NOTHING: Final = _Ends(None, {})


def _partition(place: LogPlace | None) -> int:
    return -1 if place is None else place.partition


def _is_before(place: LogPlace | None, known: LogPlace | None) -> bool:
    """Return whether a record follows from an earlier event than a known one of the same partition."""
    return place is not None and known is not None and place.before(known)


def _control_of(end: EndOfTask) -> ControlEvent | None:
    try:
        return read_control(end.control) if end.control else None
    except ValueError:  # of a newer version
        return None
