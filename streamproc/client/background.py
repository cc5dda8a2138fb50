"""The bases of the clients: of those with asyncio, and of the blocking ones, whose event loop has a daemon thread."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar

T = TypeVar("T")

STOP_TIMEOUT_S: Final = 5.0


class Background:
    """An event loop in a daemon thread of its own; starts at once.

    A fork does not copy the thread: using the loop in the child process raises `RuntimeError`.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        self._check_process(coroutine)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while waiting
            raise

    def call_soon(self, function: Callable[[], object]) -> None:
        """Schedule a function on the loop. Raises `RuntimeError` if the loop is closed."""
        self._check_process()
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Stop the loop and its thread."""
        if self._loop.is_closed() or os.getpid() != self._pid:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)

    def _check_process(self, coroutine: Coroutine[Any, Any, Any] | None = None) -> None:
        if os.getpid() != self._pid:
            if coroutine is not None:
                coroutine.close()
            raise RuntimeError(
                "opened before a fork, and its thread stayed in the parent process: open it in the child"
            )

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


class AsyncClient(ABC):
    """Opens and closes with ``async with``."""

    @abstractmethod
    async def start(self) -> None:
        """Open the client."""

    @abstractmethod
    async def close(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class BlockingClient(ABC):
    """Opens and closes an asyncio client in a background thread: once, and at the latest when the interpreter exits.

    A class inherits from this one after the part that it shares with its asyncio counterpart.
    """

    thread_name: ClassVar[str]
    usage: ClassVar[str]
    """The ``with`` statement to show in error messages."""
    _background: Background | None = None
    _has_own_thread = True
    _close_called = False

    @abstractmethod
    async def _start(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    def start(self, background: Background | None = None) -> None:
        """Start the background thread and the client in it. Raises what the asyncio client's `start` raises.

        In a given `background` the client shares a thread with others: who gives it closes this client, then stops it.
        """
        if self._background is not None:
            raise RuntimeError(f"a {type(self).__name__} can be started only once: create a new one")
        self._has_own_thread = background is None
        self._background = background or Background(self.thread_name)
        if self._has_own_thread:
            atexit.register(self.close)
        try:
            self._background.call(self._start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the client and stop its thread. Raises what the asyncio client's `close` raises."""
        background = self._background
        if background is None or self._close_called:
            return
        self._close_called = True
        atexit.unregister(self.close)
        try:
            background.call(self._close())
        finally:
            if self._has_own_thread:
                background.stop()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._close_called

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> Background:
        """Return the background loop, also after closing. Raises `RuntimeError` before `start`."""
        if self._background is None:
            raise RuntimeError(f"this {type(self).__name__} is not open: use `{self.usage}`")
        return self._background
