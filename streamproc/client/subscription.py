"""A stream of control events for a tool: ``async for control in halts.subscribe(): …``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self

from streamproc.model.controls import ControlEvent


class Subscription:
    """Control events as they arrive, each once; ends when the listener closes.

    A slow reader loses the oldest events, counted in `dropped`: the listener never waits for readers.
    """

    def __init__(self, buffer_max: int, closed: Callable[[Subscription], None], *, unverified: bool = False) -> None:
        self.dropped = 0
        self.unverified = unverified
        """Whether events that no worker has signed are delivered too."""
        self._events: deque[ControlEvent] = deque(maxlen=buffer_max)
        self._closed = closed
        self._open = True
        self._changed = asyncio.Event()

    def offer(self, control: ControlEvent) -> None:
        """Add a control event."""
        if len(self._events) == self._events.maxlen:
            self.dropped += 1
        self._events.append(control)
        self._changed.set()

    def close(self) -> None:
        """End the stream after the events that are buffered already."""
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


class Callback(Subscription):
    """Control events given to a function as they arrive, in the listener's thread."""

    def __init__(self, function: Callable[[ControlEvent], None], closed: Callable[[Subscription], None]) -> None:
        super().__init__(1, closed)
        self._function = function

    def offer(self, control: ControlEvent) -> None:
        """Pass a control event on."""
        self._function(control)
