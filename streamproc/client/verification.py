"""Which records of the topics `control` and `runs` a listener believes, if workers sign them.

A record must be signed by a worker, and its key must be the run that it is about. A record that releases a run which is
known to be halted needs more, if operators must sign their commands: the operator's signed `operator.resume`, which the
worker sends along. It must be about this run, and not older than the halt that it lifts.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import msgspec

from streamproc.errors import InvalidEvent, Problem
from streamproc.fleet.record_signing import RESUME_HEADER, SHOWN_MAX
from streamproc.model.wire import OperatorResume

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka import ConsumerRecord

    from streamproc.client.halts import ControlNews, Halt, StatusNews
    from streamproc.fleet.record_signing import LogPlace, RecordSigner
    from streamproc.fleet.signing import CommandSigner

log = logging.getLogger(__name__)

CLOCKS_MS: Final = 60_000  # an operator's clock may be behind the broker's by this much
SHOWN_EVERY_S: Final = 60.0
NO_RESUME: Final = Problem(
    RESUME_HEADER, "it releases a halted run without an operator's signed resume", "resume the run: `streamproc resume`"
)
OLD_RESUME: Final = Problem(
    RESUME_HEADER,
    "the operator's resume is older than the halt",
    "if you have just resumed the run: synchronise your clock, `streamproc kill --run` it, and resume it again",
)

_read_resume: Final = msgspec.json.Decoder(OperatorResume).decode


class RecordVerifier:
    """Verifies records. `refused` counts those that were not believed."""

    def __init__(self, records: RecordSigner, commands: CommandSigner) -> None:
        self.required = records.required
        """Whether records must be signed; if not, all are believed, and the methods must not be called."""
        self.refused = 0
        self._show_at_s = 0.0
        self._records = records
        self._commands = commands

    def status(
        self, record: ConsumerRecord[bytes, bytes], news: StatusNews, halts: Iterable[Halt]
    ) -> StatusNews | None:
        """Return a status with its place in the log; None if it is not believed. `halts` are the run's known ones."""
        place = self._place("runs", record, news.run_id, halts if news.halt is None else ())
        return None if place is None else news._replace(place=place)

    def control(
        self, record: ConsumerRecord[bytes, bytes], news: ControlNews, halts: Iterable[Halt]
    ) -> ControlNews | None:
        """Return a control event with its place in the log; None if it is not believed."""
        place = self._place("control", record, news.run_id, halts if news.resumes else ())
        return None if place is None else news._replace(place=place)

    def _place(
        self, role: str, record: ConsumerRecord[bytes, bytes], run_id: str, lifted: Iterable[Halt]
    ) -> LogPlace | None:
        try:
            place = self._records.check_about(role, record, run_id)
            if self._commands.required and (halts := tuple(lifted)):
                self._check_resume(record, run_id, halts)
        except InvalidEvent as problem:
            self.refused += 1
            if time.monotonic() >= self._show_at_s:
                self._show_at_s = time.monotonic() + SHOWN_EVERY_S
                where = f"{record.topic}[{record.partition}]@{record.offset}, run {run_id[:64]!r}"
                log.warning("ignored an unverified record, %s (%d so far): %s", where, self.refused, problem)
            return None
        return place

    def _check_resume(self, record: ConsumerRecord[bytes, bytes], run_id: str, halts: Iterable[Halt]) -> None:
        found = [value for name, value in record.headers if name == RESUME_HEADER]
        if len(found) != 1:
            raise InvalidEvent((NO_RESUME,))
        try:
            event = _read_resume(found[0])
        except (ValueError, RecursionError) as problem:
            raise InvalidEvent((Problem(RESUME_HEADER, str(problem)[:SHOWN_MAX], NO_RESUME.remedy),)) from None
        if event.run_id != run_id:
            raise InvalidEvent((Problem(RESUME_HEADER, f"it resumes {event.run_id[:64]!r}", NO_RESUME.remedy),))
        self._commands.check_author(event)
        if any((event.at or 0) + CLOCKS_MS < (halt.log_ms or halt.at_ms) for halt in halts):
            raise InvalidEvent((OLD_RESUME,))
