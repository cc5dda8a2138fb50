"""Writing to a connection that was reset raises a connection error, on every event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop
from aiokafka.conn import AIOKafkaConnection, collect_hosts, create_conn
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from streamproc.kafka.options import connection_options
from streamproc.settings import Settings, load_settings

WITHIN_S = 10
AT_ONCE = struct.pack("ii", 1, 0)  # a socket with a linger time of 0 is closed with a reset


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_write_to_a_reset_connection_raises_a_connection_error(brokers, loop_factory) -> None:
    """aiokafka expects that error; uvloop's own error ends its tasks."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_write_until_it_breaks(load_settings(brokers=brokers)))


async def _write_until_it_breaks(settings: Settings) -> None:
    options = connection_options(settings)
    ((host, port, _),) = collect_hosts(options.pop("bootstrap_servers"))
    async with _proxy(host, port) as proxy:
        connection = await create_conn("127.0.0.1", proxy.port, **options)
        assert (await connection.send(MetadataRequest([]))).brokers
        proxy.reset()
        with pytest.raises(KafkaConnectionError):
            await _write_repeatedly(connection)
        assert not connection.connected()


async def _write_repeatedly(connection: AIOKafkaConnection) -> None:
    """Write once per iteration of the loop. Raises the error of a write, or else that of an answer."""
    answers = []
    async with asyncio.timeout(WITHIN_S):
        while connection.connected():
            answers.append(asyncio.ensure_future(connection.send(MetadataRequest([]))))
            await asyncio.sleep(0)
        await asyncio.gather(*answers)


class _Proxy:
    """Forwards the bytes between a client and a broker until it is reset."""

    def __init__(self, host: str, port: int) -> None:
        self._broker = host, port
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[asyncio.StreamWriter] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(*self._broker)
        self._clients += [writer, to_broker]
        self._tasks += [asyncio.ensure_future(_forward(reader, to_broker)),
            asyncio.ensure_future(_forward(from_broker, writer))]  # fmt: skip

    def reset(self) -> None:
        for task in self._tasks:
            task.cancel()
        for writer in self._clients:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            writer.transport.abort()


@asynccontextmanager
async def _proxy(host: str, port: int) -> AsyncIterator[_Proxy]:
    proxy = _Proxy(host, port)
    async with await asyncio.start_server(proxy.serve, "127.0.0.1") as server:
        proxy.port = server.sockets[0].getsockname()[1]
        yield proxy


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
