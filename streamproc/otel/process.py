"""The process of `streamproc otel`: receiver, reader of a topic, bridge and publisher, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from streamproc.client import HaltListener, TurnPublisher
from streamproc.metrics import definitions, exposing
from streamproc.metrics.clients import publisher_readings
from streamproc.metrics.readings import Reading
from streamproc.otel.assembly import AssemblyLimits
from streamproc.otel.bridge import BUFFER_MAX, SpanBridge
from streamproc.otel.receiver import SpanReceiver
from streamproc.otel.span_topic import SpanTopicReader
from streamproc.settings import LOOPBACK, Settings

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class SpanSources:
    """Where spans come from, and what a run is."""

    host: str
    port: int
    topic: str = ""
    group: str = ""
    run_by: Sequence[str] = ("conversation", "session")
    halts: bool = False
    """Whether programs may ask `GET /halted/RUN`."""


async def serve(settings: Settings, sources: SpanSources, limits: AssemblyLimits) -> None:
    """Receive spans until SIGTERM or SIGINT; then accept no more, publish what there is, and return."""
    token = settings.otel_token.get_secret_value()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    async with (
        contextlib.AsyncExitStack() as stack,
        TurnPublisher(
            settings=settings, on_invalid="drop", buffer_max=BUFFER_MAX, close_timeout_s=CLOSE_TIMEOUT_S
        ) as publisher,
    ):
        bridge = SpanBridge(publisher, limits=limits, run_by=sources.run_by)
        reader = SpanTopicReader(settings, bridge, sources.topic, sources.group) if sources.topic else None
        await stack.enter_async_context(
            exposing(settings, lambda: bridge_readings(bridge, publisher), lambda: _missing(stop, bridge, reader))
        )
        listener = (
            await stack.enter_async_context(HaltListener(settings=settings, wait=False)) if sources.halts else None
        )
        receiver = SpanReceiver(bridge, token=token, halts=listener)
        port = await receiver.start(sources.host, sources.port)
        log.info("listening on http://%s:%d/v1/traces", sources.host, port)
        if not token and sources.host not in LOOPBACK:
            log.warning("other machines can send spans without a token: set STREAMPROC_OTEL_TOKEN")
        tasks = [asyncio.create_task(bridge.run())]
        if reader is not None:
            tasks.append(asyncio.create_task(reader.run()))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        await receiver.stop()
        if reader is not None:
            reader.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(tasks[1]), 4 * CLOSE_TIMEOUT_S)
        for task in (*tasks, stopping):
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        await bridge.flush()
        log.info("stopped %s", bridge.summary)
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome


def _missing(stop: asyncio.Event, bridge: SpanBridge, reader: SpanTopicReader | None) -> list[str]:
    """Return why spans cannot be taken now, in words."""
    if stop.is_set():
        return ["stopping"]
    found = [] if bridge.delivering and not bridge.full else ["turns are not delivered"]
    if reader is not None and not reader.joined:
        found.append("joining the consumer group")
    return found


def bridge_readings(bridge: SpanBridge, publisher: TurnPublisher) -> Iterator[Reading]:
    """Yield what a bridge and its publisher have counted."""
    held = bridge.assembly
    outcomes = {
        "turn": held.turns, "usage": held.usage, "ignored": bridge.counts["ignored"] + held.wrappers + held.repeated,
        "refused": bridge.counts["refused"], "late": held.late,
    }  # fmt: skip
    for outcome in definitions.SPAN_OUTCOMES:
        yield Reading(definitions.OTEL_SPANS, outcomes[outcome], (outcome,))
    yield from publisher_readings([publisher])
