"""The process of `streamproc page`: read model, reader, server, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamproc.errors import InvalidSettings
from streamproc.metrics import exposing
from streamproc.metrics.bounded_http import BoundedRunner
from streamproc.read_model import ModelReader, ReadModel
from streamproc.web.access import AccessOptions, build_access
from streamproc.web.layout import page
from streamproc.web.orders import PageOrders
from streamproc.web.page_metrics import PageMetrics
from streamproc.web.server import make_app

if TYPE_CHECKING:
    from streamproc.policy import Policy
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 800  # twice the open pages that are kept current
SHUTDOWN_S: Final = 5.0  # for requests that are being answered


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """Where the page listens, what it reads, and what people may do. `db` None: memory; `since_ms` is epoch ms."""

    host: str
    port: int
    since_ms: int
    db: str | None = None
    turns: bool = True
    orders: bool = False


async def serve_page(
    settings: Settings,
    policy: Policy,
    options: PageOptions,
    access_options: AccessOptions,
    announce: Callable[[str], None],
) -> None:
    """Serve the page until SIGTERM or SIGINT. `announce` gets the address to open, and again when its token is used up.

    Raises `InvalidSettings` for an address or a database that cannot be used.
    """
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    access = build_access(access_options, settings, page, announce=lambda: announce(access.address_hint()))
    model = ReadModel(options.db, turns=options.turns)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(model.close)
        reader = ModelReader(settings, model, since_ms=options.since_ms)
        metrics = PageMetrics(policy, model, reader)
        await stack.enter_async_context(exposing(settings, metrics.readings, metrics.missing))
        orders = PageOrders(settings, model, lambda: reader.caught_up, enabled=options.orders)
        stack.push_async_callback(orders.close)
        app = make_app(settings, policy, model, reader, access, orders)
        runner = BoundedRunner(
            app,
            connections_max=CONNECTIONS_MAX,
            is_proxy=access.is_proxy,
            own_names=False,  # `access` checks them, and its address may be that of a proxy
            shutdown_timeout=SHUTDOWN_S,
        )
        stack.push_async_callback(runner.cleanup)
        try:
            port = await runner.listen(options.host, options.port)
        except OSError as error:
            where = f"{options.host}:{options.port}"
            raise InvalidSettings(f"--listen {where}: cannot listen there ({error.strerror or error})") from None
        access.listens_on(port)
        await reader.start()
        stack.push_async_callback(reader.stop)
        announce(access.address_hint())
        log.info("reading %s, %s", settings.brokers, "orders are on" if options.orders else "read-only")
        await stop.wait()
        log.info("stopping")
