"""Giving an order: made so that it counts after all that is known, signed, and sent until the broker has it."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streamproc.errors import InvalidEvent, Problem
from streamproc.fleet.signing import authority_of
from streamproc.fleet.state import Fleet
from streamproc.kafka import access
from streamproc.kafka.options import connection_options
from streamproc.kafka.topics import unavailable
from streamproc.model.fleet_command import WHO_MAX, WHY_MAX, FleetCommand, Status, encode_order, read_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.fleet.signing import Authority
    from streamproc.settings import Settings

REQUEST_TIMEOUT_MS: Final = 15_000  # a healthy broker answers in milliseconds


def new_command(
    fleet: Fleet, status: Status, scope: str, by: str, why: str, *, order_id: str = "", now_ms: int | None = None
) -> FleetCommand:
    """An order, unsigned. It is newer than every other of its scope, also where another machine's clock is ahead.

    Raises `InvalidEvent` for a scope, or a status of a scope, that cannot be.
    """
    known = fleet.latest(scope)
    at_ms = int(time.time() * 1000) if now_ms is None else now_ms
    return read_command(
        encode_order(
            FleetCommand(
                w=1,
                id=order_id or str(uuid.uuid4()),
                status=status,
                scope=scope,
                by=by[:WHO_MAX],
                why=why[:WHY_MAX],
                at=at_ms if known is None else max(at_ms, known.at + 1),
            )
        )
    )


async def read_fleet(settings: Settings) -> Fleet:
    """The standing orders, as far as this process can check them. Raises `Unavailable`."""
    from streamproc.kafka.reading import open_topic

    fleet, authority = Fleet(), authority_of(settings)
    async with open_topic(settings, "commands") as reader:
        async for chunk in reader.chunks():
            for record in chunk:
                apply_record(fleet, authority, record.key, record.value, record.timestamp)
    return fleet


def apply_record(
    fleet: Fleet,
    authority: Authority,
    key: bytes | None,
    value: bytes | None,
    taken_ms: int,
    refused: Callable[[InvalidEvent], None] = lambda _problem: None,
) -> FleetCommand | None:
    """Take in a record of the commands topic: the order that is news, or None. `refused` hears what does not count."""
    try:
        order = read_command(value, key or b"")
        authority.check(order, taken_ms)
        return order if fleet.take(order) else None
    except InvalidEvent as problem:
        refused(problem)
    return None


async def issue_command(
    settings: Settings, status: Status, scope: str, by: str, why: str
) -> tuple[FleetCommand, FleetCommand | None]:
    """Give an order; it and the one before it in its scope, when the broker has it.

    Raises `InvalidSettings` where it would count nowhere, `InvalidEvent` and `Unavailable`.
    """
    authority_of(settings).must_sign()
    fleet = await read_fleet(settings)
    order = new_command(fleet, status, scope, by, why)
    return await send(settings, order), fleet.latest(scope)


async def send(settings: Settings, order: FleetCommand, issuer: str = "") -> FleetCommand:
    """Sign an order and send it; as it was sent, when the broker has it. Raises `Unavailable`."""
    signed = authority_of(settings).sign(order, issuer)
    producer = AIOKafkaProducer(
        **connection_options(settings), acks="all", enable_idempotence=True, request_timeout_ms=REQUEST_TIMEOUT_MS
    )
    try:
        await access.start(producer, settings)
        await producer.send_and_wait(settings.topic("commands"), encode_order(signed), signed.scope.encode())
    except (KafkaError, OSError) as problem:
        raise access.not_allowed(settings, problem) or unavailable(settings, problem) from None
    finally:
        await producer.stop()
    return signed


def scope_of(part: str, name: str) -> str:
    """The scope of one user, tenant or run. Raises `InvalidEvent` for a name that is none."""
    if not name:
        raise InvalidEvent((Problem(part, "has no name", f"name the {part}"),))
    return f"{part}:{name}"
