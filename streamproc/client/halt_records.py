"""What the records of the topics `runs` and `control` say about halts, and about tasks that have ended."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from streamproc.client.task_ends import STATUSES, EndOfTask
from streamproc.fleet.record_signing import LogPlace
from streamproc.model.control_types import ABOUT_NO_RUN, ENDS_OF_TASKS, PROVIDER_STATE
from streamproc.model.provider_state import ProviderState
from streamproc.model.raw_fields import log_ms


class Halt(NamedTuple):
    """Why a run is halted: the control event as JSON (empty if evicted, see DETAILED_MAX), the detector's code, the
    time of the record (the broker's, or when it was signed), the log time of the halt (0: not known), what the record
    follows from, the `traceparent` in its header, and the id of the decision that halted the run first since it was
    resumed last."""

    control: bytes
    code: str
    at_ms: int
    log_ms: int = 0
    place: LogPlace | None = None
    traceparent: str = ""
    id: str = ""

    @property
    def partition(self) -> int:
        """The partition of the turns topic that says so; `NOWHERE` for a person's command, and for old records."""
        return NOWHERE if self.place is None else self.place.partition


class StatusNews(NamedTuple):
    """The relevant part of a record of the `runs` topic. `halt` is None if the run is not halted; `resumed_ms` is when
    an operator has resumed it last, if the record says so. `ended`: its tasks that have ended."""

    run_id: str
    at_ms: int
    halt: Halt | None
    place: LogPlace | None = None
    resumed_ms: int = 0
    ended: tuple[EndOfTask, ...] = ()

    @property
    def stops(self) -> bool:
        """Whether the run is halted, or a task of it has ended."""
        return self.halt is not None or bool(self.ended)

    @property
    def releases(self) -> bool:
        """Whether the run is not halted."""
        return self.halt is None

    @property
    def partition(self) -> int:
        """The partition of the turns topic that it follows from."""
        return NOWHERE if self.place is None else self.place.partition

    def is_before(self, other: StatusNews) -> bool:
        """Return whether another status of the run follows from a later event."""
        return self.place is not None and other.place is not None and self.place.before(other.place)


class ControlNews(NamedTuple):
    """The relevant part of a record of the `control` topic. `end` is set if it ends a task, `provider` if it is the
    state of a provider's breaker."""

    run_id: str
    at_ms: int
    id: str
    halt: Halt | None
    resumes: bool
    place: LogPlace | None = None
    traceparent: str = ""
    resumed_ms: int = 0
    end: EndOfTask | None = None
    provider: ProviderState | None = None

    @property
    def releases(self) -> bool:
        """Whether it follows from an operator's resume."""
        return self.resumes

    @property
    def partition(self) -> int:
        """The partition of the turns topic that it follows from."""
        return NOWHERE if self.place is None else self.place.partition


NOWHERE: Final = -1
NOTHING: Final = msgspec.Raw(b"null")


class _Status(msgspec.Struct):
    run_id: str
    status: str
    halt: msgspec.Raw = NOTHING
    ended_tasks: list[_Ended] = []
    at: str | None = None
    partition: int = -1
    offset: int = -1


class _Ended(msgspec.Struct):
    task_id: str
    code: str = ""
    agent: str = ""


class _Evidence(msgspec.Struct):
    agent: str | None = None


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
    task_id: str | None = None
    terminal_status: str | None = None
    evidence: _Evidence | None = None
    provider: ProviderState | None = None


class _Code(msgspec.Struct):
    code: str = ""
    at: str | None = None
    id: str = ""


_status_decoder = msgspec.json.Decoder(_Status)
_control_decoder = msgspec.json.Decoder(_Control)
_code_decoder = msgspec.json.Decoder(_Code)


def read_status_news(
    value: bytes | None, at_ms: int, traceparent: str = "", *, resumed: bool = False
) -> StatusNews | None:
    """Read a record of the `runs` topic, with the `traceparent` and the resume in its headers.

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
        return StatusNews(status.run_id, at_ms, None, place, at_ms if resumed else 0, _ended_of(status))
    why = _code_decoder.decode(control) if control else _Code()
    halt = Halt(control, why.code, at_ms, log_ms(why.at), traceparent=traceparent, id=why.id)
    return StatusNews(status.run_id, at_ms, halt, place, at_ms if resumed else 0, _ended_of(status))


def read_control_news(value: bytes, at_ms: int, traceparent: str = "") -> ControlNews:
    """Read a record of the `control` topic with the `traceparent` in its header.

    Raises `ValueError` for anything that is not a control event.
    """
    try:
        control = _control_decoder.decode(value)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    command = control.type in ABOUT_NO_RUN  # commands arrive on their own topic
    halt = None
    if control.severity == "halt" and not command:
        halt = Halt(value, control.code, at_ms, log_ms(control.at), traceparent=traceparent, id=control.id)
    trigger = control.trigger
    place = None if trigger is None or command else _place(trigger.partition, trigger.offset, control.at)
    resumes = control.type == "run.resumed"
    return ControlNews(
        control.run_id, at_ms, control.id, halt, resumes, place, traceparent, at_ms if resumes else 0,
        _end_of(control, value), control.provider if control.type == PROVIDER_STATE else None,
    )  # fmt: skip


def _ended_of(status: _Status) -> tuple[EndOfTask, ...]:
    return tuple([EndOfTask(end.task_id, end.agent, end.code) for end in status.ended_tasks])


def _end_of(control: _Control, value: bytes) -> EndOfTask | None:
    """Return the task that a control event ends; None: it ends none, or the whole run."""
    if control.type not in ENDS_OF_TASKS or control.severity == "halt" or control.terminal_status not in STATUSES:
        return None
    agent = control.evidence.agent if control.evidence is not None else None
    return EndOfTask(control.task_id, agent or "", control.code, value) if control.task_id else None


def _place(partition: int | None, offset: int | None, at: str | None) -> LogPlace | None:
    """Return what a record follows from, by its own words; the verifier replaces it by what was signed."""
    if partition is None or offset is None or min(partition, offset) < 0:
        return None
    return LogPlace(partition, offset, log_ms(at))
