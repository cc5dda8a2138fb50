"""Fleet commands in the worker: it follows the commands topic and acts on the commands of operators.

Every worker reads the whole topic and checks each command. For each partition one worker has the duties: the owner of
the same partition of the turns topic. It publishes a `fleet.state` event for every command and for every refused
record, puts refused records into the dead-letter topic, and issues the standing command again if compaction would
replace it by a refused record. Its progress is committed in a consumer group of its own, which has no members.

A killed run, user, tenant or session becomes `operator.stop` events on the turns topic, in the partitions of the runs,
and the engine halts on those. So the log shows why and when a run was halted, and a replay decides the same. Killing a
run takes one event. Killing a user, tenant or session takes one for every run that is known when the command arrives,
and one for every run that sends an event later and is not halted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokafka import TopicPartition

from streamproc.core.decision import Decision, Trigger
from streamproc.errors import InvalidSettings, Unavailable
from streamproc.fleet import command_events
from streamproc.fleet.issuing import apply_record, restatement, send
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.signing import command_signer
from streamproc.fleet.state import Fleet
from streamproc.kafka.follow import Follower, Topic
from streamproc.kafka.log_limit import LogLimit
from streamproc.kafka.reading import append_time_ms
from streamproc.kafka.session import Outage
from streamproc.model.wire import OperatorStop, encode
from streamproc.worker.codec import peek_whole
from streamproc.worker.counts import WorkerCounts
from streamproc.worker.limits import COMMANDS_POLL_MS, OUTCOMES_MAX, RESTATE_INTERVAL_S, SLICE_S, STOPS_AT_ONCE
from streamproc.worker.publishing import OutgoingRecord, control_record, dead_letter_record
from streamproc.worker.timed_records import TimedRecords

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from streamproc.errors import Problem
    from streamproc.kafka.follow import Batches
    from streamproc.kafka.partitioning import Home
    from streamproc.model.fleet_command import FleetCommand
    from streamproc.settings import Settings
    from streamproc.worker.publishing import Publisher
    from streamproc.worker.tables import Runs

log = logging.getLogger(__name__)
limited = LogLimit(log)
CANNOT_RESTATE: Final = (
    "cannot issue this standing command again, which an invalid record replaces at compaction (give the workers a key "
    "that signs in STREAMPROC_COMMAND_KEY, or issue it yourself)"
)
ONLY_VERIFIES: Final = (
    "the keys of STREAMPROC_COMMAND_KEY only verify, so this worker cannot stop the runs of a killed user: set "
    "STREAMPROC_CONTROL_KEY to a key that signs (`streamproc keys new NAME --ed25519`)"
)
ALL_KEY: Final = command_events.ALL.encode()


class RunSummary(NamedTuple):
    """The facts needed to stop a run. `over`: it is halted or finished already."""

    key: bytes
    offset: int
    over: bool
    user: str
    tenant: str
    session: str


def run_summaries(runs: Runs) -> Iterator[RunSummary]:
    """Yield every run as it is now, without decoding whole states. Runs may come and go during the iteration."""
    for key in runs.known():
        state = runs.decoded(key)
        if state is not None:
            over = state.halted >= 0 or state.finished
            scope = state.scope
            yield RunSummary(key, state.offset, over, scope.user, scope.tenant, scope.session or key.decode())
        elif (raw := runs.raw(key)) is not None and (known := peek_whole(raw)) is not None:
            head, scope = known
            over = head.halted >= 0 or head.finished
            yield RunSummary(key, head.offset, over, scope.user, scope.tenant, scope.session or key.decode())


class CommandOutcome(NamedTuple):
    """The consequences of a record of the commands topic: what to publish, and which run to stop."""

    offset: int
    outgoing: list[OutgoingRecord]
    decision: Decision | None = None  # the event that says what became of the record
    stop: FleetCommand | None = None  # a command that stops one run
    displaced: str = ""  # the scope whose standing command this record would replace


class FleetCommands:
    """The standing commands, as this worker knows them, and its duties."""

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        home: Home,
        *,
        dead_letter_bytes: int,
        version: str,
        counts: WorkerCounts | None = None,
    ) -> None:
        self.fleet = Fleet()
        self._counts = counts or WorkerCounts()
        self.authority = command_signer(settings)
        self.record_signer = record_signer(settings)
        if not (self.authority.can_sign or self.record_signer.required) and self.authority.can_verify:
            raise InvalidSettings(ONLY_VERIFIES)
        self.caught_up = asyncio.Event()
        self.changed = asyncio.Event()
        """Set when a command arrives. The task that waits for it clears it."""
        self.deliver: Callable[[Sequence[Any]], Awaitable[None]]
        """Passes records to the agent that applies them, and waits for it. (The worker sets this.)"""
        self.runs_of: Callable[[int], Runs]
        """The runs of a partition of the turns topic. (The worker sets this.)"""
        self._settings = settings
        self._topic = settings.topic("commands")
        self._publisher = publisher
        self._home = home
        self._dead_letter_bytes = dead_letter_bytes
        self._version = version
        self._mine: set[int] = set()
        self._applied: dict[int, int] = {}  # the next offset of each partition
        self._outcomes: dict[int, deque[CommandOutcome]] = {}
        self._committed: dict[int, int] = {}
        self._displaced: set[str] = set()
        self._restate_at_s = 0.0
        self._searched: dict[int, int] = {}
        self._kills = 0
        words = "listening for fleet commands", "receiving no fleet commands for now", "receiving fleet commands again"
        self._follower = Follower(
            settings, [Topic(self._topic)], self._deliver, Outage(log, *words), before_poll=self._duties,
            on_caught_up=self.caught_up.set, on_recreated=self._forget, poll_ms=COMMANDS_POLL_MS,
            group_id=f"{settings.worker_group}-orders",
        )  # fmt: skip

    @property
    def trouble(self) -> Unavailable | None:
        """Why no commands are read, mostly because Kafka is away; None while the connection works."""
        return self._follower.trouble

    # Ownership of partitions.

    def have(self, partitions: set[int]) -> None:
        """Take the duties of these partitions of the turns topic, whose runs are restored."""
        self._mine = set(partitions)
        self._searched.clear()

    def keep(self, partitions: set[int]) -> None:
        """Give up the duties of all other partitions."""
        self._mine &= partitions
        for number in set(self._committed) - self._mine:
            del self._committed[number]

    # For the other parts of the worker.

    @property
    def killing(self) -> Fleet | None:
        """The fleet, if a user, tenant or session of it is killed; None if no run has to be stopped."""
        return self.fleet if self.caught_up.is_set() and self.fleet.kills else None

    def stop_of(self, command: FleetCommand, run_id: str, event_id: str) -> OperatorStop:
        """Return the event by which a command stops a run. Only a command whose signature was verified gets one."""
        event = command_events.stop_event(command, run_id, event_id)
        if self.authority.verified(command):
            self.authority.sign_event(event, int(time.time() * 1000), command.issuer)
        return event

    # Reading.

    async def run(self) -> None:
        """Read the commands topic and do the duties; wait for a broker that is away. Never returns."""
        await self._follower.run()

    async def _deliver(self, batches: Batches) -> None:
        for batch in batches.values():
            await self.deliver(batch)

    async def _forget(self) -> None:
        self._applied.clear()
        self._outcomes.clear()

    def accept(self, _partition: int, records: Sequence[Any]) -> int:
        """Apply records of one partition, oldest first, for `SLICE_S`; return how many, at least one."""
        timed = TimedRecords(records)
        for record in timed:
            self._apply_record(record)
        return len(timed)

    def _apply_record(self, record: Any) -> None:
        """Apply one record, once: it is delivered again if the connection was lost while it was on its way.

        Its outcome is kept for the case that this worker has the duties, or gets them.
        """
        if record.offset < self._applied.get(record.partition, 0):
            return
        self._applied[record.partition] = record.offset + 1
        problems: list[Problem] = []
        at_ms, appended_ms = record.timestamp, append_time_ms(record)
        command = apply_record(
            self.fleet, self.authority, record.key, record.value, appended_ms, lambda bad: problems.extend(bad.problems)
        )
        trigger = Trigger(topic=record.topic, partition=record.partition, offset=record.offset)
        outcome: CommandOutcome | None = None
        if problems:
            place = f"{record.topic}[{record.partition}]@{record.offset}"
            kind = f"refused commands in {record.topic}[{record.partition}]"
            limited(logging.WARNING, kind, "refused a fleet command, %s: %s", place, problems[0])
            refusal = command_events.refusal_event(problems[0], place, at_ms, trigger)
            dead = dead_letter_record(record, problems, version=self._version, bytes_max=self._dead_letter_bytes)
            displaced = (record.key or b"").decode("utf-8", "replace")
            if displaced.startswith("run:"):  # it has acted, and a resume may have superseded it since
                displaced = ""
            outgoing = [control_record(ALL_KEY, refusal), dead]
            outcome = CommandOutcome(record.offset, outgoing, refusal, displaced=displaced)
        elif command is not None:
            log.warning("%s", command)
            trigger = trigger.model_copy(update={"event_id": command.id})
            decision = command_events.state_event(command, at_ms=at_ms, trigger=trigger)
            stop = command if command.part == "run" else None
            outcome = CommandOutcome(record.offset, [control_record(ALL_KEY, decision)], decision, stop)
            self._kills += command.part not in ("fleet", "run")
        if outcome is not None:
            self._outcomes.setdefault(record.partition, deque(maxlen=OUTCOMES_MAX)).append(outcome)
            self.changed.set()

    # Duties.

    async def _duties(self, consumer: Any) -> None:
        if not self.caught_up.is_set():
            return  # a kill that was lifted later must not halt a run
        for number, outcomes in self._outcomes.items():
            if number % self._home.count in self._mine:
                await self._publish(consumer, TopicPartition(self._topic, number), outcomes)
        if self._displaced and time.monotonic() >= self._restate_at_s:
            await self._restate()
        for partition in self._mine:
            if self._searched.get(partition) != self._kills:
                kills = self._kills
                await self._stop_known(partition)
                self._searched[partition] = kills

    async def _publish(self, consumer: Any, place: TopicPartition, outcomes: Iterable[CommandOutcome]) -> None:
        """Publish new outcomes. A crash before the commit publishes them twice, with the same ids."""
        number = place.partition
        if number not in self._committed:
            self._committed[number] = await consumer.committed(place) or 0
        due = [outcome for outcome in outcomes if outcome.offset >= self._committed[number]]
        for outcome in due:
            if outcome.outgoing:
                await self._publisher.publish(number, outcome.outgoing)
            if outcome.decision is not None:
                self._counts.decided(outcome.decision)
                self._counts.dead_letters["command"] += outcome.decision.code == command_events.REFUSED
            if outcome.stop is not None:
                await self._stop_run(outcome.stop)
            if outcome.displaced:
                self._displaced.add(outcome.displaced)
            self._committed[number] = outcome.offset + 1
        if due:
            await consumer.commit({place: due[-1].offset + 1})

    async def _restate(self) -> None:
        """Issue replaced commands again: compaction keeps the last record of a key, even a refused one.

        A command whose signature this worker has not verified does not get one.
        """
        self._restate_at_s = time.monotonic() + RESTATE_INTERVAL_S
        for scope in tuple(self._displaced):
            standing = self.fleet.latest(scope)
            if standing is not None and not self.authority.can_sign:
                log.error("%s: %s", CANNOT_RESTATE, standing)
            elif standing is not None:
                signed = self.authority.verified(standing)
                await send(self._settings, restatement(standing), standing.issuer, sign=signed)
            self._displaced.discard(scope)

    # Stopping runs.

    async def _stop_run(self, command: FleetCommand) -> None:
        key = command.name.encode()
        known = [number for number in self._mine if not self._home.checked and key in self.runs_of(number)]
        partition = known[0] if known else self._home.of(key)
        stop = self.stop_of(command, command.name, command.id)
        await self._publisher.publish(partition, [OutgoingRecord("turns", key, encode(stop))])

    async def _stop_known(self, partition: int) -> None:
        """Stop the runs of a partition whose user, tenant or session is killed."""
        fleet = self.killing
        if fleet is None:
            return
        outgoing: list[OutgoingRecord] = []
        end_s = time.monotonic() + SLICE_S
        for summary in run_summaries(self.runs_of(partition)):
            if time.monotonic() >= end_s:
                await asyncio.sleep(0)  # let turns be processed in between
                end_s = time.monotonic() + SLICE_S
            over = summary.over or not self._home.holds(summary.key, partition)
            command = None if over else fleet.killing(summary.user, summary.tenant, summary.session)
            if command is not None:
                stop = self.stop_of(command, summary.key.decode(), f"{command.id}@{summary.offset}")
                outgoing.append(OutgoingRecord("turns", summary.key, encode(stop)))
        for first in range(0, len(outgoing), STOPS_AT_ONCE):
            await self._publisher.publish(partition, outgoing[first : first + STOPS_AT_ONCE])
        if outgoing:
            log.warning(
                "stopping %d runs of partition %d: their user, tenant or session is killed", len(outgoing), partition
            )
