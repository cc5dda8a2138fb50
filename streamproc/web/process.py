"""The process of `streamproc page`: read model, reader, server, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamproc.fleet.watching import watch_readings
from streamproc.metrics import Reading, exposing, fleet_readings
from streamproc.metrics.bounded_http import BoundedRunner
from streamproc.model.budgets import USD_MICRO
from streamproc.model.fleet_command import FLEET
from streamproc.model.newest import Newest
from streamproc.policy import Policy
from streamproc.read_model.model import ReadModel
from streamproc.read_model.reader import ModelReader
from streamproc.read_model.rows import DecisionFilter, DecisionRow
from streamproc.settings import Settings
from streamproc.web.access import AccessOptions, build_access
from streamproc.web.commands import PageCommands
from streamproc.web.layout import page
from streamproc.web.server import make_app

HALTS_AT_ONCE: Final = 1_000  # looked at when the metrics are asked for; of more, the newest count
SEEN_MAX: Final = 4 * HALTS_AT_ONCE

log = logging.getLogger(__name__)
CONNECTIONS_MAX: Final = 800  # twice the open pages that are kept current
SHUTDOWN_S: Final = 5.0  # for requests that are being answered


class PageMetrics:
    """Counts what halts since the start have saved: the mean cost of a turn of each halted run, times the turns that
    its budget `maxSteps` had left. Runs without this budget, or without costs, count nothing."""

    def __init__(self, policy: Policy, model: ReadModel, reader: ModelReader) -> None:
        self._policy = policy
        self._model = model
        self._reader = reader
        self._saved: defaultdict[str, float] = defaultdict(float)  # USD, by code
        self._seen: Newest[str, None] = Newest(SEEN_MAX)  # ids of halts

    def readings(self) -> Iterable[Reading]:
        """Return the metrics as they are now."""
        for halt in reversed(self._model.decisions(DecisionFilter(severity="halt"), limit=HALTS_AT_ONCE)):
            if halt.id not in self._seen:
                self._seen[halt.id] = None
                self._saved[halt.code] += self._estimate(halt)
        yield from fleet_readings(self._status, lambda: self._saved)
        yield from watch_readings(self._reader.watching())

    def missing(self) -> list[str]:
        """Return what keeps the page from being ready, in words."""
        if self._reader.trouble is not None:
            return [f"Kafka: {self._reader.trouble}"]
        return [] if self._reader.caught_up else [f"reading: {self._reader.progress:.0%}"]

    def _status(self) -> str | None:
        if not self._reader.caught_up:
            return None
        return next((one.status for one in self._model.commands(standing=True) if one.scope == FLEET), "CLEAR")

    def _estimate(self, halt: DecisionRow) -> float:
        run = self._model.run(halt.run_id)
        if run is None or not run.turns or not run.cost_usd_micro:
            return 0.0
        budgets = self._policy.effective(run.workflow, run.tenant, "", run.user)["budgets"]
        left = max(0, int(budgets.get("maxSteps", 0)) - run.turns)
        return left * run.cost_usd_micro / run.turns / USD_MICRO


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """Where the page listens, what it reads, and what people may do. `db` None: memory; `since_ms` is epoch ms;
    `up_socket` as for `ModelReader`."""

    host: str
    port: int
    since_ms: int
    db: str | None = None
    turns: bool = True
    commands: bool = False
    up_socket: Path | None = None


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
    model.lost_after_ms = policy.lost_after_s * 1000
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(model.close)
        reader = ModelReader(settings, model, since_ms=options.since_ms, up_socket=options.up_socket)
        metrics = PageMetrics(policy, model, reader)
        await stack.enter_async_context(exposing(settings, metrics.readings, metrics.missing))
        commands = PageCommands(settings, model, lambda: reader.caught_up, enabled=options.commands)
        stack.push_async_callback(commands.close)
        app = make_app(settings, policy, model, reader, access, commands)
        runner = BoundedRunner(
            app,
            connections_max=CONNECTIONS_MAX,
            is_proxy=access.is_proxy,
            own_names=False,  # `access` checks them, and its address may be that of a proxy
            shutdown_timeout=SHUTDOWN_S,
        )
        stack.push_async_callback(runner.cleanup)
        access.listens_on(await runner.listen(options.host, options.port))
        await reader.start()
        stack.push_async_callback(reader.stop)
        announce(access.address_hint())
        log.info("reading %s, %s", settings.brokers, "commands are on" if options.commands else "read-only")
        await stop.wait()
        log.info("stopping")
