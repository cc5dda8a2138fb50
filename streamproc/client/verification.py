"""Which records of the topics `control` and `runs` a listener believes, if workers sign them.

A record must be signed by a worker, and its key must be the run that it is about. A record that releases a run which is
known to be halted needs more, if operators must sign their commands: the operator's signed `operator.resume`, which the
worker sends along. It must be about this run, not older than the halt, and name the decision that it lifts: an id is
made of the log, so a run whose state was lost may be halted by the same one again. A command to stop the run, which the
workers have not obeyed yet, has no decision of theirs to name: a resume lifts it if it was issued later.

Nothing here depends on when or where the broker has stored a record: that is different for a copy of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec
from aiokafka import ConsumerRecord

from streamproc.client.halt_records import ControlNews, Halt, StatusNews
from streamproc.client.halts import evict_oldest, lifted
from streamproc.errors import InvalidEvent, Problem
from streamproc.fleet.record_signing import RESUME_HEADER, SHOWN_MAX, RecordSigner
from streamproc.fleet.signing import CommandSigner
from streamproc.model.wire import OperatorResume

log = logging.getLogger(__name__)

CLOCKS_MS: Final = 60_000  # an operator's clock may be behind the broker's by this much
SHOWN_EVERY_S: Final = 60.0
NO_RESUME: Final = Problem(
    RESUME_HEADER, "it releases a halted run without an operator's signed resume", "resume the run: `streamproc resume`"
)
OLD_RESUME: Final = Problem(
    RESUME_HEADER,
    "the operator's resume is older than the halt",
    "if you have just resumed the run: synchronise your clock, `streamproc kill RUN` it, and resume it again",
)

ANOTHER_HALT: Final = Problem(
    RESUME_HEADER, "the operator's resume names another halt", "look at why the run is halted now, and resume it again"
)
USED_RESUME: Final = Problem(
    RESUME_HEADER, "the operator's resume has lifted another halt before", "resume the run again: `streamproc resume`"
)
RESUMES_MAX: Final = 100_000  # ids that are remembered

N = TypeVar("N", "ControlNews", "StatusNews")

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
        self._used: dict[str, frozenset[str]] = {}  # the halts without an id that each resume, by its id, has lifted
        self._noted: dict[str, None] = {}  # the ids of the resumes that were seen

    def is_new_resume(self, record: ConsumerRecord[bytes, bytes]) -> bool:
        """Return whether a record has a resume that was not seen yet. What is signed is not checked."""
        try:
            return self._commands.required and _resume_in(record).event_id not in self._noted
        except InvalidEvent:
            return False

    def verified(self, role: str, record: ConsumerRecord[bytes, bytes], news: N, halts: Iterable[Halt]) -> N | None:
        """Return what a record of `control` or `runs` says, with its place in the log; None if it is not believed.

        `halts` are all that are known of the run.
        """
        try:
            place = self._records.check_about(role, record, news.run_id)
            halt = None if news.halt is None else news.halt._replace(at_ms=place.signed_ms)
            # The broker's time is not what was signed: a copy that is sent again has a later one.
            news = news._replace(place=place, at_ms=place.signed_ms, halt=halt)
            if self._commands.required and news.releases:
                news = self._released(role, record, news, halts)
        except InvalidEvent as problem:
            self.refused += 1
            if time.monotonic() >= self._show_at_s:
                self._show_at_s = time.monotonic() + SHOWN_EVERY_S
                where = f"{record.topic}[{record.partition}]@{record.offset}, run {news.run_id[:64]!r}"
                log.warning("ignored an unverified record, %s (%d so far): %s", where, self.refused, problem)
            return None
        return news

    def _released(self, role: str, record: ConsumerRecord[bytes, bytes], news: N, halts: Iterable[Halt]) -> N:
        """Return what a release says, with the time of its operator's resume, which must be valid if it lifts a halt.

        Workers do not sign that header: a status that lifts nothing is believed without it.
        """
        try:
            event = self._resume_of(record, news.run_id)
        except InvalidEvent:
            news = news._replace(resumed_ms=0)
            if role == "control" or lifted(news, halts):
                raise
            return news
        news = news._replace(resumed_ms=event.at or 0)
        if placed := [halt for halt in lifted(news, halts) if halt.place is not None]:
            self._check_lifts(event, placed)
        if news.at_ms >= news.resumed_ms:  # an older status may carry it only if it was added
            self._noted[event.event_id] = None
            evict_oldest(self._noted, RESUMES_MAX)
        return news

    def _resume_of(self, record: ConsumerRecord[bytes, bytes], run_id: str) -> OperatorResume:
        event = _resume_in(record)
        if event.run_id != run_id:
            raise InvalidEvent((Problem(RESUME_HEADER, f"it resumes {event.run_id[:64]!r}", NO_RESUME.remedy),))
        self._commands.check_author(event)
        return event

    def _check_lifts(self, event: OperatorResume, halts: Sequence[Halt]) -> None:
        """Check that a resume lifts these halts, of which workers have published decisions."""
        for halt in halts:
            if event.halt and halt.id and event.halt != halt.id:
                raise InvalidEvent((ANOTHER_HALT,))
            if (event.at or 0) + CLOCKS_MS < (halt.log_ms or halt.at_ms):
                raise InvalidEvent((OLD_RESUME,))
        unnamed = frozenset(f"{halt.partition}@{halt.log_ms or halt.at_ms}" for halt in halts if halt.id != event.halt)
        if not unnamed <= self._used.setdefault(event.event_id, unnamed):
            raise InvalidEvent((USED_RESUME,))
        evict_oldest(self._used, RESUMES_MAX)


def _resume_in(record: ConsumerRecord[bytes, bytes]) -> OperatorResume:
    """Return the operator's event in the headers of a record. Raises `InvalidEvent`."""
    found = [value for name, value in record.headers if name == RESUME_HEADER]
    if len(found) != 1:
        raise InvalidEvent((NO_RESUME,))
    try:
        return _read_resume(found[0])
    except (ValueError, RecursionError) as problem:
        raise InvalidEvent((Problem(RESUME_HEADER, str(problem)[:SHOWN_MAX], NO_RESUME.remedy),)) from None
