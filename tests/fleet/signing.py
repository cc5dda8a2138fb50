"""Keys for the tests of signatures, and records as a consumer returns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka import ConsumerRecord

from streamproc.fleet.keyring import Keyring, new_keys
from streamproc.fleet.record_signing import LogPlace, RecordSigner
from streamproc.fleet.signing import CommandSigner

NOON_MS = 1_769_860_800_000
PREFIX = "streamproc"

WORKER, WORKER_PUBLIC = new_keys("workers", ed25519=True)
OPERATOR, OPERATOR_PUBLIC = new_keys("ops", ed25519=True)

WORKERS = RecordSigner(Keyring([WORKER]), PREFIX, required=True)
READERS = RecordSigner(Keyring([WORKER_PUBLIC]), PREFIX, required=True)
OPERATORS = CommandSigner(Keyring([OPERATOR]), PREFIX, required=True)
AGENTS = CommandSigner(Keyring([OPERATOR_PUBLIC]), PREFIX, required=True)
TRUSTED_CHANNEL = CommandSigner(Keyring(), PREFIX, required=False)


def record(
    role: str,
    key: bytes | None,
    value: bytes | None,
    *,
    at_ms: int = NOON_MS,
    headers: Sequence[tuple[str, bytes]] = (),
    **fields: Any,
) -> ConsumerRecord[Any, Any]:
    """A record, unsigned."""
    given = {
        "topic": f"{PREFIX}.{role}", "partition": 0, "offset": 0, "timestamp": at_ms, "timestamp_type": 1, "key": key,
        "value": value, "checksum": None, "serialized_key_size": 0, "serialized_value_size": 0,
        "headers": tuple(headers),
    }  # fmt: skip
    return ConsumerRecord(**(given | fields))


def signed(
    role: str,
    key: bytes | None,
    value: bytes | None,
    place: LogPlace,
    *,
    by: RecordSigner = WORKERS,
    headers: Sequence[tuple[str, bytes]] = (),
    **fields: Any,
) -> ConsumerRecord[Any, Any]:
    """A record that a worker has signed."""
    given = {"at_ms": place.signed_ms} | fields
    return record(role, key, value, headers=(*headers, by.sign(role, key, value, place)), **given)
