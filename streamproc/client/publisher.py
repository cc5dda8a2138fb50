"""`TurnPublisher`: tells the circuit breaker what the agents do, and is never in their way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

from streamproc.client.delivery import Delivery
from streamproc.client.encoding import Encoded, encode
from streamproc.client.outbox import Outbox
from streamproc.errors import InvalidEvent, Undelivered
from streamproc.fleet.signing import authority_of
from streamproc.kafka.session import client_settings
from streamproc.model.raw_events import parse_raw

if TYPE_CHECKING:
    from streamproc.client.fields import EventFields, NodeFields, RunStartedFields, TurnFields
    from streamproc.errors import Unavailable
    from streamproc.model.raw_events import RawEvent
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

TURNS_BETWEEN_YIELDS: Final = 64  # a loop that publishes and never waits must not starve the sender
INVALID_SHOWN_EVERY: Final = 1000  # with on_invalid="drop": a warning for the first, and for each thousandth


class TurnPublisher:
    """Publishes what each node of a run did. Use it as ``async with TurnPublisher() as turns:``.

    Content is turned into fingerprints here and stays here, unless `include_content` is set.

    **It does not stall or break the caller.** A call checks, fingerprints and buffers; a task in the background
    talks to Kafka. With the broker away, from the start or later, up to `buffer_max` events (and `buffer_bytes_max`
    bytes) wait for it. When the buffer is full a call waits up to `block_ms_max` ms for room, **once an outage**;
    then the oldest turns are dropped without waiting, counted in `dropped`, and one warning is logged. Leaving the
    ``async with`` waits up to `close_timeout_s` for the rest. Whoever would rather wait than lose (an import of a
    file) sets a large `block_ms_max`.

    An event that cannot be used is a mistake in the program and raises `InvalidEvent`; with ``on_invalid="drop"``
    (for production) it is counted in `invalid` and logged instead. A declared graph with a cycle that nothing can
    leave raises `UnsafeCycle`, and nothing is sent; with ``on_unsafe="publish"``, and wherever invalid events do not
    raise, it is sent all the same, and the worker halts the run (GRAPH001). With ``on_undelivered="raise"``, closing
    raises `Undelivered` where events were left over.

    Events of one run arrive in the order of the calls.
    """

    def __init__(
        self,
        brokers: str | None = None,
        *,
        settings: Settings | None = None,
        include_content: bool = False,
        on_invalid: Literal["raise", "drop"] = "raise",
        on_unsafe: Literal["raise", "publish"] = "raise",
        on_undelivered: Literal["log", "raise"] = "log",
        buffer_max: int = 10_000,
        buffer_bytes_max: int = 33_554_432,
        block_ms_max: int = 100,
        close_timeout_s: float = 5.0,
    ) -> None:
        self.settings = client_settings(brokers, settings)
        self.delivered = 0
        """Events that the broker acknowledged."""
        self.dropped = 0
        """Events lost: the buffer was full, the broker refused them, or they were left over at closing."""
        self.invalid = 0
        """Events that could not be used."""
        self.unknown_fields = 0
        """Fields that nobody knows, in all events together: misspelt ones, mostly."""
        self._authority = authority_of(self.settings)
        self._include_content = include_content
        self._on_invalid = on_invalid
        self._unsafe = on_unsafe == "publish" or on_invalid == "drop"
        self._on_undelivered = on_undelivered
        self._block_s_max = block_ms_max / 1000
        self._close_timeout_s = close_timeout_s
        self._outbox = Outbox(buffer_max, buffer_bytes_max)
        self._delivery = Delivery(self.settings, self._outbox, self._settled)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._overflowing = 0
        self._unyielded = 0
        self._progress = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Events that the broker has not acknowledged yet."""
        return self._outbox.events

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is being delivered; None while all is well."""
        return self._delivery.trouble

    # What there is to tell.

    async def turn(self, *, run_id: str, node: str, **fields: Unpack[TurnFields]) -> str:
        """What one node did. Returns the event's id (empty where it was invalid and dropped).

        Takes about 50 µs, and more for long texts. Raises `InvalidEvent` (see the class).
        """
        return await self._publish({"type": "turn", "run_id": run_id, "node": node, **fields})

    async def run_started(self, *, run_id: str, **fields: Unpack[RunStartedFields]) -> str:
        """A run begins: its graph, its budgets, its scope (workflow, tenant, user, tier).

        The graph may be a NetworkX directed graph or a LangGraph graph, too. Raises `UnsafeCycle`, naming every cycle
        that nothing can leave (see the class).
        """
        return await self._publish({"type": "run.started", "run_id": run_id, **fields})

    async def turn_started(self, *, run_id: str, node: str, **fields: Unpack[EventFields]) -> str:
        """A node begins a turn: should it never end, it is missed (BUDGET001, STALL007)."""
        return await self._publish({"type": "turn.started", "run_id": run_id, "node": node, **fields})

    async def run_finished(self, *, run_id: str, status: str = "", **fields: Unpack[EventFields]) -> str:
        """A run ended by itself."""
        return await self._publish({"type": "run.finished", "run_id": run_id, "status": status, **fields})

    async def user_message(self, *, run_id: str, **fields: Unpack[NodeFields]) -> str:
        """A person spoke: streaks that assume that nobody did start again."""
        return await self._publish({"type": "user.message", "run_id": run_id, **fields})

    async def operator_stop(self, *, run_id: str, by: str = "", reason: str = "", **fields: Unpack[EventFields]) -> str:
        """A person orders this run to stop."""
        return await self._publish({"type": "operator.stop", "run_id": run_id, "by": by, "reason": reason, **fields})

    async def operator_resume(
        self,
        *,
        run_id: str,
        grant: Mapping[str, Any] | None = None,
        by: str = "",
        reason: str = "",
        **fields: Unpack[EventFields],
    ) -> str:
        """A person lets a halted run go on; `grant` adds to its budgets: ``{"turns": 10, "cost": "0.50"}``."""
        own = {"grant": grant, "by": by, "reason": reason}
        return await self._publish({"type": "operator.resume", "run_id": run_id, **own, **fields})

    async def halt_acknowledged(
        self, *, run_id: str, by: str = "", reason: str = "", **fields: Unpack[EventFields]
    ) -> str:
        """Somebody has taken note of the run's halt, and takes care of it: it need not be escalated."""
        return await self._publish(
            {"type": "halt.acknowledged", "run_id": run_id, "by": by, "reason": reason, **fields}
        )

    async def event(self, kind: str, /, *, run_id: str, **fields: Any) -> str:
        """An event of any type, such as ``task.created``, with its own fields."""
        return await self._publish({**fields, "type": kind, "run_id": run_id})

    async def send(self, event: RawEvent | Mapping[str, Any]) -> str:
        """An event as it stands in a JSONL, or one that `streamproc.model.raw_events` has read already."""
        return await self._publish(event)

    # Opening and closing.

    async def start(self) -> None:
        """Begin to connect in the background. Returns at once, also when the broker is away."""
        if self._task is not None or self._closed:
            raise RuntimeError("a TurnPublisher is started once: make a new one")
        self._task = asyncio.create_task(self._delivery.run(), name="streamproc turns")

    async def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything published so far is acknowledged (or dropped). False where that took too long."""
        mark = self._outbox.newest
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._outbox.oldest() < mark:
                    await self._progress.wait()
        return self._outbox.oldest() >= mark

    async def close(self) -> None:
        """Deliver what is left, for at most `close_timeout_s`. Raises `Undelivered` only where that was asked for."""
        if self._task is None or self._closed:
            return
        self._closed = True
        try:
            await self.flush(self._close_timeout_s)
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])
        left = self._outbox.events
        if not left:
            return
        self.dropped += left
        reason = f": {self.trouble}" if self.trouble else ""
        message = f"{left} event(s) were not delivered within {self._close_timeout_s:g} s of closing{reason}"
        if self._on_undelivered == "raise":
            raise Undelivered(message)
        log.warning("%s", message)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Undelivered as undelivered:
            if error is None:
                raise
            log.warning("%s", undelivered)  # must not hide why the body failed

    async def _publish(self, event: RawEvent | Mapping[str, Any]) -> str:
        if self._task is None:
            raise RuntimeError("this TurnPublisher is not open: use `async with TurnPublisher() as turns:`")
        encoded = self.prepared(event)
        if encoded is None:
            return ""
        if not self.goes_on(encoded):
            await self.room(encoded)
        self.admit(encoded)
        self._unyielded += 1
        if self._unyielded >= TURNS_BETWEEN_YIELDS:
            self._unyielded = 0
            await asyncio.sleep(0)
        return encoded.event_id

    # The parts of publishing. The blocking twin calls the first two in its own thread, the others on the loop's.

    def prepared(self, event: RawEvent | Mapping[str, Any]) -> Encoded | None:
        """The event, encoded. None where it is invalid and `on_invalid` is "drop"."""
        try:
            raw = parse_raw(event) if isinstance(event, Mapping) else event
            self.unknown_fields += raw.unknown
            return encode(
                raw,
                include_content=self._include_content,
                bytes_max=self.settings.event_bytes_max,
                unsafe=self._unsafe,
                authority=self._authority,
            )
        except InvalidEvent as error:
            self.invalid += 1
            if self._on_invalid == "raise":
                raise
            if self.invalid % INVALID_SHOWN_EVERY == 1:
                log.warning("dropped an invalid event (%d so far): %s", self.invalid, error)
        except Exception:  # a bug of ours, or a value that no rule foresaw: not the agents' problem
            self.invalid += 1
            if self._on_invalid == "raise":
                raise
            log.exception("dropped an event that could not be encoded")
        return None

    def goes_on(self, encoded: Encoded, before_it: int = 0) -> bool:
        """Whether to admit at once: there is room, or an outage has had its wait. `before_it` are still to come."""
        return self._overflowing > 0 or self._closed or self._outbox.has_room(encoded.size, before_it)

    async def room(self, encoded: Encoded) -> None:
        """Wait for room, up to the stated bound."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._block_s_max):
                while not self.goes_on(encoded):
                    await self._progress.wait()

    def admit(self, encoded: Encoded) -> None:
        """Take the event into the buffer, for which others may be dropped."""
        if self._closed:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("an event came after closing and was dropped; such events are counted")
            return
        lane, dropped = self._outbox.add(encoded.key, encoded.value, encoded.at_ms, lasting=encoded.lasting)
        self._delivery.wake(lane)
        if dropped:
            self._overflow(dropped)

    def _overflow(self, dropped: int) -> None:
        if not self._overflowing:
            log.warning(
                "the buffer of %d events is full: the oldest turns are being dropped%s",
                self._outbox.events,
                f"; {self.trouble}" if self.trouble else "",
            )
        self._overflowing += dropped
        self.dropped += dropped
        self._changed()

    def _settled(self, delivered: int, refused: int) -> None:
        self.delivered += delivered
        self.dropped += refused
        if self._overflowing:
            log.warning("the buffer has room again: %d event(s) were dropped meanwhile", self._overflowing)
            self._overflowing = 0
        self._changed()

    def _changed(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()
