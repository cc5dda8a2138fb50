"""Heartbeats as records of the workers topic, for the tests of their readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka import ConsumerRecord

from streamproc.fleet.record_signing import LogPlace, RecordSigner
from streamproc.fleet.workers import ROLE
from streamproc.model.heartbeat import Heartbeat, encode_heartbeat

NOON_MS = 1_769_860_800_000


def heartbeat(
    worker: str = "w1", at_ms: int = NOON_MS, state: str = "deciding", owned: Sequence[int] = (0,), **fields: Any
) -> Heartbeat:
    """A heartbeat of a worker that decides on these partitions, of four, unless `fields` say otherwise."""
    given: dict[str, Any] = {
        "w": 1, "worker": worker, "state": state, "at": at_ms, "of": 4, "partitions": list(owned),
        "positions": [10] * len(owned), "deciding_at": at_ms,
    }  # fmt: skip
    return Heartbeat(**(given | fields))


def as_record(
    beat: Heartbeat | None, *, by: RecordSigner | None = None, late_ms: int = 0, key: bytes | None = None, **fields: Any
) -> ConsumerRecord[Any, Any]:
    """The record of a heartbeat, stored so long after its time; without one, a tombstone of `key`."""
    value = encode_heartbeat(beat) if beat is not None else None
    key = key if key is not None else beat.worker.encode() if beat is not None else b""
    at_ms = beat.at if beat is not None else fields.pop("at_ms", NOON_MS)
    given: dict[str, Any] = {
        "topic": "streamproc.workers", "partition": 0, "offset": 0, "timestamp": at_ms + late_ms, "timestamp_type": 1,
        "key": key, "value": value, "checksum": None, "serialized_key_size": 0, "serialized_value_size": 0,
        "headers": (by.sign(ROLE, key, value, LogPlace(-1, -1, at_ms)),) if by is not None else (),
    }  # fmt: skip
    return ConsumerRecord(**(given | fields))
