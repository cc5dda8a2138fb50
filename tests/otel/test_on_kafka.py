"""From a traced agent to its halt: exporter, `streamproc otel`, real Kafka, worker, control topic."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from typing import Any

import aiohttp
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from yarl import URL

from streamproc.client import HaltListener
from streamproc.kafka import topics
from streamproc.kafka.reading import committed_offsets
from streamproc.settings import Settings
from tests.client.test_content_stays import bytes_of, records_of
from tests.importers.traces import agent_span, chat_span, export, span, tool_span
from tests.notify.test_on_kafka import Process, Start, settings, start
from tests.otel.test_receiver import QUERY, agent, protobuf_of
from tests.otel.traced_agent import FAILING, traced_run
from tests.waiting import until

__all__ = ["settings", "start"]  # fixtures

TOKEN = {"Authorization": "Bearer s3cret-token"}
MARK = "Zx7MarkerThatNobodyElseWrites9q"


async def address(process: Process) -> str:
    """Return the URL at which a process listens."""
    await until(lambda: process.logged("listening on"), 60)
    found = re.search(r"listening on (http://\S+)", process.log.read_text())
    assert found is not None
    return found[1]


async def answer(url: str, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(URL(url).with_path(path), headers=headers) as got:
        return got.status, await got.json()


@pytest.mark.long
async def test_an_agent_that_is_only_traced_is_halted(settings: Settings, start: Start) -> None:
    worker = start("worker")
    bridge = start(
        "otel", "--listen", "127.0.0.1:0", "--reorder-ms", "100", "--halts", STREAMPROC_OTEL_TOKEN="s3cret-token"
    )
    url = await address(bridge)
    await until(lambda: worker.logged("ready partitions="), 90)
    exporter = OTLPSpanExporter(url, headers=TOKEN)
    async with HaltListener(settings=settings) as halts:
        await asyncio.to_thread(agent, exporter, [MARK] * 3)
        halt = await until(lambda: halts.halted("chat-1"), 60, "the halt")
        assert halt.code == "LOOP003"

    async def told() -> dict[str, Any] | None:
        status, content = await answer(url, "/halted/chat-1", TOKEN)
        return content if status == 200 and content["halted"] else None

    content = await until(told, 30, "the halt in the bridge, which reads the control topic on its own")
    assert content["control"]["id"] == halt.id
    assert content["message"].startswith("run chat-1 is halted (LOOP003): search returned the same result")
    assert await answer(url, "/halted/chat-2", TOKEN) == (200, {"run_id": "chat-2", "halted": False})
    assert (await answer(url, "/halted/chat-1", {}))[0] == 401
    health = await asyncio.to_thread(urllib.request.urlopen, url.replace("/v1/traces", "/healthz"))
    with health:
        assert health.read() == b"ok\n"
    found = await records_of(settings)
    for record in found[settings.topic("turns")]:
        span = json.loads(record.value)["event_id"].replace(":", "-")
        assert dict(record.headers)["traceparent"] == f"00-{span}-01".encode()
        assert span[:32] == halt.traceparent[3:35]
    for records in found.values():
        assert not any(MARK.encode() in bytes_of(record) for record in records)
    assert bridge.end() == 0
    assert MARK not in bridge.log.read_text()


async def test_a_run_that_pydantic_ai_traces_is_halted(settings: Settings, start: Start) -> None:
    worker = start("worker")
    bridge = start("otel", "--listen", "127.0.0.1:0", "--reorder-ms", "100")
    url = await address(bridge)
    await until(lambda: worker.logged("ready partitions="), 90)
    async with HaltListener(settings=settings) as halts:
        await asyncio.to_thread(traced_run, OTLPSpanExporter(url), [FAILING] * 4, "chat-9")
        assert (await until(lambda: halts.halted("chat-9"), 60, "the halt")).code == "LOOP003"
    assert bridge.end() == 0


async def test_what_is_held_at_a_stop_is_published(settings: Settings, start: Start) -> None:
    bridge = start("otel", "--listen", "127.0.0.1:0", "--reorder-ms", "60000")
    url = await address(bridge)
    rows = export(*[tool_span(number, QUERY, "nothing", parent=99) for number in range(1, 4)])
    request = urllib.request.Request(url, json.dumps(rows).encode(), {"Content-Type": "application/json"})
    (await asyncio.to_thread(urllib.request.urlopen, request)).close()
    assert not (await records_of(settings)).get(settings.topic("turns"))
    assert bridge.end() == 0
    assert len((await records_of(settings))[settings.topic("turns")]) == 3


async def committed(settings: Settings, topic: str) -> int:
    group = settings.model_copy(update={"group": f"{settings.topic_prefix}-otel"})
    return sum((await committed_offsets(group, topic, [0, 1])).values())


async def test_spans_of_a_collectors_topic_are_read_and_committed_once_published(
    settings: Settings, start: Start
) -> None:
    topic = f"{settings.topic_prefix}-spans"
    async with topics.administering(settings) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])

    def rows(trace: int, *spans: Any) -> bytes:
        return json.dumps(export(*[{**one, "traceId": f"{trace:032x}"} for one in spans])).encode()

    tools = [tool_span(number, QUERY, "nothing", parent=9) for number in (1, 2, 3)]
    asks = chat_span(4, calls=[{"id": "c9", "name": "search", "arguments": QUERY}], parent=9)
    other = span(1, "GET /", {"http.method": "GET"})
    values = [
        rows(1, *tools, agent_span(9)),
        b"\xffnonsense",
        rows(2, other),
        protobuf_of(json.loads(rows(3, *tools, agent_span(9)))),
        rows(4, *tools, asks),  # the model call waits for its tool
    ]
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
    bridge = start("otel", "--listen", "127.0.0.1:0", "--topic", topic, "--reorder-ms", "100")

    async def turns() -> bool:
        return len((await records_of(settings)).get(settings.topic("turns"), [])) >= 9 + 2  # and the ends of two runs

    async def all_but_the_last() -> bool:
        return await committed(settings, topic) == 4

    await until(turns, 60, "the turns", every_s=0.3)
    await until(all_but_the_last, 60, "the offsets", every_s=0.3)
    assert bridge.logged("skipped a record")
    assert bridge.end() == 0
    assert await committed(settings, topic) == 5
    assert len((await records_of(settings))[settings.topic("turns")]) == 12
