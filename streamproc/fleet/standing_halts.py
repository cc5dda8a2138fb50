"""The halt that stands for a run: what a resume names, and what is left of runs outside of their home partition."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streamproc.errors import InvalidEvent, Problem
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.signing import command_signer
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.partitioning import home_of
from streamproc.kafka.reading import open_topic, partition_count
from streamproc.kafka.topics import broker_unavailable
from streamproc.model.redaction import redact_text
from streamproc.model.wire import WIRE_VERSION, OperatorResume, encode

if TYPE_CHECKING:
    from streamproc.fleet.record_signing import RecordSigner
    from streamproc.kafka.reading import Record
    from streamproc.settings import Settings

NOT_HALTED: Final = Problem(
    "halt",
    "the workers' last status of this run is not that of a halted one, so there is no halt to name",
    "look at it with `streamproc status RUN`",
)


class StandingHalt(NamedTuple):
    """A run, as the last status of a partition says. `halt` is the id of the decision that halts it; else empty."""

    run_id: str
    partition: int
    halt: str


class _Decision(msgspec.Struct):
    id: str = ""


class _Status(msgspec.Struct):
    run_id: str
    status: str
    halt: _Decision | None = None


_read: Final = msgspec.json.Decoder(_Status).decode


async def halt_to_lift(settings: Settings, run_id: str) -> str:
    """Return the id of the decision that halts a run, for the resume that lifts it.

    Raises `InvalidEvent` if the run is not halted, and `Unavailable`.
    """
    key = run_id.encode("utf-8", "surrogatepass")
    partition = home_of(settings, await partition_count(settings, "turns")).of(key)
    found = [one async for one in _statuses(settings, only=partition) if one.run_id == run_id]
    if not found or not found[-1].halt:
        raise InvalidEvent((NOT_HALTED,))
    return found[-1].halt


async def halts_outside_home(settings: Settings) -> list[StandingHalt]:
    """Return the runs that are halted in a partition other than their home, where nothing can reach them but a resume
    that names the partition. Raises `Unavailable`."""
    home = home_of(settings, await partition_count(settings, "turns"))
    found: dict[tuple[str, int], StandingHalt] = {}
    async for one in _statuses(settings):
        if home.holds(one.run_id.encode("utf-8", "surrogatepass"), one.partition):
            continue
        if one.halt:
            found[one.run_id, one.partition] = one
        else:
            found.pop((one.run_id, one.partition), None)
    return list(found.values())


async def resume_outside_home(settings: Settings, standing: StandingHalt, *, by: str, reason: str) -> str:
    """Lift a halt outside of the home of its run, and let the workers remove what is left of the run there. Returns the
    id of the event. Raises `InvalidSettings` without a key that signs, and `Unavailable`."""
    signer = command_signer(settings)
    signer.must_sign()
    event = OperatorResume(
        w=WIRE_VERSION, run_id=standing.run_id, event_id=str(uuid.uuid4()), by=redact_text(by), halt=standing.halt,
        reason=redact_text(reason), at=int(time.time() * 1000),
    )  # fmt: skip
    signer.sign_event(event, event.at or 0)
    producer = AIOKafkaProducer(**connection_options(settings), acks="all", enable_idempotence=True)
    try:
        await access.start(producer, settings)
        key = standing.run_id.encode("utf-8", "surrogatepass")
        await producer.send_and_wait(settings.topic("turns"), encode(event), key=key, partition=standing.partition)
    except (KafkaError, OSError) as problem:
        raise access.as_access_denied(settings, problem) or broker_unavailable(settings, problem) from None
    finally:
        await producer.stop()
    return event.event_id


async def _statuses(settings: Settings, only: int | None = None) -> AsyncIterator[StandingHalt]:
    """Yield what each status on `runs` says, in log order; `halt` is empty for a run that is not halted, and for a
    tombstone."""
    signer = record_signer(settings)
    async with open_topic(settings, "runs") as reader:
        if only is not None:
            own = only % len(reader.extents)
            reader.extents = {own: reader.extents[own]}
        async for batch in reader.batches():
            for record in batch:
                found = _standing(signer, record)
                if found is not None:
                    yield found


def _standing(signer: RecordSigner, record: Record) -> StandingHalt | None:
    """Return what a record says; None if it is no status that a worker has signed."""
    key = (record.key or b"").decode("utf-8", "surrogatepass")
    try:
        if record.value is None:
            if signer.required:
                signer.check("runs", record)
            return StandingHalt(key, record.partition, "")
        status = _read(record.value)
        if status.run_id != key:
            return None
        if signer.required:
            signer.check_about("runs", record, key)
    except (InvalidEvent, ValueError, RecursionError):
        return None
    halted = status.status == "halted" or (status.status == "finished" and status.halt is not None)
    return StandingHalt(key, record.partition, status.halt.id if halted and status.halt is not None else "")
