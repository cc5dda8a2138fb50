"""Many connections, slow ones, and small bodies that stand for much: what a stranger can do to a server of ours."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

import streamproc
from streamproc.metrics import bounded_http
from streamproc.metrics.bounded_http import BoundedRunner
from streamproc.metrics.readings import new_registry
from streamproc.metrics.server import MetricsServer
from streamproc.otel import AssemblyLimits, decoding, receiver
from tests.otel.conftest import Served
from tests.waiting import until

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[int]:
    async def greet(_request: web.Request) -> web.Response:
        return web.Response(text="here")

    async def fail(request: web.Request) -> web.Response:
        await request.read()
        raise ValueError

    app = web.Application()
    app.router.add_get("/", greet)
    app.router.add_post("/", fail)
    runner = BoundedRunner(app, **{"connections_max": 2, "of_address_max": 2, "own_names": False} | options)
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


def head_of(url: str) -> bytes:
    return HEAD.replace(b" / ", b" /v1/traces ").replace(b" x", f" {url.partition('//')[2]}".encode())


def test_every_server_of_ours_is_bounded() -> None:
    unbounded = ("AppRunner", "TCPSite", "ServerRunner", "run_app(", "start_server(", "create_server(")
    found = {
        file.relative_to(Path(streamproc.__file__).parent).as_posix()
        for file in (Path(streamproc.__file__).parent).rglob("*.py")
        if any(name in file.read_text("utf-8") for name in unbounded)
    }
    assert found == {"metrics/bounded_http.py"}


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

        await until(served, what="the place that was left to be free")
        held[1][1].close()


ASKING = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def connect_from(address: str, port: int, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect from another address of this machine, as Linux has all of 127.0.0.0/8."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def is_served(address: str, port: int) -> bool:
    reader, writer = await connect_from(address, port, ASKING.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    try:
        return (await reader.read()).endswith(b"here")
    except ConnectionResetError:
        return False
    finally:
        writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="one address of loopback only")
async def test_where_all_are_of_one_machine_the_longest_idle_makes_room() -> None:
    async with listening(of_address_max=0) as port:
        url = f"http://127.0.0.1:{port}"
        held = []
        for _ in range(20):  # each holds connections, and asks for nothing or for half
            held += [await connect(url), await connect(url, b"GET / HTTP/1.1\r\n")]
            reader, writer = await connect(url, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"here")
            writer.close()

        async def few() -> bool:
            return sum(not reader.at_eof() for reader, _ in held) <= 2

        held += await asyncio.gather(*(connect(url) for _ in range(40)))  # that arrive at once
        await until(few, what="all connections but two to be closed")


async def test_one_address_gets_its_share_and_the_others_theirs() -> None:
    """Connections that send nothing, or their headers byte by byte, hold no more than that."""
    async with listening(connections_max=8, of_address_max=None) as port:
        held = [await connect_from("127.0.0.2", port, sent) for sent in (b"", b"GET / HT")]
        await until(lambda: is_served("127.0.0.1", port))  # both were taken
        for _ in range(20):
            assert not await is_served("127.0.0.2", port)
        for other in ("127.0.0.3", "127.0.0.4"):
            held += [await connect_from(other, port, ASKING) for _ in range(2)]
            assert b"here" in await held[-1][0].readuntil(b"here")
            assert not await is_served(other, port)
        assert await is_served("127.0.0.1", port)
        held[0][1].close()
        await until(lambda: is_served("127.0.0.2", port))
        for _, writer in held:
            writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="one address of loopback only")
async def test_a_trusted_proxy_has_no_share() -> None:
    async with listening(connections_max=8, of_address_max=1, is_proxy=lambda address: address == "127.0.0.9") as port:
        held = [await connect_from("127.0.0.9", port, ASKING) for _ in range(7)]
        for reader, _ in held:
            assert b"here" in await reader.readuntil(b"here")
        assert await is_served("127.0.0.1", port)
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize(("one", "other", "same"), [
    ("10.0.0.1", "10.0.0.2", False), ("10.0.0.1", "::ffff:10.0.0.1", True), ("2001:db8::1", "2001:db8::2:1", True),
    ("2001:db8::1", "2001:db8:0:1::1", False), ("fe80::1%eth0", "fe80::2%eth1", True), ("", "", True),
])  # fmt: skip
def test_the_addresses_that_one_client_can_have_are_one(one: str, other: str, same: bool) -> None:
    assert (bounded_http.network_of(one) == bounded_http.network_of(other)) is same


async def host_answers(port: int, host: str, path: str = "/") -> int:
    reader, writer = await connect(
        f":{port}", f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    )
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_on_loopback_a_request_that_names_another_host_is_refused_everywhere() -> None:
    """DNS rebinding: a name of the attacker's that resolves to 127.0.0.1."""
    metrics = MetricsServer(new_registry(list), list)
    metrics_port = await metrics.start("127.0.0.1:0")
    served = Served(AssemblyLimits(reorder_s=0.0))
    await served.start()
    try:
        otel_port = int(served.url.rpartition(":")[2])
        for port, paths in (
            (metrics_port, ("/metrics", "/healthz", "/readyz", "/no")),
            (otel_port, ("/healthz", "/no")),
        ):
            for path in paths:
                for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
                    assert await host_answers(port, host, path) == 421
                for host in (f"127.0.0.1:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
                    assert await host_answers(port, host, path) == (404 if path == "/no" else 200)
    finally:
        await served.stop()
        await metrics.stop()


async def test_a_server_that_other_machines_reach_answers_to_any_name() -> None:
    """Its names are not known: of a pod, a service, an address that is forwarded."""
    metrics = MetricsServer(new_registry(list), list)
    port = await metrics.start("0.0.0.0:0")
    try:
        assert await host_answers(port, "worker-0.streamproc.svc:9464", "/metrics") == 200
    finally:
        await metrics.stop()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX-Slow: "])
async def test_a_connection_that_asks_for_nothing_is_closed(sent: bytes) -> None:
    async with listening(idle_s=0.05) as port:
        reader, writer = await connect(f"http://127.0.0.1:{port}", sent)
        assert await reader.read() == b""
        writer.close()


async def test_strangers_write_no_tracebacks_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    unreadable = [
        f"Content-Encoding: {name}\r\nContent-Length: 9\r\n\r\n\x1fno {name:5.5}" for name in ("gzip", "deflate")
    ]
    unreadable.append("Transfer-Encoding: chunked\r\n\r\nno number\r\n")
    async with listening(connections_max=9) as port:
        url = f"http://127.0.0.1:{port}"
        for sent in (
            b"\x16\x03\x01 no HTTP\r\n\r\n", b"GET /?" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n",
            *(f"POST / HTTP/1.1\r\nHost: x\r\n{rest}".encode() for rest in unreadable),
        ):  # fmt: skip
            reader, writer = await connect(url, sent)
            assert b" 400 " in await reader.read()
            writer.close()
        _, writer = await connect(url, HEAD)
        writer.close()
        async with aiohttp.ClientSession() as session, session.post(url) as got:
            assert got.status == 500  # a fault of ours
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [True]


@pytest.mark.parametrize(("length", "part"), [
    ("Content-Length: 9", b""), ("Content-Length: 90000", b" "), ("Transfer-Encoding: chunked", b"1\r\n \r\n"),
])  # fmt: skip
async def test_a_body_that_never_ends_keeps_no_place(length: str, part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of it comes, and however often."""
    monkeypatch.setattr(bounded_http, "BODY_S", 0.05)
    async with listening() as port:
        reader, writer = await connect(f":{port}", f"POST / HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())
        answer = asyncio.create_task(reader.read())

        def answered() -> bool:
            writer.write(part)
            return answer.done()

        await until(answered, 5)
        assert b" 408 " in await answer
        writer.close()


@pytest.mark.parametrize(("body", "headers"), [
    (b'{"resourceSpans": [%s]}' % (b"[], " * 10_000 + b"[]"), JSON),
    (b'{"resourceSpans": [{"a": [%s]}]}' % (b"{}, " * 10_000 + b"{}"), JSON),
    (b'{"resourceSpans": [%s0]}' % (b"0," * 10_000), JSON),
    (b'{"resourceSpans": [], "a": "[%s0]"}' % (b"0," * 10_000), JSON), (b"\x0a\x00" * 10_000, PROTOBUF),
])  # fmt: skip
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
        slow = [await connect(served.url, head_of(served.url)) for _ in range(2)]

        async def answers(code: int, body: bytes = json.dumps({"pad": "x" * 50}).encode()) -> bool:
            return (await status(served.url, body, JSON))[0] == code

        await until(lambda: answers(503), what="both heads to be read")
        for _, writer in slow:
            writer.close()
        await until(lambda: answers(200, b"{}"), what="the bodies to be given up")


async def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "BODY_S", 0.05)
    async with receiving() as served:
        reader, writer = await connect(served.url, head_of(served.url))
        assert b" 408 " in await reader.readline()
        writer.close()
        await until(lambda: not served.receiver.held_bytes)
