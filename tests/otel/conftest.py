"""A bridge without Kafka: its publisher keeps what it would send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamproc.otel import AssemblyLimits, SpanBridge, SpanReceiver


class KeptTurns:
    """Stands for a `TurnPublisher` whose broker has everything at once."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.waiting = 0
        self.trouble: Exception | None = None

    async def send(self, event: dict[str, Any], *, traceparent: str) -> str:
        trace_id, span_id = event["event_id"].split(":")[:2]
        assert traceparent == f"00-{trace_id}-{span_id}-01"
        self.events.append(event)
        return "sent"

    async def flush(self, _timeout_s: float = 5.0) -> bool:
        return True


class Served:
    """A receiver on loopback, its bridge, and what it publishes."""

    def __init__(self, limits: AssemblyLimits, **options: Any) -> None:
        self.turns = KeptTurns()
        self.bridge = SpanBridge(self.turns, limits=limits)  # type: ignore[arg-type]
        self.receiver = SpanReceiver(self.bridge, **options)
        self.url = ""

    async def start(self) -> None:
        self.url = f"http://127.0.0.1:{await self.receiver.start('127.0.0.1', 0)}"
        self._task = asyncio.create_task(self.bridge.run())

    async def stop(self) -> None:
        await self.receiver.stop()
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A receiver without a token that waits for nothing."""
    found = Served(AssemblyLimits(reorder_s=0.0))
    await found.start()
    yield found
    await found.stop()
