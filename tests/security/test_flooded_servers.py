"""Many connections, slow ones, and small bodies that stand for much: what a stranger can do to a server of ours."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

import streamproc
from streamproc.metrics.bounded_http import BoundedRunner
from streamproc.otel import AssemblyLimits, decoding, receiver
from tests.otel.conftest import Served
from tests.waiting import until

JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"


@asynccontextmanager
async def listening(**options: float) -> AsyncIterator[int]:
    async def greet(_request: web.Request) -> web.Response:
        return web.Response(text="here")

    async def fail(request: web.Request) -> web.Response:
        await request.read()
        raise ValueError

    app = web.Application()
    app.router.add_get("/", greet)
    app.router.add_post("/", fail)
    runner = BoundedRunner(app, **{"connections_max": 2} | options)
    try:
        yield await runner.listen("127.0.0.1", 0)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def receiving() -> AsyncIterator[Served]:
    served = Served(AssemblyLimits(reorder_s=0.0), body_bytes_max=100)
    await served.start()
    try:
        yield served
    finally:
        await served.stop()


async def connect(url: str, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def status(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/traces", data=body, headers=headers) as got:
        return got.status, await got.read()


def test_every_server_of_ours_is_bounded() -> None:
    unbounded = ("AppRunner", "TCPSite", "ServerRunner", "run_app(", "start_server(", "create_server(")
    found = {
        file.name
        for file in (Path(streamproc.__file__).parent).rglob("*.py")
        if any(name in file.read_text("utf-8") for name in unbounded)
    }
    assert found == {"bounded_http.py"}


async def test_connections_beyond_the_limit_are_closed_and_take_no_place() -> None:
    async with listening() as port:
        url = f"http://127.0.0.1:{port}"
        held = [await connect(url, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]
        for reader, _ in held:
            assert b"here" in await reader.readuntil(b"here")
        for _ in range(20):
            reader, writer = await connect(url)
            assert await reader.read() == b""
            writer.close()
        held[0][1].close()

        async def served() -> bool:
            reader, writer = await connect(url, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer.endswith(b"here")

        while not await served():  # until the place that was left is free
            await asyncio.sleep(0.01)
        held[1][1].close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX-Slow: "])
async def test_a_connection_that_asks_for_nothing_is_closed(sent: bytes) -> None:
    async with listening(idle_s=0.05) as port:
        reader, writer = await connect(f"http://127.0.0.1:{port}", sent)
        assert await reader.read() == b""
        writer.close()


async def test_strangers_write_no_tracebacks_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(connections_max=9) as port:
        url = f"http://127.0.0.1:{port}"
        for sent in (b"\x16\x03\x01 no HTTP\r\n\r\n", b"GET /?" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n"):
            reader, writer = await connect(url, sent)
            assert b" 400 " in await reader.read()
            writer.close()
        _, writer = await connect(url, HEAD.replace(b"/v1/traces", b"/"))
        writer.close()
        async with aiohttp.ClientSession() as session, session.post(url) as got:
            assert got.status == 500  # a fault of ours
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [True]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"resourceSpans": [%s]}' % (b"[], " * 10_000 + b"[]"), JSON),
        (b'{"resourceSpans": [{"a": [%s]}]}' % (b"{}, " * 10_000 + b"{}"), JSON),
        (b'{"resourceSpans": [%s0]}' % (b"0," * 10_000), JSON),
        (b'{"resourceSpans": [], "a": "[%s0]"}' % (b"0," * 10_000), JSON),
        (b"\x0a\x00" * 10_000, PROTOBUF),
    ],
)
async def test_a_small_body_of_many_values_is_refused(
    body: bytes, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "EXPANDED_BYTES_MAX", 500_000)
    served = Served(AssemblyLimits(reorder_s=0.0))
    await served.start()
    try:
        packed = headers | {"Content-Encoding": "gzip"}
        found, answer = await status(served.url, gzip.compress(body), packed)
        assert (found, b"send fewer spans" in answer) == (413, True)
    finally:
        await served.stop()


@pytest.mark.parametrize("place", ["attribute", "event", "span"])
def test_values_are_counted_wherever_they_stand(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "VALUES_MAX", 100)
    data = TracesData()
    spans = data.resource_spans.add().scope_spans.add().spans
    span = spans.add()
    for _ in range(101):
        if place == "attribute":
            (span.attributes[0] if span.attributes else span.attributes.add()).value.array_value.values.add()
        elif place == "event":
            span.events.add()
        else:
            spans.add()
    with pytest.raises(decoding.TooManyValues):
        list(decoding.read_spans(data.SerializeToString(), "protobuf"))


async def test_bodies_that_are_read_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "HELD_BODIES", 2)
    async with receiving() as served:
        slow = [await connect(served.url, HEAD) for _ in range(2)]
        while (answer := await status(served.url, json.dumps({"pad": "x" * 50}).encode(), JSON))[0] == 200:
            await asyncio.sleep(0.01)  # until both heads were read
        assert answer[0] == 503
        for _, writer in slow:
            writer.close()
        while (await status(served.url, b"{}", JSON))[0] != 200:
            await asyncio.sleep(0.01)


async def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "BODY_S", 0.05)
    async with receiving() as served:
        reader, writer = await connect(served.url, HEAD)
        assert b" 408 " in await reader.readline()
        writer.close()
        await until(lambda: not served.receiver.held_bytes)
