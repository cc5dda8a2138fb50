"""From a span to its halt: publisher, real Kafka, a worker in another process, listener."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from streamproc import Halted
from streamproc.client import HaltListener, TurnPublisher
from streamproc.settings import Settings
from tests.client.test_content_stays import records_of
from tests.notify.test_on_kafka import Start, settings, start
from tests.tracing.spans import Exported, halts_of, links_of, traceparent_of
from tests.waiting import until

__all__ = ["settings", "start"]  # fixtures

CALL: dict[str, Any] = {"name": "grep", "args": {"q": "x"}, "result": "no match"}


async def guarded(halts: HaltListener) -> None:
    async with halts.guard("r1"):
        await asyncio.get_running_loop().create_future()  # until it is cancelled


async def test_a_halt_is_linked_to_the_span_whose_turn_caused_it(
    settings: Settings, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = Exported(monkeypatch)
    worker = start("worker")
    await until(lambda: worker.logged("ready partitions="), 90)
    steps = []
    async with TurnPublisher(settings=settings) as turns, HaltListener(settings=settings) as halts:
        for _ in range(3):
            with exported.tracer.start_as_current_span("step") as step:
                await turns.turn(run_id="r1", node="coder", tool_calls=[CALL])
                steps.append(traceparent_of(step))
        with pytest.raises(Halted):
            await guarded(halts)
    async with HaltListener(settings=settings) as late:
        known = await until(lambda: late.halted("r1"), 60, "the status")
        assert known.traceparent == steps[2]  # the decision itself was published before
    found = await records_of(settings)
    headers = [dict(record.headers) for record in found[settings.topic("turns")]]
    traced = [one for one in headers if "traceparent" in one]  # the guard's report that it stopped has none
    assert [one["traceparent"].decode() for one in traced] == steps
    decisions = [dict(record.headers) for record in found[settings.topic("control")]]
    assert [one["ce_traceparent"].decode() for one in decisions] == steps[1:]  # the warning and the halt
    span = exported.span("streamproc.guard r1")
    assert [linked for linked, _ in links_of(span)] == [steps[2]]
    assert [one["streamproc.trace.id"] for one in halts_of(span)] == [steps[2][3:35]]
    assert span.status.status_code == StatusCode.ERROR
    await until(lambda: worker.logged(f"trace_id={steps[2][3:35]} span_id={steps[2][36:52]}"))
    assert worker.end() == 0
