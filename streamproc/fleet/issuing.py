"""Issues commands: reads the standing ones, makes a newer one, signs it, and sends it until the broker confirms."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streamproc.errors import InvalidEvent, Problem
from streamproc.fleet.signing import CommandSigner, command_signer
from streamproc.fleet.state import Fleet, new_command
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.reading import append_time_ms, open_topic
from streamproc.kafka.topics import broker_unavailable
from streamproc.model.fleet_command import (
    BY_MAX,
    WHY_MAX,
    FleetCommand,
    Status,
    encode_command,
    member_scope,
    read_command,
)
from streamproc.model.redaction import redact_id, redact_text
from streamproc.settings import Settings

REQUEST_TIMEOUT_MS: Final = 15_000  # a healthy broker answers in milliseconds


def restatement(standing: FleetCommand, now_ms: int | None = None) -> FleetCommand:
    """Make an unsigned command that issues the standing one again.

    Receivers check its age by `at`, and keep its place in the order by `since`: it is older than every command that was
    issued after the standing one, also if its record comes later.
    """
    at_ms = int(time.time() * 1000) if now_ms is None else now_ms
    return msgspec.structs.replace(
        standing,
        id=str(uuid.uuid4()),
        at=max(at_ms, standing.order_ms),
        since=standing.order_ms,
        by=redact_text(standing.by, BY_MAX),
        why=redact_text(standing.why, WHY_MAX),
        issuer="",
        signature="",
    )


async def read_fleet(settings: Settings) -> Fleet:
    """Read the standing commands, as far as this process can verify them. Raises `Unavailable`."""
    fleet, signer = Fleet(), command_signer(settings)
    async with open_topic(settings, "commands") as reader:
        async for batch in reader.batches():
            for record in batch:
                apply_record(fleet, signer, record.key, record.value, append_time_ms(record))
    return fleet


def apply_record(
    fleet: Fleet,
    signer: CommandSigner,
    key: bytes | None,
    value: bytes | None,
    appended_ms: int | None,
    refused: Callable[[InvalidEvent], None] = lambda _problem: None,
) -> FleetCommand | None:
    """Verify a record of the commands topic and apply it. Returns the command; None for a duplicate or a refused one.

    `appended_ms` is the broker's time of the record; None if it has its sender's. `refused` receives the reason of a
    refusal.
    """
    try:
        command = read_command(value, key or b"")
        signer.check(command, appended_ms)
        return command if fleet.apply(command) else None
    except InvalidEvent as problem:
        refused(problem)
    return None


async def issue_command(
    settings: Settings, status: Status, scope: str, by: str, why: str, *, command_id: str = ""
) -> tuple[FleetCommand, FleetCommand | None, StoredAt]:
    """Issue a command, with a given id or a new one. Returns it, the previous command of its scope, and where the
    broker has stored it.

    Raises `InvalidSettings` if every receiver would refuse it, `InvalidEvent` and `Unavailable`.
    """
    command_signer(settings).must_sign()
    fleet = await read_fleet(settings)
    command = new_command(fleet, status, scope, by, why, command_id=command_id)
    signed, place = await send(settings, command)
    return signed, fleet.latest(scope), place


async def send(
    settings: Settings, command: FleetCommand, issuer: str = "", *, sign: bool = True
) -> tuple[FleetCommand, StoredAt]:
    """Sign a command and send it. Returns it as sent, and where the broker has stored it. Raises `Unavailable`."""
    signed = command_signer(settings).sign(command, issuer) if sign else command
    return signed, await store(settings, "commands", signed.scope.encode(), encode_command(signed))


class StoredAt(NamedTuple):
    """Where the broker has stored a record, and when: its own time in ms, if it gives that."""

    topic: str
    partition: int
    offset: int
    at_ms: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


async def store(settings: Settings, role: str, key: bytes, value: bytes, partition: int | None = None) -> StoredAt:
    """Send a record; return once the broker has stored it. Without a partition, the broker's client chooses that of its
    key. Raises `Unavailable`."""
    producer = AIOKafkaProducer(
        **connection_options(settings), acks="all", enable_idempotence=True, request_timeout_ms=REQUEST_TIMEOUT_MS
    )
    try:
        await access.start(producer, settings)
        at = await producer.send_and_wait(settings.topic(role), value, key, partition=partition)
    except (KafkaError, OSError) as problem:
        raise access.as_access_denied(settings, problem) or broker_unavailable(settings, problem) from None
    finally:
        await producer.stop()
    return StoredAt(at.topic, at.partition, at.offset, int(at.timestamp or time.time() * 1000))


def scope_of(part: str, name: str, tenant: str | None = None) -> str:
    """Return the scope of one user (of one tenant), tenant or run. Raises `InvalidEvent` for an empty name."""
    if not name or tenant == "":
        missing = part if not name else "tenant"
        raise InvalidEvent((Problem(missing, "has no name", f"name the {missing}"),))
    if tenant is not None:
        return member_scope(redact_id(name), redact_id(tenant))
    return f"{part}:{redact_id(name)}"
