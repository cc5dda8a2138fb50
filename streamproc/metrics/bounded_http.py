"""HTTP servers that strangers may reach: idle connections and slow bodies end, and a flood of either takes nothing else
from the process.

A worker that serves metrics needs its file descriptors for Kafka and for its store. One address gets a share of the
connections only, so that it cannot keep all others out. A server on loopback answers to its own names only.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from aiohttp.web import Application
from aiohttp.web_protocol import RequestPayloadError

from streamproc.errors import InvalidSettings
from streamproc.metrics.own_host import is_loopback, loopback_hosts, names_host

IDLE_S: Final = 75.0  # until a connection without a request is closed; longer than proxies and scrapers pause
BODY_S: Final = 30.0  # for a whole body to arrive

log = logging.getLogger(__name__)


class BodyTooLate(TimeoutError):
    """Raised where a body is read that has not arrived within `BODY_S`."""


class _NotOfClients(logging.Filter):
    """Drops what only says that a client sent no HTTP, or left: each stranger could fill the log with tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        of_clients = (HttpProcessingError, RequestPayloadError, ConnectionError)
        return not (record.exc_info and isinstance(record.exc_info[1], of_clients))


log.addFilter(_NotOfClients())


class _Arrival(asyncio.Protocol):
    """A connection that has just arrived: it is handed to the server, or ended."""

    def __init__(self, admit: Callable[[str], asyncio.Protocol | None]) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        handler = self._admit(_address_of(transport))
        if handler is None:
            transport.close()
            return
        transport.set_protocol(handler)
        handler.connection_made(transport)


class BoundedRunner(web.AppRunner):
    """Runs an application on one address, for at most `connections_max` clients at a time, and for at most
    `of_address_max` (default: a quarter) from one address; others are turned away.

    Addresses for which `is_proxy` is true pass on others', and have no share. With `own_names`, a server on loopback
    refuses requests that name another host. `idle_s` is in seconds. Further options are those of
    `aiohttp.web.AppRunner`.

    Where all clients are of this machine, and so of one address, `of_address_max` is 0: none has a share. A client that
    finds all connections taken gets the place of the one that has waited longest without a request.
    """

    def __init__(
        self,
        app: Application,
        *,
        connections_max: int,
        of_address_max: int | None = None,
        is_proxy: Callable[[str], bool] = lambda _address: False,
        own_names: bool = True,
        idle_s: float = IDLE_S,
        **options: Any,
    ) -> None:
        self._connections_max = connections_max
        self._of_address_max = max(1, connections_max // 4) if of_address_max is None else of_address_max
        self._is_proxy = is_proxy
        self._busy: set[Any] = set()  # connections whose requests are being answered
        self._hosts: Collection[str] | None = None  # None: any
        self._listener: asyncio.Server | None = None
        app.middlewares.insert(0, _bound_body)
        if not self._of_address_max:
            app.middlewares.insert(0, self._note_busy)
        if own_names:
            app.middlewares.insert(0, self._check_host)
        super().__init__(app, access_log=None, keepalive_timeout=idle_s, logger=log, **options)

    async def listen(self, host: str, port: int, option: str = "", remedy: str = "") -> int:
        """Listen, and return the port: a free one if it is 0. Raises `InvalidSettings` about the `option` and its
        value, by default those of ``--listen``."""
        await self.setup()
        if is_loopback(host):
            self._hosts = loopback_hosts(host, port)  # of a port of 0 none, until it is known
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(lambda: _Arrival(self._admitted), host, port)
        except OSError as error:
            await self.cleanup()
            what = option or f"--listen {host}:{port}"
            raise InvalidSettings(f"{what}: cannot listen there ({error.strerror or error}){remedy}") from None
        port = int(self._listener.sockets[0].getsockname()[1])
        if self._hosts is not None:
            self._hosts = loopback_hosts(host, port)
        return port

    async def listen_unix(self, path: str) -> None:
        """Listen on a socket. Raises `OSError`."""
        await self.setup()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(lambda: _Arrival(self._admitted), path)

    async def cleanup(self) -> None:
        """Accept no more connections, and finish the requests that are being answered."""
        if self._listener is not None:
            self._listener.close()
        await super().cleanup()

    def _admitted(self, address: str) -> asyncio.Protocol | None:
        """Return what handles a connection from an address; None if there is no place for it."""
        server = self.server
        if server is None:
            return None
        open_ones = [one for one in server.connections if one.transport is not None]  # others are being closed
        if len(open_ones) >= self._connections_max:
            idle = next((one for one in open_ones if one not in self._busy), None)
            if self._of_address_max or idle is None:
                return None
            idle.force_close()
        if not self._of_address_max:
            return server()
        if len(open_ones) >= self._of_address_max and not self._is_proxy(address):
            network = network_of(address)
            own = sum(network_of(_address_of(one.transport)) == network for one in open_ones)
            if own >= self._of_address_max:
                return None
        return server()

    @web.middleware
    async def _note_busy(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._busy.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._busy.discard(request.protocol)

    @web.middleware
    async def _check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._hosts is not None and not names_host(request, self._hosts):
            raise web.HTTPMisdirectedRequest(text="This is not the address of this server: name it as it listens.\n")
        return await handler(request)


@web.middleware
async def _bound_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give up a body that does not arrive: a connection that sends one is not idle, and would keep its place."""
    late = asyncio.get_running_loop().call_later(BODY_S, _give_up, request)
    try:
        return await handler(request)
    except BodyTooLate as error:
        raise web.HTTPRequestTimeout(text=f"{error}\n") from None
    except RequestPayloadError:
        raise web.HTTPBadRequest(text="The body is not encoded as its headers say.\n") from None
    finally:
        late.cancel()


def _give_up(request: web.Request) -> None:
    if not request.content.is_eof():
        request.content.set_exception(BodyTooLate(f"The body did not arrive within {BODY_S:g} s."))


def _address_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the address of the client; empty if it has gone."""
    peer = None if transport is None else transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


@lru_cache(maxsize=1_024)
def network_of(address: str) -> str:
    """Return what one client has of an address: all of IPv4, and of IPv6 the first half, as it gets a network. What is
    no address stays."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    found = getattr(found, "ipv4_mapped", None) or found
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
