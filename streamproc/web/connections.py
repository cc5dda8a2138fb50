"""The pages that are open in browsers, each with a stream of changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

if TYPE_CHECKING:
    from streamproc.read_model.reader import ChangeSubscription, ModelReader
    from streamproc.web.access import Session

CONNECTIONS_MAX: Final = 400
OF_PERSON_MAX: Final = 50  # in all of a person's sessions: nobody can keep the others out


class LiveViews:
    """The open connections. Each has its own set of changed runs, from `reader`, and ends with its session."""

    def __init__(self, reader: ModelReader, alive: Callable[[Session], bool]) -> None:
        self._reader = reader
        self.alive = alive
        self._tasks: dict[asyncio.Task[Any], str] = {}  # with the names of their persons

    @property
    def version(self) -> int:
        """Return a number that grows with each change."""
        return self._reader.version

    def __len__(self) -> int:
        return len(self._tasks)

    @contextlib.asynccontextmanager
    async def connection(self, session: Session) -> AsyncIterator[ChangeSubscription]:
        """Open a connection; it ends when the page's process ends."""
        own = sum(name == session.name for name in self._tasks.values())
        if len(self._tasks) >= CONNECTIONS_MAX or own >= OF_PERSON_MAX:
            raise web.HTTPServiceUnavailable(text="too many open pages: close some\n")
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = session.name
        subscription = self._reader.subscribe()
        try:
            yield subscription
        finally:
            del self._tasks[task]
            subscription.close()

    async def close(self, _app: web.Application) -> None:
        """End all connections."""
        for task in list(self._tasks):
            task.cancel()
