"""An event loop in a daemon thread: what the blocking twins run on."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

STOP_TIMEOUT_S: Final = 5.0


class Background:
    """Starts at once. A fork takes the thread away: using it in the child raises `RuntimeError`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result here."""
        self._ours(coroutine)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while waiting
            raise

    def soon(self, function: Callable[[], None]) -> None:
        """Run a function there, soon. Raises `RuntimeError` where the loop is closed."""
        self._ours()
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._loop.is_closed() or os.getpid() != self._pid:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)

    def _ours(self, coroutine: Coroutine[Any, Any, Any] | None = None) -> None:
        if os.getpid() != self._pid:
            if coroutine is not None:
                coroutine.close()
            raise RuntimeError(
                "this was opened before a fork, and its thread stayed in the parent: open it in the child"
            )

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
