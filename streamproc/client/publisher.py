"""`TurnPublisher`: publishes what agents do, without blocking or breaking them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Final, Literal

from streamproc.client.background import AsyncClient
from streamproc.client.delivery import Delivery
from streamproc.client.encoding import Encoded, encode_event, signed_as_worker
from streamproc.client.event_methods import EventMethods, Sent
from streamproc.client.outbox import Outbox
from streamproc.client.recent_texts import RECENT
from streamproc.errors import InvalidEvent, Unavailable, Undelivered, plural
from streamproc.fingerprint import HashKey, fingerprint, plain_turn
from streamproc.fingerprint.convergence import Convergence, Embed
from streamproc.fleet.signing import command_signer
from streamproc.fleet.standing_halts import halt_to_lift
from streamproc.kafka.session import client_settings
from streamproc.model.raw_events import RawEvent, parse_raw
from streamproc.model.redaction import redact_id
from streamproc.model.unknown_fields import UnknownFields
from streamproc.model.wire import Deadline, Event, Turn
from streamproc.settings import Settings
from streamproc.tracing.trace_context import current_traceparent, is_traceparent

log = logging.getLogger(__name__)

TURNS_BETWEEN_YIELDS: Final = 64  # a loop that publishes without waiting must not starve the sender
INVALID_SHOWN_EVERY: Final = 1000  # with on_invalid="drop": warn about the first, and then every thousandth


class BaseTurnPublisher(EventMethods[Sent]):
    """What `TurnPublisher` and its blocking counterpart share: options, counters, buffer and delivery."""

    def __init__(
        self,
        brokers: str | None = None,
        *,
        settings: Settings | None = None,
        include_content: bool = False,
        on_invalid: Literal["raise", "drop"] = "raise",
        on_unsafe: Literal["raise", "publish"] = "raise",
        on_undelivered: Literal["log", "raise"] = "log",
        strict: bool = False,
        buffer_max: int = 10_000,
        buffer_bytes_max: int = 33_554_432,
        block_ms_max: int = 100,
        close_timeout_s: float = 5.0,
        embed: Embed | None = None,
        proposers: Collection[str] = (),
    ) -> None:
        self.settings = client_settings(brokers, settings)
        self.delivered = 0
        """Events that the broker acknowledged."""
        self.dropped = 0
        """Events lost: the buffer was full, the broker refused them, or they were undelivered at closing."""
        self.invalid = 0
        """Events that were invalid."""
        self._unknown = UnknownFields(strict=strict)
        self._signer = command_signer(self.settings)
        self._run_token = self.settings.run_token.get_secret_value().encode()
        self._hash_key = HashKey.of(self.settings.hash_key.get_secret_value())
        self._convergence = Convergence(embed, proposers) if embed is not None else None
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
    def unknown_fields(self) -> int:
        """Unknown fields in all events together: mostly misspelt ones."""
        return self._unknown.total

    @property
    def unknown_field_counts(self) -> Mapping[str, int]:
        """How many events had each unknown field, for the first 40 names, such as ``tool_calls.argumets``."""
        return self._unknown.counts

    @property
    def waiting(self) -> int:
        """Events that the broker has not acknowledged yet."""
        return self._outbox.events

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is being delivered; None while delivery works."""
        return self._delivery.trouble

    # Opening and closing, on the loop's thread.

    async def _start(self) -> None:
        if self._task is not None or self._closed:
            raise RuntimeError("a TurnPublisher can be started only once: create a new one")
        self._task = asyncio.create_task(self._delivery.run(), name="streamproc turns")

    async def _flush(self, timeout_s: float) -> bool:
        mark = self._outbox.newest
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._outbox.oldest() < mark:
                    await self._progress.wait()
        return self._outbox.oldest() >= mark

    async def _close(self) -> None:
        if self._task is None or self._closed:
            return
        self._closed = True
        try:
            await self._flush(self._close_timeout_s)
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])
        left = self._outbox.events
        if not left:
            return
        self.dropped += left
        reason = f": {self.trouble}" if self.trouble else ""
        message = f"{plural(left, 'event')} not delivered within {self._close_timeout_s:g} s of closing{reason}"
        if self._on_undelivered == "raise":
            raise Undelivered(message)
        log.warning("%s", message)

    async def _halt_of(self, event: Mapping[str, Any]) -> str:
        """Return the halt that a resume lifts: the given one, or that of the run's status where it is signed."""
        if event["halt"] is None and self._signer.required:
            return await halt_to_lift(self.settings, redact_id(event["run_id"]))
        return event["halt"] or ""

    # The steps of publishing. For blocking code, the first two run in the caller's thread, the others on the loop's.

    def prepare(self, event: RawEvent | Event | Mapping[str, Any], traceparent: str = "") -> Encoded | None:
        """Return the event, encoded; None if it is invalid and `on_invalid` is "drop"."""
        try:
            if self._convergence is not None and isinstance(event, Mapping):
                event = self._convergence.measured(event)
            fingerprinted = self._fingerprinted(event)
            encoded = encode_event(
                fingerprinted,
                bytes_max=self.settings.event_bytes_max,
                unsafe=self._unsafe,
                signer=self._signer,
                run_token=self._run_token,
            )
            if isinstance(fingerprinted, Deadline):
                encoded = signed_as_worker(encoded, self.settings)
            if isinstance(event, Mapping) and event.get("type", "turn") == "turn":
                RECENT.note(self.settings, encoded.key.decode(), encoded.event_id, event)
            if not traceparent:
                traceparent = current_traceparent()
            elif not is_traceparent(traceparent):
                return encoded
            return encoded._replace(traceparent=traceparent) if traceparent else encoded
        except InvalidEvent as error:
            self.invalid += 1
            if self._on_invalid == "raise":
                raise
            if self.invalid % INVALID_SHOWN_EVERY == 1:
                log.warning("dropped an invalid event (%d so far): %s", self.invalid, error)
        except Exception:  # a bug in streamproc, or a value that no rule covers: it must not break the agents
            self.invalid += 1
            if self._on_invalid == "raise":
                raise
            log.exception("dropped an event that could not be encoded")
        return None

    def _fingerprinted(self, event: RawEvent | Event | Mapping[str, Any]) -> Event:
        if isinstance(event, Event):
            if isinstance(event, Turn) and not self._include_content:
                event.content = None
            return event
        if isinstance(event, Mapping):
            if not self._include_content and (turn := plain_turn(event, self._hash_key)) is not None:
                return turn
            raw = parse_raw(event)
            for sentence in self._unknown.add(raw):
                log.warning("ignored %s", sentence)
        else:
            raw = event
            self._unknown.add(raw)  # the caller has parsed the event and can report its unknown fields
        return fingerprint(raw, include_content=self._include_content, key=self._hash_key)

    def can_admit(self, encoded: Encoded, ahead: int = 0) -> bool:
        """Return whether to add the event without waiting: it fits after `ahead` more, or this outage had its wait."""
        return self._overflowing > 0 or self._closed or self._outbox.fits(encoded.size, ahead)

    async def wait_for_space(self, encoded: Encoded) -> None:
        """Wait for space in the buffer, for at most `block_ms_max`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._block_s_max):
                while not self.can_admit(encoded):
                    await self._progress.wait()

    def admit(self, encoded: Encoded) -> None:
        """Add the event to the buffer, which may drop older ones."""
        if self._closed:
            self.dropped += 1
            if self.dropped == 1:
                log.warning(
                    "an event was published after closing and dropped; further ones are only counted in `dropped`"
                )
            return
        partition, dropped = self._outbox.add(encoded)
        self._delivery.wake(partition)
        if dropped:
            self._overflow(dropped)

    def _overflow(self, dropped: int) -> None:
        if not self._overflowing:
            log.warning(
                "the buffer of %d events is full; dropping the oldest turns%s",
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
            log.warning("the buffer has space again; dropped %s", plural(self._overflowing, "event"))
            self._overflowing = 0
        self._changed()

    def _changed(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()


class TurnPublisher(BaseTurnPublisher[Coroutine[Any, Any, str]], AsyncClient):
    """Publishes what each node of a run did. Use it as ``async with TurnPublisher() as turns:``.

    Content is fingerprinted in this process and never leaves it, unless `include_content` is set.

    **It does not stall or break the caller.** A call checks, fingerprints and buffers; a background task talks to
    Kafka. While the broker is unavailable, from the start or later, up to `buffer_max` events (and `buffer_bytes_max`
    bytes) are buffered. When the buffer is full, a call waits up to `block_ms_max` ms for space, **once per outage**.
    After that the oldest turns are dropped without waiting, counted in `dropped`, and one warning is logged. Leaving
    the ``async with`` waits up to `close_timeout_s` for the rest. To wait rather than lose events (importing a file,
    for example), set a large `block_ms_max`.

    An invalid event is a mistake in the program and raises `InvalidEvent`; with ``on_invalid="drop"`` (for production)
    it is counted in `invalid` and logged instead. A declared graph with a cycle that has no exit raises `UnsafeCycle`,
    and nothing is sent. With ``on_unsafe="publish"``, and whenever invalid events do not raise, it is sent all the
    same, and the worker halts the run (GRAPH001). With ``on_undelivered="raise"``, closing raises `Undelivered` if
    events are left.

    Unknown fields are ignored, counted in `unknown_fields` and `unknown_field_counts`, and logged once for each name;
    with ``strict=True`` they make the event invalid.

    With `embed`, a function that returns a vector for a text, each proposal of a deliberation (a turn with a `round`)
    has its similarity to the one before it as `convergence`, unless it reports its own. The text stays here. If other
    nodes such as a facilitator report the `round` as well, `proposers` names those that make proposals.

    Events of one run arrive in the order of the calls.
    """

    async def send(self, event: RawEvent | Mapping[str, Any], *, traceparent: str = "") -> str:
        """Publish an event as a mapping, or one that `streamproc.model.raw_events` has parsed already.

        `traceparent` (W3C) names the span that it comes from, instead of the current one; an invalid one is ignored.
        """
        return await self._add(self.prepare(event, traceparent))

    async def send_fingerprinted(self, event: Event) -> str:
        """Publish an event that is fingerprinted already: of another log, for instance."""
        return await self._add(self.prepare(event))

    async def _add(self, encoded: Encoded | None) -> str:
        if self._task is None:
            raise RuntimeError("this TurnPublisher is not open: use `async with TurnPublisher() as turns:`")
        if encoded is None:
            return ""
        if not self.can_admit(encoded):
            await self.wait_for_space(encoded)
        self.admit(encoded)
        self._unyielded += 1
        if self._unyielded >= TURNS_BETWEEN_YIELDS:
            self._unyielded = 0
            await asyncio.sleep(0)
        return encoded.event_id

    async def _send_resume(self, event: dict[str, Any]) -> str:
        return await self.send(event | {"halt": await self._halt_of(event)})

    async def start(self) -> None:
        """Start connecting in the background. Returns at once, even if the broker is unavailable."""
        await self._start()

    async def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything published so far is acknowledged (or dropped). Returns False after `timeout_s`."""
        return await self._flush(timeout_s)

    async def close(self) -> None:
        """Deliver the buffered events within `close_timeout_s`.

        Raises `Undelivered` for the rest with ``on_undelivered="raise"``; otherwise logs it.
        """
        await self._close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Undelivered as undelivered:
            if error is None:
                raise
            log.warning("%s", undelivered)  # raising it would hide the body's own error


def _coroutine_function(method: Callable[..., Coroutine[Any, Any, str]]) -> Callable[..., Coroutine[Any, Any, str]]:
    """Return a method as an `async def`: mocks and frameworks look whether it is one."""

    @wraps(method)
    async def publish(self: TurnPublisher, *kind: str, **fields: Any) -> str:
        return await method(self, *kind, **fields)

    return publish


for _name, _method in vars(EventMethods).items():
    if not _name.startswith("_") and _name != "send":
        setattr(TurnPublisher, _name, _coroutine_function(_method))
