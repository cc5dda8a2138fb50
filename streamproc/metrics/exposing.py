"""The two ways out of a process for its metrics: an HTTP address that is scraped, and OTLP that is sent."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from streamproc.metrics.otlp_target import otlp_target
from streamproc.metrics.readings import Readings, new_registry

if TYPE_CHECKING:
    from streamproc.settings import Settings


@asynccontextmanager
async def exposing(
    settings: Settings, readings: Readings, missing: Callable[[], Sequence[str]]
) -> AsyncIterator[int | None]:
    """Expose metrics while the body runs: on the address of ``settings.metrics``, and by OTLP if the environment names
    an endpoint. Without either this does nothing, and nothing listens.

    `missing` says what the program still waits for, in words: `/readyz` answers 503 with it until there is nothing.
    Gives the port, or None if nothing listens. Raises `InvalidSettings` if the address cannot be used.
    """
    target = otlp_target(os.environ)
    if not settings.metrics and target is None:
        yield None
        return
    registry = new_registry(readings)
    async with contextlib.AsyncExitStack() as stack:
        port = None
        if settings.metrics:
            from streamproc.metrics.server import MetricsServer

            server = MetricsServer(registry, missing)
            port = await server.start(settings.metrics)
            stack.push_async_callback(server.stop)
        if target is not None:
            from streamproc.metrics.otlp import request_of
            from streamproc.metrics.otlp_sending import sending_by_otlp

            resource, start_ns = target.resource, time.time_ns()
            await stack.enter_async_context(
                sending_by_otlp(
                    target,
                    "metrics",
                    lambda: request_of(registry, resource, start_ns, time.time_ns()).SerializeToString(),
                )
            )
        yield port
