"""Starts the terminal screen on real topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from streamproc.kafka.reading import partition_count
from streamproc.model.escaping import escape
from streamproc.policy import load_policy
from streamproc.read_model import ModelReader, ReadModel, read_run
from streamproc.report.building import ReportBuilder
from streamproc.tui.app import FleetApp
from streamproc.tui.host import TerminalOrders

if TYPE_CHECKING:
    from streamproc.report.model import RunReport
    from streamproc.settings import Settings

TURNS_SHOWN: Final = 120


async def watch_fleet(settings: Settings, *, since_ms: int, by: str) -> None:
    """Show the fleet until a person quits. `since_ms` is how far back decisions are read, `by` who gives orders.

    Raises `Unavailable` and `InvalidSettings`, before anything is shown.
    """
    async with fleet_app(settings, since_ms=since_ms, by=by) as app:
        await app.run_async()


@asynccontextmanager
async def fleet_app(settings: Settings, *, since_ms: int, by: str) -> AsyncIterator[FleetApp]:
    """Yield the application, with a read model that follows the topics. Raises as `watch_fleet` does."""
    policy = load_policy(settings.policy)
    await partition_count(settings, "control")  # report a missing topic, or a wrong address, at once
    model = ReadModel()
    model.lost_after_ms = policy.lost_after_s * 1000
    reader = ModelReader(settings, model, since_ms=since_ms)

    async def read_report(run_id: str) -> RunReport | None:
        recording = await read_run(settings, policy, run_id, model=model)
        history = recording.histories.get(run_id)
        return ReportBuilder(recording, settings.policy).run(history, TURNS_SHOWN) if history is not None else None

    place = escape(f"{settings.topic_prefix} on {settings.brokers}")
    await reader.start()
    try:
        yield FleetApp(model, reader, TerminalOrders(settings, by), read_report, place=place)
    finally:
        await reader.stop()
        model.close()
