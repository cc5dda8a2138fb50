"""A stream of control events for a tool: ``async for control in halts.subscribe(): …``."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.model.controls import ControlEvent


class Subscription:
    """Control events as they come, each once; ends when the listener closes. A reader that is too slow loses the
    oldest ones, counted in `dropped`: the listener waits for nobody."""

    def __init__(self, buffer_max: int, closed: Callable[[Subscription], None]) -> None:
        self.dropped = 0
        self._events: deque[ControlEvent] = deque(maxlen=buffer_max)
        self._closed = closed
        self._open = True
        self._changed = asyncio.Event()

    def offer(self, control: ControlEvent) -> None:
        """A control event came."""
        if len(self._events) == self._events.maxlen:
            self.dropped += 1
        self._events.append(control)
        self._changed.set()

    def close(self) -> None:
        """End the stream, after what has come already."""
        if self._open:
            self._open = False
            self._changed.set()
            self._closed(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ControlEvent:
        while not self._events:
            if not self._open:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._events.popleft()
