"""Records as the worker reads them: parsed by aiokafka's C code (`kafka.vendor.take_records`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from streamproc.fleet.record_signing import SignedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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
