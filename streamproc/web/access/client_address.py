"""From which address a request comes, when proxies that are trusted pass it on."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from streamproc.errors import InvalidSettings, shown

if TYPE_CHECKING:
    from aiohttp import web

TrustedProxies = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]


def read_networks(texts: Iterable[str]) -> TrustedProxies:
    """Read the networks of `--trusted-proxy`. Raises `InvalidSettings`."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            what = f"--trusted-proxy {shown(text)}: {error}; expected a network, such as 10.0.0.0/8 or 10.1.2.3/32"
            raise InvalidSettings(what) from None
    return tuple(found)


def is_trusted(address: str, proxies: TrustedProxies) -> bool:
    """Return whether an address is that of a proxy that is trusted."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return any(ip.version == network.version and ip in network for network in proxies)


def client_address(request: web.Request, proxies: TrustedProxies) -> str:
    """Return the address of the client: of the last hop that is no trusted proxy, since anyone can write the others."""
    address = request.remote or ""
    hops = [hop.strip() for line in request.headers.getall("X-Forwarded-For", ()) for hop in line.split(",")]
    while hops and is_trusted(address, proxies):
        address = hops.pop()
    return address
