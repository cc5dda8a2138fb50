"""The worker and the orders: what it does about what people order on the commands topic.

Every worker reads the whole topic, and checks each order. Of each partition one worker has the duties, the one that
has the same partition of the turns topic: it tells a `fleet.state` event of every order and of every refused one, puts
refused records into the dead-letter topic, and gives the standing order again where a refused record would otherwise
displace it at compaction. How far it came is committed in a group of its own (without members).

A killed run, user or tenant becomes `operator.stop` events on the turns topic, in the partitions of the runs, and the
engine halts on those: so the log holds why a run was halted and when, and a replay decides the same. The kill of a
run is one event. The kill of a user or tenant is one for every run that is known when the order comes, and one for
every run that sends something later and is not halted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.partitioner import murmur2

from streamproc.core.decision import Trigger
from streamproc.errors import Unavailable
from streamproc.fleet import command_events
from streamproc.fleet.issuing import apply_record, new_command, send
from streamproc.fleet.signing import command_signer
from streamproc.fleet.state import Fleet
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.session import Backoff, reconnecting, run_in_own_task
from streamproc.model.wire import WIRE_VERSION, OperatorStop, encode
from streamproc.worker.limits import ORDERS_POLL_MS, RESTATE_INTERVAL_S, STOPS_AT_ONCE, VERDICTS_MAX
from streamproc.worker.publishing import OutgoingRecord, control_record, dead_letter_record
from streamproc.worker.run_summaries import run_summaries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from streamproc.errors import Problem
    from streamproc.model.fleet_command import FleetCommand
    from streamproc.settings import Settings
    from streamproc.worker.publishing import Publisher
    from streamproc.worker.tables import Runs

log = logging.getLogger(__name__)

ALL_KEY: Final = command_events.ALL.encode()


class Verdict(NamedTuple):
    """What is to be told of a record of the commands topic."""

    offset: int
    letters: list[OutgoingRecord]
    stop: FleetCommand | None = None  # the order to stop one run
    displaced: str = ""  # the scope whose standing order this record would displace


class CommandBatch:
    """Records of the commands topic on their way to the agent that applies them, and its answer."""

    def __init__(self, records: Sequence[Any]) -> None:
        self.records = records
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def apply_to(self, commands: FleetCommands) -> None:
        """Apply the records. Raises what fails, after passing it to the reader, which reads them again."""
        try:
            commands.apply(self.records)
        except Exception as problem:
            if not self.answer.done():
                self.answer.set_exception(problem)
            raise
        if not self.answer.done():  # cancelled where the reader gave up
            self.answer.set_result(None)


class FleetCommands:
    """The standing orders, as this worker knows them, and its duties."""

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        partitions: int,
        *,
        dead_letter_bytes: int,
        version: str,
    ) -> None:
        self.fleet = Fleet()
        self.authority = command_signer(settings)
        self.caught_up = asyncio.Event()
        self.changed = asyncio.Event()
        """Set when an order comes; whoever waits for it clears it."""
        self.deliver: Callable[[Sequence[Any]], Awaitable[None]]
        """Passes records to the agent that applies them, and waits for it. (The worker sets this.)"""
        self.runs: Callable[[int], Runs]
        """The runs of a partition of the turns topic. (The worker sets this.)"""
        self._settings = settings
        self._topic = settings.topic("commands")
        self._publisher = publisher
        self._count = partitions
        self._dead_letter_bytes = dead_letter_bytes
        self._version = version
        self._mine: set[int] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._verdicts: dict[int, deque[Verdict]] = {}
        self._committed: dict[int, int] = {}
        self._displaced: set[str] = set()
        self._restate_at_s = 0.0
        self._searched: dict[int, int] = {}
        self._kills = 0
        self._trouble = ""  # the last failure that was logged

    # What others tell us.

    def have(self, partitions: set[int]) -> None:
        """These partitions of the turns topic are this worker's, and their runs are known."""
        self._mine = set(partitions)
        self._searched.clear()

    def keep(self, partitions: set[int]) -> None:
        """Of what this worker had, only these partitions are left."""
        self._mine &= partitions
        for number in set(self._committed) - self._mine:
            del self._committed[number]

    # What others ask.

    @property
    def killing(self) -> Fleet | None:
        """The fleet, where a user or tenant in it is killed; None where there is nothing to look for."""
        return self.fleet if self.caught_up.is_set() and self.fleet.kills else None

    def stop_of(self, order: FleetCommand, run_id: str, event_id: str) -> OperatorStop:
        """The event that stops a run because of an order."""
        event = OperatorStop(w=WIRE_VERSION, run_id=run_id, event_id=event_id, by=order.by, reason=_reason(order))
        self.authority.sign_event(event, int(time.time() * 1000), order.issuer)
        return event

    # Reading.

    async def run(self) -> None:
        """For ever: read, and do what is to be done. A broker that is away is waited for."""
        await reconnecting(self._session, self._report, purpose="listening for fleet commands")

    def _report(self, error: Exception) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            self._forget()
        if repr(error) != self._trouble:
            self._trouble = repr(error)
            log.warning("receiving no fleet commands for now; reconnecting: %s", self._trouble)

    async def _session(self, backoff: Backoff) -> None:
        consumer = AIOKafkaConsumer(
            **connection_options(self._settings),
            group_id=f"{self._settings.worker_group}-orders",
            enable_auto_commit=False,
            auto_offset_reset="none",
        )
        try:
            await access.start(consumer, self._settings)
            await consumer._client.force_metadata_update()
            numbers = consumer.partitions_for_topic(self._topic) or await self._found(consumer)
            places = [TopicPartition(self._topic, number) for number in sorted(numbers)]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            for place, begin in (await consumer.beginning_offsets(places)).items():
                consumer.seek(place, self._positions.setdefault(place, begin))
            backoff.reset()
            while True:
                if all(self._positions[place] >= ends[place] for place in places):
                    self.caught_up.set()
                await self._duties(consumer)
                for batch in (await consumer.getmany(timeout_ms=ORDERS_POLL_MS)).values():
                    await self.deliver(batch)
                for place in places:
                    self._positions[place] = await consumer.position(place)
                self._trouble = ""
        finally:
            await run_in_own_task(consumer.stop(), 2.0)

    async def _found(self, consumer: Any) -> set[int]:
        cluster = await consumer._client.fetch_all_metadata()
        numbers: set[int] | None = cluster.partitions_for_topic(self._topic)
        if not numbers:
            raise Unavailable(f"topic {self._topic} does not exist: run `streamproc topics apply`")
        return numbers

    def _forget(self) -> None:
        self._positions.clear()
        self._verdicts.clear()

    def apply(self, records: Sequence[Any]) -> None:
        """Apply records of one partition, oldest first."""
        for record in records:
            self._hear(record)

    def _hear(self, record: Any) -> None:
        """Take in one record; what is to be told of it waits for whoever has the duties."""
        problems: list[Problem] = []
        taken_ms = record.timestamp
        order = apply_record(
            self.fleet, self.authority, record.key, record.value, taken_ms, lambda bad: problems.extend(bad.problems)
        )
        trigger = Trigger(topic=record.topic, partition=record.partition, offset=record.offset)
        verdict: Verdict | None = None
        if problems:
            place = f"{record.topic}[{record.partition}]@{record.offset}"
            log.warning("refused an order, %s: %s", place, problems[0])
            told = control_record(ALL_KEY, command_events.refusal_event(problems[0], place, taken_ms, trigger))
            dead = dead_letter_record(record, problems, version=self._version, bytes_max=self._dead_letter_bytes)
            displaced = (record.key or b"").decode("utf-8", "replace")
            verdict = Verdict(record.offset, [told, dead], displaced=displaced)
        elif order is not None and order.part == "run":
            verdict = Verdict(record.offset, [], stop=order)
        elif order is not None:
            log.warning("%s", order)
            trigger.event_id = order.id
            decision = command_events.state_event(order, at_ms=taken_ms, trigger=trigger)
            verdict = Verdict(record.offset, [control_record(ALL_KEY, decision)])
            self._kills += order.part != "fleet"
        if verdict is not None:
            self._verdicts.setdefault(record.partition, deque(maxlen=VERDICTS_MAX)).append(verdict)
            self.changed.set()

    # Duties.

    async def _duties(self, consumer: Any) -> None:
        if not self.caught_up.is_set():
            return  # a kill that was lifted again must not halt anybody
        for number, verdicts in self._verdicts.items():
            if number % self._count in self._mine:
                await self._tell(consumer, TopicPartition(self._topic, number), verdicts)
        if self._displaced and time.monotonic() >= self._restate_at_s:
            await self._restate()
        for partition in self._mine:
            if self._searched.get(partition) != self._kills:
                self._searched[partition] = self._kills
                await self._stop_known(partition)

    async def _tell(self, consumer: Any, place: TopicPartition, verdicts: Iterable[Verdict]) -> None:
        """Tell what was not told yet. A crash between telling and committing tells it twice, with the same ids."""
        number = place.partition
        if number not in self._committed:
            self._committed[number] = await consumer.committed(place) or 0
        due = [verdict for verdict in verdicts if verdict.offset >= self._committed[number]]
        for verdict in due:
            if verdict.letters:
                await self._publisher.tell(number, verdict.letters)
            if verdict.stop is not None:
                await self._stop_run(verdict.stop)
            if verdict.displaced:
                self._displaced.add(verdict.displaced)
        if due:
            self._committed[number] = due[-1].offset + 1
            await consumer.commit({place: due[-1].offset + 1})

    async def _restate(self) -> None:
        """Give displaced orders again: compaction keeps the last record of a key, whoever wrote it."""
        self._restate_at_s = time.monotonic() + RESTATE_INTERVAL_S
        displaced, self._displaced = self._displaced, set()
        for standing in filter(None, map(self.fleet.latest, displaced)):
            if self.authority.can_sign:
                again = new_command(self.fleet, standing.status, standing.scope, standing.by, standing.why)
                await send(self._settings, again, standing.issuer)

    # Stopping runs.

    async def _stop_run(self, order: FleetCommand) -> None:
        key = order.name.encode()
        known = [number for number in self._mine if key in self.runs(number)]
        partition = known[0] if known else (murmur2(key) & 0x7FFFFFFF) % self._count
        stop = self.stop_of(order, order.name, order.id)
        await self._publisher.tell(partition, [OutgoingRecord("turns", key, encode(stop))])

    async def _stop_known(self, partition: int) -> None:
        """Stop the runs of a partition whose user or tenant is killed."""
        fleet = self.killing
        if fleet is None:
            return
        letters: list[OutgoingRecord] = []
        for number, glance in enumerate(run_summaries(self.runs(partition))):
            if number % STOPS_AT_ONCE == STOPS_AT_ONCE - 1:
                await asyncio.sleep(0)  # records of turns want to be stepped, too
            order = None if glance.over else fleet.killing(glance.user, glance.tenant)
            if order is not None:
                stop = self.stop_of(order, glance.key.decode(), f"{order.id}@{glance.offset}")
                letters.append(OutgoingRecord("turns", glance.key, encode(stop)))
        for first in range(0, len(letters), STOPS_AT_ONCE):
            await self._publisher.tell(partition, letters[first : first + STOPS_AT_ONCE])
        if letters:
            log.warning("stops %d runs of partition %d: their user or tenant is killed", len(letters), partition)


def _reason(order: FleetCommand) -> str:
    whom = "" if order.part == "run" else f"{order.part} {order.name} is killed"
    return ": ".join(filter(None, (whom, order.why)))
