"""From spans to the turns topic: what the HTTP receiver and the reader of a topic share."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from streamproc.importers.genai_spans import SpanRecord, is_known, step_of
from streamproc.kafka.session import run_until_one_ends
from streamproc.otel.assembly import Event, TraceAssembly

if TYPE_CHECKING:
    from streamproc.errors import Unavailable
    from streamproc.otel.assembly import AssemblyLimits

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
COUNTS_EVERY_S: Final = 60.0
YIELD_S: Final = 0.02  # after which others have their turn on the event loop; a span may hold megabytes of JSON
FULL_SHARE: Final = 0.8  # of the publisher's buffer: from there on no spans are accepted
BUFFER_MAX: Final = 10_000  # events of the publisher
STOP_FLUSH_S: Final = 5.0
TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
SPAN_ID: Final = re.compile(r"[0-9a-f]{16}")


class Taken(NamedTuple):
    """What became of the spans of a request: how many were refused, and why (one reason, for a person)."""

    refused: int = 0
    why: str = ""


class SpanPublisher(Protocol):
    """Where turns go: a `TurnPublisher`, or what judges them in this process."""

    @property
    def waiting(self) -> int: ...

    @property
    def trouble(self) -> Unavailable | None: ...

    async def send(self, event: Mapping[str, Any], *, traceparent: str = "") -> str: ...

    async def flush(self, timeout_s: float = 5.0) -> bool: ...


class SpanBridge:
    """Maps spans to raw turns and publishes their fingerprints. Content stays in this process.

    `run_by` says what a run is, as for `step_of`. The publisher must be open before `run`, and drop invalid events
    instead of raising.
    """

    def __init__(
        self,
        publisher: SpanPublisher,
        *,
        limits: AssemblyLimits | None = None,
        run_by: Sequence[str] = ("conversation", "session"),
    ) -> None:
        self.assembly = TraceAssembly(limits)
        self.counts: Counter[str] = Counter()
        """Spans received, ignored (no agent's) and refused, and events published."""
        self._publisher = publisher
        self._run_by = run_by
        self._noted: set[str] = set()
        self._unacknowledged: list[Callable[[], None]] = []  # of spans that are no part of a trace
        self._settling = asyncio.Lock()

    @property
    def full(self) -> bool:
        """Whether no more spans should be accepted for now: the broker is away, or slower than the programs."""
        return self._publisher.waiting >= FULL_SHARE * BUFFER_MAX

    @property
    def delivering(self) -> bool:
        """Whether events reach the broker."""
        return self._publisher.trouble is None

    async def take(self, spans: Iterable[SpanRecord], settled: Callable[[], None] | None = None) -> Taken:
        """Take the spans of a request. Never raises for what they hold.

        `settled` is called for each of them, once its turn is acknowledged or it is known to have none.
        """
        refused, why, began = 0, "", time.monotonic()
        for span in spans:
            problem = self._add(span, settled)
            if problem:
                refused, why = refused + 1, why or problem
            if time.monotonic() - began >= YIELD_S:
                await asyncio.sleep(0)
                began = time.monotonic()
        return Taken(refused, why)

    def _add(self, span: SpanRecord, settled: Callable[[], None] | None) -> str:
        self.counts["received"] += 1
        if not TRACE_ID.fullmatch(span.trace_id) or not SPAN_ID.fullmatch(span.span_id):
            return self._refused("a span has no valid trace id and span id", settled)
        known = is_known(span)
        if known and not span.end_ns:
            return self._refused("a span of an agent has no end time", settled)
        if not known and not self.assembly.holds(span.trace_id):
            # A span that is above an agent's ends after it: this one cannot join any.
            self.counts["ignored"] += 1
            if settled is not None:
                self._unacknowledged.append(settled)
            return ""
        self.assembly.add(step_of(span, self._run_by), time.monotonic(), settled)
        return ""

    def _refused(self, why: str, settled: Callable[[], None] | None) -> str:
        self.counts["refused"] += 1
        self._note(f"refused spans: {why}")
        if settled is not None:
            self._unacknowledged.append(settled)
        return why

    async def run(self) -> None:
        """Publish what is complete, until cancelled."""
        await run_until_one_ends(self._publish_due(), self._acknowledge())

    async def _publish_due(self) -> None:
        counted = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            await self._publish(self.assembly.due(now))
            if now - counted >= COUNTS_EVERY_S:
                counted = now
                log.info("counts %s", self.summary)

    async def _acknowledge(self) -> None:
        """Call `settled` of spans once the broker has their turns."""
        while True:
            await asyncio.sleep(TICK_S)
            async with self._settling:
                if done := self._handled():
                    while not await self._publisher.flush():
                        pass
                    for settled in done:
                        settled()

    async def flush(self) -> bool:
        """Publish what there is of all traces, and wait a short time until the broker has it. Return whether it has."""
        await self._publish(self.assembly.flush(time.monotonic()))
        delivered = await self._publisher.flush(STOP_FLUSH_S)
        if delivered:
            async with self._settling:  # not before those that are being acknowledged: their offsets come first
                for settled in self._handled():
                    settled()
        return delivered

    def _handled(self) -> list[Callable[[], None]]:
        handled = [*self._unacknowledged, *self.assembly.settled]
        self._unacknowledged.clear()
        self.assembly.settled.clear()
        return handled

    @property
    def summary(self) -> str:
        """The counts as one line."""
        names = ("received", "ignored", "refused", "published")
        own = " ".join(f"{name}={self.counts[name]}" for name in names)
        held = self.assembly
        return f"{own} repeated={held.repeated} late={held.late} early={held.early} traces={len(held)}"

    async def _publish(self, events: list[Event]) -> None:
        for event in events:
            if await self._publisher.send(event, traceparent=_traceparent_of(event)):
                self.counts["published"] += 1
        for note in self.assembly.notes:
            self._note(note)
        self.assembly.notes.clear()

    def _note(self, sentence: str) -> None:
        """Log a sentence once in the life of the process."""
        if sentence not in self._noted:
            self._noted.add(sentence)
            log.warning("%s (said once)", sentence)


def _traceparent_of(event: Event) -> str:
    """Return the span of an event, which its id names: ``TRACE:SPAN``, with more after it where a span has several."""
    trace_id, _, rest = str(event.get("event_id", "")).partition(":")
    return f"00-{trace_id}-{rest.partition(':')[0]}-01"
