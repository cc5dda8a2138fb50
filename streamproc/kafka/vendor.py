"""The private parts of aiokafka that streamproc uses, all of them: no other file may touch one.

`tests/kafka/test_vendor.py` has a test for each, which names what a new release of aiokafka has changed; its version is
pinned exactly. `worker/vendor.py` is the same for Faust and mode.
"""

from __future__ import annotations

import asyncio
import time
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult
from aiokafka.errors import ConsumerStoppedError, CorruptRecordException, KafkaConnectionError, KafkaError

from streamproc.kafka.checksums import Checksums
from streamproc.kafka.fetch_response import QuickFetchResponse, decode_quickly

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient

# The next fetch leaves after this time in any case: a reader that is busy for longer reads ahead meanwhile.
HOLD_MAX_S: Final = 0.001
# Taking the records of several partitions, and unpacking those of one (10 MB or 10 000 turns; compressed ones may be
# 100 times larger): beyond this, the event loop would wait.
TAKE_S: Final = 0.05
UNPACK_S: Final = 0.01


def treat_resets_as_disconnects() -> None:
    """Patch aiokafka: in this process, writing to a closed connection raises `KafkaConnectionError`.

    aiokafka treats an `OSError` on write as a broken connection and opens a new one. If the connection was closed a
    moment ago, uvloop raises a `RuntimeError` instead (https://github.com/aio-libs/aiokafka/issues/1038). That ends
    background tasks of aiokafka without a trace. Once its metadata task has ended, all others wait for it for ever, and
    nothing is sent or committed any more. asyncio's own loop is not affected.
    """
    if not hasattr(AIOKafkaConnection.send, "__wrapped__"):
        for name in ("send", "_send_sasl_token"):
            setattr(AIOKafkaConnection, name, _with_connection_error(getattr(AIOKafkaConnection, name)))


def _with_connection_error(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def wrapper(self: AIOKafkaConnection, *args: Any, **kwargs: Any) -> Any:
        try:
            return send(self, *args, **kwargs)
        except KafkaError:  # is a RuntimeError too
            raise
        except RuntimeError as problem:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} broken: {problem}") from problem

    return wrapper


# Clients


def network_client(client: Any) -> Any:
    """Return the `AIOKafkaClient` of a consumer, a producer or an admin client."""
    return client.client if hasattr(client, "client") else client._client


async def ask(admin: AIOKafkaAdminClient, request: Any, *, controller: bool = False) -> Any:
    """Return the answer of some broker, or of the controller, to a request that the admin client has no method for."""
    return await (admin._send_to_controller if controller else admin._send_request)(request)


def end_at_once(producer: AIOKafkaProducer) -> asyncio.Task[None] | None:
    """Make a producer send nothing more; return its task, which is cancelled."""
    producer._closed = True
    sender: asyncio.Task[None] | None = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    return sender


# Groups


def is_member(consumer: Any) -> bool:
    """Whether a consumer is a member of its group and has got its partitions, of which there may be none for it."""
    return has_joined(consumer) and not consumer._subscription.reassignment_in_progress


def has_joined(consumer: Any) -> bool:
    """Whether the group counts a consumer among its members. False: it was expelled, or has not joined yet."""
    coordinator = consumer._coordinator if consumer is not None else None
    return coordinator is not None and bool(coordinator.generation > 0)


def raise_coordination_error(consumer: Any) -> None:
    """Raise the error that has ended aiokafka's coordination with the group, if one has. It never starts again."""
    if consumer is not None and not consumer._closed and consumer._coordinator is not None:
        ended = consumer._coordinator._coordination_task
        if ended.done() and not ended.cancelled() and (error := ended.exception()) is not None:
            raise KafkaError("aiokafka coordinates no more") from error


async def committed_metadata(consumer: Any, place: TopicPartition) -> tuple[int | None, str]:
    """Return the committed offset of a partition (None: there is none yet) and its metadata."""
    found = (await consumer._coordinator.fetch_committed_offsets([place])).get(place)
    return (None, "") if found is None or found.offset < 0 else (int(found.offset), str(found.metadata or ""))


# Fetching


def wait_for_fetches(consumer: Any, ms: int) -> None:
    """Let brokers hold a fetch without records for so long, where the consumer was made with another time."""
    consumer._fetch_max_wait_ms = ms


def next_offset(consumer: Any, place: Any) -> int | None:
    """Return the offset of the next record to fetch, beyond deleted ones and marks of transactions; None: unknown."""
    assignment = getattr(consumer._subscription.subscription, "assignment", None)
    state = assignment.state_value(place) if assignment is not None else None
    return state._position if state is not None else None


def untaken(consumer: Any) -> Collection[TopicPartition]:
    """Return the partitions of which records were fetched that no reader has taken."""
    partitions: Collection[TopicPartition] = consumer._fetcher._records.keys()
    return partitions


def decode_fetches(consumer: AIOKafkaConsumer) -> None:
    """Let all fetches of a started consumer be decoded by `fetch_response`, which checks their batches. `take_fetched`
    does not check them again."""
    fetcher: Any = consumer._fetcher
    fetch = fetcher._proc_fetch_request
    fetcher.checksums = Checksums()
    response = type("CheckedFetchResponse", (QuickFetchResponse,), {"checksums": fetcher.checksums})

    async def decoding(assignment: Any, node_id: int, request: Any) -> bool:
        decode_quickly(request, response)
        found: bool = await fetch(assignment, node_id, request)
        return found

    fetcher._proc_fetch_request = decoding


def read_first(consumer: AIOKafkaConsumer) -> None:
    """Let readers of a started consumer handle fetched records before its next fetch leaves, and get them sooner.

    When a fetch has returned, aiokafka lists all partitions, encodes the next request, and writes it; a reader that
    waits for records gets them in between, several turns of the event loop later. Here the reader comes first, and the
    next fetch leaves when the reader waits again: a third of a millisecond less for each decision and cancelled task.
    """
    _ReaderFirst(consumer._fetcher)


class _ReaderFirst:
    """Stands between a fetcher and its reader."""

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher
        self._fetch = fetcher._proc_fetch_request
        self._new_waiter = fetcher._create_fetch_waiter
        self._held: set[asyncio.Future[None]] = set()  # finished fetches: the next one of each waits for the reader
        fetcher._proc_fetch_request = self._fetch_and_hold
        fetcher._create_fetch_waiter = self._wait_again

    async def _fetch_and_hold(self, assignment: Any, node_id: int, request: Any) -> bool:
        """Fetch from a broker; return whether there are records of which no reader knows yet.

        If a reader waits for records, it gets them here, and this fetch ends when the reader waits again. Until then
        the fetcher sends no other one to this broker.
        """
        found: bool = await self._fetch(assignment, node_id, request)
        waiters = tuple(self._fetcher._fetch_waiters)
        if not found or not waiters:
            return found
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(self._fetch_again)
        self._fetcher._wait_consume_future = None  # the fetcher is woken up once, by the end of this fetch
        for waiter in waiters:
            self._fetcher._notify(waiter)
        loop = asyncio.get_running_loop()
        held: asyncio.Future[None] = loop.create_future()
        self._held.add(held)
        timer = loop.call_later(HOLD_MAX_S, self._fetcher._notify, held)
        try:
            await held
        except asyncio.CancelledError:
            return False  # as aiokafka's own: the partitions are revoked, or the consumer is closing
        finally:
            timer.cancel()
            self._held.discard(held)
        return False

    def _fetch_again(self, _ended: object) -> None:
        """Wake up the fetcher once it knows that no fetch from this broker is under way.

        If it is woken up between the end of a fetch and this call, it sees no broker to fetch from, and would wait for
        0.2 s.
        """
        self._fetcher._notify(self._fetcher._wait_consume_future)

    def _wait_again(self) -> Any:
        """Return the future of a reader that waits for records; the fetches that it held up go on."""
        for held in self._held:
            self._fetcher._notify(held)
        return self._new_waiter()


# Taking records, as `getmany` does, without the object that it makes of each: it unwraps every record in two Python
# calls and a generator, and copies it into an object of eleven fields, two thirds of what reading costs. These return
# the batches of aiokafka's C code.


async def take_records(consumer: Any, places: Any, timeout_s: float) -> dict[Any, list[Any]]:
    """Return fetched records of these partitions; none after the timeout (0: what is there).

    Raises `KafkaError` if aiokafka has stopped fetching, which it does for ever after an error that it did not expect.
    """
    fetcher = consumer._fetcher
    if consumer._closed or fetcher._closed:
        raise ConsumerStoppedError
    if fetcher._fetch_task.done():
        raise KafkaError("aiokafka fetches no more") from fetcher._fetch_task.exception()
    subscriptions = fetcher._subscriptions
    with subscriptions.fetch_context():
        if subscriptions.reassignment_in_progress:
            if not timeout_s:
                return {}
            await subscriptions.wait_for_assignment()
        if (found := take_fetched(fetcher, places)) or not timeout_s:
            return found
        waiter = fetcher._create_fetch_waiter()
        timer = asyncio.get_running_loop().call_later(timeout_s, fetcher._notify, waiter)
        try:
            await waiter  # raises if reading is not allowed
        finally:
            timer.cancel()
        return {} if fetcher._closed or subscriptions.reassignment_in_progress else take_fetched(fetcher, places)


def take_fetched(fetcher: Any, places: Any) -> dict[Any, list[Any]]:
    """Return the records of these partitions that a fetcher has; what they are larger than `TAKE_S` allows stays."""
    found: dict[Any, list[Any]] = {}
    end_s = time.monotonic() + TAKE_S
    for place, result in list(fetcher._records.items()):
        if place not in places:
            if not fetcher._subscriptions.is_assigned(place):
                del fetcher._records[place]
            continue
        if type(result) is not FetchResult and found:
            break  # an error, to be raised once there are no records before it
        del fetcher._records[place]
        fetcher._notify(fetcher._wait_consume_future)
        if type(result) is not FetchResult:
            result.check_raise()
            continue
        checksums = getattr(fetcher, "checksums", None)
        records = unpack(result, check=checksums is None or not checksums.intact)
        if result.has_more():
            fetcher._records[place] = result  # no fetch is sent for this partition until all is taken
        if records:
            found[place] = records
            if time.monotonic() >= end_s:
                break  # the other partitions come with the next call
    return found


def unpack(result: Any, *, check: bool = True) -> list[Any]:
    """Return the next records of a partition's fetch: whole batches, for `UNPACK_S`. The rest stays in the result.

    Raises `CorruptRecordException` for a wrong checksum.
    """
    partition = result._partition_records
    if partition is None or partition._isolation_level == READ_COMMITTED:
        return list(result.getall())
    if not result.check_assignment(result._topic_partition):
        return []
    records: list[Any] = []
    batches = partition._records
    end_s = time.monotonic() + UNPACK_S
    while more := batches.has_next():
        batch = batches.next_batch()
        if check and partition._check_crcs and not batch.validate_crc():
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
