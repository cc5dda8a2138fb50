"""Whether a server speaks TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from streamproc.kafka.transport import speaks_tls


async def test_openssl_is_left_alone_while_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "SSLContext", None)  # a fork in the middle of making one would hang in the child
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert not await speaks_tls(*bound.getsockname())


async def test_a_server_without_tls_is_told_from_one_with_it() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        assert not await speaks_tls(*server.sockets[0].getsockname())
