"""Records as the worker reads them: parsed by aiokafka, without the object that it makes of each.

A consumer's `getmany` unwraps every record in two Python calls and a generator, and copies it into an object of eleven
fields: two thirds of what reading costs. The worker needs a few of these fields, so this module returns the
batches of aiokafka's C code. It depends on aiokafka's internals; `deploy` pins the version.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult
from aiokafka.errors import CorruptRecordException

from streamproc.fleet.record_signing import SignedRecord
from streamproc.worker.limits import SLICE_S, UNPACK_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from faust.types import TP


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
        topic,
        partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        record.timestamp_type,
        record.headers,
    )


async def take_fetched(fetcher: Any, tps: set[TP], timeout_s: float) -> dict[TP, list[Any]]:
    """Return fetched records of these partitions, as `getmany` does; none after the timeout (0: what is there)."""
    if not timeout_s:
        return {} if fetcher._subscriptions.reassignment_in_progress else _taken(fetcher, tps)
    if fetcher._subscriptions.reassignment_in_progress:
        await fetcher._subscriptions.wait_for_assignment()
    found = _taken(fetcher, tps)
    if found:
        return found
    waiter = fetcher._create_fetch_waiter()
    timer = asyncio.get_running_loop().call_later(timeout_s, fetcher._notify, waiter)
    try:
        await waiter  # raises if reading is not allowed
    finally:
        timer.cancel()
    if fetcher._closed:
        return {}
    return {} if fetcher._subscriptions.reassignment_in_progress else _taken(fetcher, tps)


def _taken(fetcher: Any, tps: set[TP]) -> dict[TP, list[Any]]:
    found: dict[TP, list[Any]] = {}
    end_s = time.monotonic() + SLICE_S
    for tp, result in list(fetcher._records.items()):
        if tp not in tps:
            if not fetcher._subscriptions.is_assigned(tp):
                del fetcher._records[tp]
            continue
        if type(result) is not FetchResult and found:
            break  # an error, to be raised once there are no records before it
        del fetcher._records[tp]
        fetcher._notify(fetcher._wait_consume_future)
        if type(result) is not FetchResult:
            result.check_raise()
            continue
        records = _unpacked(result)
        if result.has_more():
            fetcher._records[tp] = result  # no fetch is sent for this partition until all is taken
        if records:
            found[tp] = records
            if time.monotonic() >= end_s:
                break  # the other partitions come with the next call
    return found


def _unpacked(result: Any) -> list[Any]:
    """Return the next records of a partition's fetch: whole batches, for `UNPACK_S`. The rest stays in the result.

    A compressed fetch may have a hundred times its size in records. Raises `CorruptRecordException` for a wrong
    checksum.
    """
    partition = result._partition_records
    if partition is None or partition._isolation_level == READ_COMMITTED:
        return result.getall()
    if not result.check_assignment(result._topic_partition):
        return []
    records: list[Any] = []
    batches = partition._records
    end_s = time.monotonic() + UNPACK_S
    while more := batches.has_next():
        batch = batches.next_batch()
        if partition._check_crcs and not batch.validate_crc():
            raise CorruptRecordException(f"Invalid CRC - {result._topic_partition}")
        if not batch.is_control_batch:
            before, wanted = len(records), partition.next_fetch_offset
            records.extend(batch)
            if len(records) > before and records[before].offset < wanted:  # a seek into the middle of a batch
                records[before:] = [record for record in records[before:] if record.offset >= wanted]
        partition.next_fetch_offset = batch.next_offset
        if records and time.monotonic() >= end_s:
            more = batches.has_next()
            break
    result._update_position()
    if not more:
        result._partition_records = None
    return records
