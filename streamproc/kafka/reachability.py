"""Why no broker answers: a wrong name, a refused connection, a firewall, or a server of another kind."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, NamedTuple

CONNECT_S: Final = 2.0  # for each address
KAFKA_PORT: Final = 9092
SERVERS_MAX: Final = 5  # that are tried


class Unreachable(NamedTuple):
    """What keeps a client from its brokers, and what to do."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


async def why_unreachable(brokers: str) -> Unreachable:
    """Try each broker by name and connection, and return what is wrong. It takes a few seconds at most."""
    servers = [server.strip() for server in brokers.split(",") if server.strip()][:SERVERS_MAX]
    found = await asyncio.gather(*map(_why, servers))
    what = f"no Kafka broker answers at {brokers}: {'; '.join(dict.fromkeys(one.what for one in found))}"
    return Unreachable(what, "; ".join(dict.fromkeys(one.remedy for one in found)))


async def _why(server: str) -> Unreachable:
    host, port = _address(server)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S):
            await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return Unreachable(f"the name {host} cannot be resolved", "correct it in --brokers or STREAMPROC_BROKERS")
    except TimeoutError:
        return Unreachable(f"no name server answers about {host}", "check the DNS of this machine")
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        what = f"{host}:{port} does not answer connections"
        return Unreachable(what, "check firewalls, and the address in --brokers or STREAMPROC_BROKERS")
    except ConnectionRefusedError:
        return Unreachable(
            f"{host}:{port} refuses connections, so nothing listens there",
            "start Kafka, or set --brokers or STREAMPROC_BROKERS to its address",
        )
    except OSError as error:
        return Unreachable(
            f"{host}:{port} cannot be reached ({error.strerror or error})",
            "check the network, and the address in --brokers or STREAMPROC_BROKERS",
        )
    writer.close()
    return Unreachable(
        f"{host}:{port} accepts connections, but does not answer as a Kafka broker",
        "name a port of Kafka, and with TLS set STREAMPROC_SECURITY_PROTOCOL; a broker that starts needs some seconds",
    )


def _address(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = server, ""
    return host.removeprefix("[").removesuffix("]"), int(port) if port else KAFKA_PORT
