"""What workers answer to one command, read live from the topics, for a command that waits for it.

An answer counts as the guards believe it: if workers sign their records, an unsigned one says nothing. A worker answers
a command on the control topic (FLEET001, FLEET002), and an event of a run by a decision that names it, by a status that
follows from it, or by a dead letter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from streamproc.core.decision import Decision
from streamproc.core.scope import short_name
from streamproc.fleet.command_events import ISSUED, REFUSED
from streamproc.fleet.commands import Command, CommandFacts, CommandProgress, StopCounts, progress_of
from streamproc.fleet.record_signing import read_decision, read_status, record_signer
from streamproc.kafka import topics
from streamproc.kafka.reading import Record, offsets_at, open_consumer
from streamproc.model.controls import RunStatus
from streamproc.model.guard_report import GUARD
from streamproc.model.wire import HaltAcknowledged, RunFinished
from streamproc.settings import Settings

POLL_MS: Final = 200
SETTLE_S: Final = 1.0  # after a status that follows from a resume: its decision may come later, on its own topic
_SOURCE: Final = ("topic", "partition", "offset")  # of a dead letter
SILENT_SHOWN: Final = 5  # runs that have not stopped
CLOCKS_MS: Final = 60_000  # where topics have their writers' times: workers' clocks differ by less


class _Head(msgspec.Struct):
    run_id: str
    type: str = "turn"
    labels: dict[str, str] | None = None


_ENDS: Final = tuple(f'"{kind.type}"'.encode() for kind in (HaltAcknowledged, RunFinished))
_read_head: Final = msgspec.json.Decoder(_Head).decode


class CommandAnswers:
    """The answers to one command so far. `decision` is the one that names it."""

    def __init__(
        self, settings: Settings, command: Command, consumer: AIOKafkaConsumer, status: RunStatus | None
    ) -> None:
        self.command = command
        self.decision: Decision | None = None
        self._status = status
        self._at_work: set[str] | None = None
        self._stopped: set[str] = set()
        self._later: set[str] = set()  # runs of a session that were born after the command
        self._consumer = consumer
        self._signer = record_signer(settings)
        self._facts = CommandFacts(run_status=_state_of(status))
        self._readers = {
            settings.topic("control"): self._control, settings.topic("runs"): self._run,
            settings.topic("dead-letter"): self._dead_letter, settings.topic("turns"): self._turn,
        }  # fmt: skip

    @property
    def progress(self) -> CommandProgress:
        """How far the command is."""
        return progress_of(self.command, self._facts)

    @property
    def accepted(self) -> bool:
        """Whether a worker acts on the command, or has acted."""
        return self._facts.accepted or self.progress.stage == "obeyed"

    async def wait(self, seconds: float) -> CommandProgress:
        """Read until nothing more is expected, for so long at most; return how far the command is then."""
        deadline, settling = time.monotonic() + seconds, False
        while time.monotonic() < deadline:
            if self.progress.over and not self._may_be_decided:
                break
            if self._may_be_decided and not settling:
                settling, deadline = True, min(deadline, time.monotonic() + SETTLE_S)
            left_ms = int(1000 * (deadline - time.monotonic()))
            found = await self._consumer.getmany(timeout_ms=max(1, min(POLL_MS, left_ms)))
            for at, records in found.items():
                for record in records:
                    self._readers[at.topic](record)
            await asyncio.sleep(0)  # getmany returns without yielding while records are buffered
        return self.progress

    @property
    def _may_be_decided(self) -> bool:
        """Whether all that is known of a resume is that a worker has read it."""
        return self.command.verb == "resume" and self._facts.applied and self.decision is None

    @property
    def stops(self) -> StopCounts | None:
        """What has come of it, if it stops work, as far as that is counted."""
        return self._facts.stops

    def expect(self, run_ids: Iterable[str]) -> None:
        """Count from now on which of these runs have stopped: those that were at work when the command came."""
        self._at_work = set(run_ids)
        self._count()

    def _count(self) -> None:
        if self._at_work is not None:
            left = sorted(self._at_work - self._stopped)
            done = len(self._at_work) - len(left)
            counts = StopCounts(
                expected=len(self._at_work), stopped=done, unclear=len(left), names=tuple(left[:SILENT_SHOWN]),
                later=len(self._later) if self.command.session else None,
            )  # fmt: skip
            self._facts = replace(self._facts, stops=counts)

    def _turn(self, record: Record) -> None:
        value = record.value or b""
        if not any(mark in value for mark in _ENDS):
            return
        try:
            head = _read_head(value)
        except (ValueError, RecursionError):
            return
        place = self.command.place
        if place is not None and record.timestamp >= place.at_ms and head.run_id.encode() == record.key:
            labels = head.labels or {}
            if head.type != HaltAcknowledged.type or labels.get(GUARD) == "stopped":
                self._stopped.add(head.run_id)
                self._count()

    def _control(self, record: Record) -> None:
        decision = read_decision(record.value)
        if decision is None or not self._signer.accepts("control", record, decision.run_id):
            return
        caused_by = decision.trigger.event_id if decision.trigger is not None else ""
        if decision.code == REFUSED and f"({self.command.place})" in decision.message:
            self._facts = replace(self._facts, refused=f"{REFUSED}: {decision.message}")
        elif caused_by != self.command.id:
            return
        elif decision.code == ISSUED:
            self._facts = replace(self._facts, accepted=True)
        elif decision.run_id == self.command.run_id:
            self.decision = decision
            self._facts = replace(self._facts, decision=decision.message)

    def _run(self, record: Record) -> None:
        if self.command.session:
            self._member(record)
            return
        if record.key != self.command.run_id.encode("utf-8", "surrogateescape"):
            return
        status = read_status(record.value)
        if status is None or not self._signer.accepts("runs", record, status.run_id):
            return
        known, place = self._status, self.command.place
        if known is not None and status.partition == known.partition and status.offset < known.offset:
            return
        self._status = status
        applied = place is not None and status.partition == place.partition and status.offset >= place.offset
        self._facts = replace(self._facts, run_status=_state_of(status), applied=self._facts.applied or applied)

    def _member(self, record: Record) -> None:
        """Read the status of a run, which may be one of the session: a halted one has stopped."""
        status, place = read_status(record.value), self.command.place
        if status is None or not self._signer.accepts("runs", record, status.run_id):
            return
        if not in_session(status, self.command.session) or place is None or record.timestamp < place.at_ms:
            return
        if status.status != "running":
            self._stopped.add(status.run_id)
        if self._at_work is not None and status.run_id not in self._at_work and not status.unpublished:
            self._later.add(status.run_id)
            self._at_work.add(status.run_id)
        self._count()

    def _dead_letter(self, record: Record) -> None:
        headers, place = dict(record.headers), self.command.place
        if place is None or not self.command.rule.event:
            return
        source = tuple(headers.get(f"source.{name}", b"").decode("utf-8", "replace") for name in _SOURCE)
        if source == (place.topic, str(place.partition), str(place.offset)):
            self._facts = replace(self._facts, refused=headers.get("reason", b"").decode("utf-8", "replace"))


def in_session(status: RunStatus, session: str) -> bool:
    """Return whether a run belongs to a session. A run that names none is the root of its own."""
    return short_name(session) == (status.session or short_name(status.run_id))


def _state_of(status: RunStatus | None) -> str:
    """Return the word for the state of a run; empty if no worker knows it, or only commands name it."""
    return "" if status is None or (status.unpublished and status.status != "halted") else status.status


@asynccontextmanager
async def follow_command(
    settings: Settings, command: Command, status: RunStatus | None = None
) -> AsyncIterator[CommandAnswers]:
    """Yield what reads the answers to a command that was sent: it begins a little before that. `status` is the last
    known one of its run. Raises `Unavailable`."""
    counts = await topics.partitions(settings)
    roles: tuple[str, ...] = (
        ("control", "runs", "dead-letter")
        if command.run_id
        else ("control", "turns")
        if command.stops
        else ("control",)
    )
    roles += ("runs",) if command.session else ()
    names = [settings.topic(role) for role in roles]  # those that an ACL hides are left out
    places = [TopicPartition(name, number) for name in names for number in range(counts.get(name, 0))]
    async with open_consumer(settings) as consumer:
        consumer.assign(places)
        sent_ms = command.place.at_ms if command.place is not None else command.at_ms
        for place, offset in (await offsets_at(consumer, places, sent_ms - CLOCKS_MS)).items():
            consumer.seek(place, offset)
        yield CommandAnswers(settings, command, consumer, status)
