"""Records as the worker reads them: parsed by aiokafka's C code (`kafka.vendor.take_records`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from streamproc.errors import Problem
from streamproc.fleet.record_signing import SignedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamproc.model.wire import Event

NO_VALUE: Final = Problem("event", "the record has no value", "publish an event as JSON")
UNREADABLE: Final = "publish one JSON object with run_id and node; `streamproc schema export` shows the fields"


class Fetched(SignedRecord, Protocol):
    """A record whose topic and partition the reader knows."""

    @property
    def offset(self) -> int: ...


class PlacedRecord(NamedTuple):
    """A record with its topic, partition and offset; the timestamp in milliseconds, and 1 as its type if it is the
    broker's."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    timestamp_type: int
    headers: Iterable[tuple[str, bytes]]


R_co = TypeVar("R_co", covariant=True)


class Records(Protocol[R_co]):
    """Records of one partition, oldest first, and their number once they are read."""

    def __iter__(self) -> Iterator[R_co]: ...

    def __len__(self) -> int: ...


def placed_record(record: Fetched, topic: str, partition: int) -> PlacedRecord:
    """Return the record together with its topic and partition."""
    return PlacedRecord(
        topic, partition, record.offset, record.timestamp, record.key, record.value, record.timestamp_type,
        record.headers,
    )  # fmt: skip


def too_large(value: bytes, bytes_max: int) -> Problem:
    """Return what is wrong with a record of this size."""
    what = f"{len(value)} bytes, more than {bytes_max}"
    return Problem("event", what, "publish fingerprints instead of content, or raise STREAMPROC_EVENT_BYTES_MAX")


def wrong_key(event: Event, key: bytes | None) -> Problem:
    """Return what is wrong with a record that has this key."""
    shown = "no key" if key is None else repr(key[:64])
    return Problem("key", f"{shown}, but the event's run_id is {event.run_id[:64]!r}", "set the record key to run_id")
