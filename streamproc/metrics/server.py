"""`/metrics`, `/healthz` and `/readyz` on an address of their own. There is no login: see SECURITY.md."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from streamproc.errors import InvalidSettings
from streamproc.metrics.bounded_http import BoundedRunner
from streamproc.settings import PORT_MAX, read_address

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 100  # scrapers and probes are few
STOP_TIMEOUT_S: Final = 0.5  # for answers that are under way at a stop
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Server": "streamproc"}

Missing = Callable[[], Sequence[str]]
"""What a program still waits for before it is ready, in words; nothing if it is."""

OPTION: Final = "--metrics (STREAMPROC_METRICS)"


def metrics_address(text: str) -> tuple[str, int]:
    """Return ``HOST:PORT`` as a pair. Raises `InvalidSettings`."""
    return read_address(text, OPTION, "127.0.0.1:9464")


def address_of_worker(text: str, number: int, count: int) -> str:
    """Return the address of one of several workers, which are numbered from 1: the first has the port as given, each
    other one the next port. A port of 0 stays: each takes a free one. Raises `InvalidSettings`."""
    if not text:
        return ""
    host, port = metrics_address(text)
    if port and port + count - 1 > PORT_MAX:
        raise InvalidSettings(f"{OPTION} {text}: {count} workers need {count} ports: name one up to "
                              f"{PORT_MAX - count + 1}")  # fmt: skip
    return f"{f'[{host}]' if ':' in host else host}:{port + number - 1 if port else 0}"


class MetricsServer:
    """Serves the metrics of a registry, and the probes of a program."""

    def __init__(self, registry: CollectorRegistry, missing: Missing) -> None:
        self._registry = registry
        self._missing = missing
        app = web.Application()
        app.add_routes(
            [web.get("/metrics", self._metrics), web.get("/healthz", self._health), web.get("/readyz", self._ready)]
        )
        self._runner = BoundedRunner(app, connections_max=CONNECTIONS_MAX, shutdown_timeout=STOP_TIMEOUT_S)

    async def start(self, address: str) -> int:
        """Listen on ``HOST:PORT`` and return the port, another one if it is 0. Raises `InvalidSettings`."""
        host, port = metrics_address(address)
        remedy = ": choose an address of this machine and a port that is free"
        port = await self._runner.listen(host, port, f"{OPTION} {address}", remedy)
        log.info("serving metrics on http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)
        return port

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # a version that is none
            encode, content_type = choose_encoder("")
        return web.Response(body=encode(self._registry), headers={**HEADERS, "Content-Type": content_type})

    async def _health(self, _request: web.Request) -> web.Response:
        """Say that the event loop answers, which this answer shows. A broker that is away is no reason to restart."""
        return web.Response(text="ok\n", headers=HEADERS)

    async def _ready(self, _request: web.Request) -> web.Response:
        missing = self._missing()
        text = "".join(f"{one}\n" for one in missing) or "ready\n"
        return web.Response(status=503 if missing else 200, text=text, headers=HEADERS)
