"""HTTP servers that strangers may reach: idle connections end, and a flood of them takes nothing else from the process.

A worker that serves metrics needs its file descriptors for Kafka and for its store.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    from aiohttp.web import Application

IDLE_S: Final = 75.0  # until a connection without a request is closed; longer than proxies and scrapers pause

log = logging.getLogger(__name__)


class _NotOfClients(logging.Filter):
    """Drops what only says that a client sent no HTTP, or left: each stranger could fill the log with tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], (HttpProcessingError, ConnectionError)))


log.addFilter(_NotOfClients())


class _Refused(asyncio.Protocol):
    """Ends a connection as soon as it is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class BoundedRunner(web.AppRunner):
    """Runs an application on one address, for at most `connections_max` clients at a time; others are turned away.

    `idle_s` is in seconds. Further options are those of `aiohttp.web.AppRunner`.
    """

    def __init__(self, app: Application, *, connections_max: int, idle_s: float = IDLE_S, **options: Any) -> None:
        super().__init__(app, access_log=None, keepalive_timeout=idle_s, logger=log, **options)
        self._connections_max = connections_max
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen, and return the port: a free one if it is 0. Raises `OSError`."""
        await self.setup()
        self._listener = await asyncio.get_running_loop().create_server(self._connected, host, port)
        return int(self._listener.sockets[0].getsockname()[1])

    async def cleanup(self) -> None:
        """Accept no more connections, and finish the requests that are being answered."""
        if self._listener is not None:
            self._listener.close()
        await super().cleanup()

    def _connected(self) -> asyncio.BaseProtocol:
        server = self.server
        if server is None or len(server.connections) >= self._connections_max:
            return _Refused()
        return server()
