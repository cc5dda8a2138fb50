"""From which address a request comes, when proxies that are trusted pass it on."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from aiohttp import web

from streamproc.errors import InvalidSettings, shown

log = logging.getLogger(__name__)

TrustedProxies = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]

NARROW: Final = {4: 24, 6: 64}  # the prefix of a subnet: proxies have one of their own, or single addresses
LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


def read_networks(texts: Iterable[str]) -> TrustedProxies:
    """Read the networks of `--trusted-proxy`. Raises `InvalidSettings`."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            what = f"--trusted-proxy {shown(text)}: {error}; expected an address or a network, such as 10.1.2.3/32"
            raise InvalidSettings(what) from None
    return tuple(found)


def warn_of_wide(proxies: TrustedProxies, header: str) -> None:
    """Log each network that is wider than a subnet: what runs there besides the proxy is trusted like it.

    `header` names the person, if a proxy does that.
    """
    for network in proxies:
        if network.prefixlen >= NARROW[network.version] or any(
            network.version == own.version and network.subnet_of(own)  # type: ignore[arg-type]  # the versions are equal
            for own in LOOPBACK
        ):
            continue
        can = f"log in as anyone, by sending {header}" if header else "hide from the limit of guesses at passwords"
        log.warning(
            "--trusted-proxy %s trusts %s addresses: each of them can %s. Name the proxies themselves (/32), or their "
            "own subnet (/24; /64 of IPv6)",
            network,
            f"{network.num_addresses:,}",
            can,
        )


def is_trusted(address: str, proxies: TrustedProxies) -> bool:
    """Return whether an address is that of a proxy that is trusted."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return any(ip.version == network.version and ip in network for network in proxies)


def client_address(request: web.Request, proxies: TrustedProxies) -> str:
    """Return the address of the client: of the last hop that is no trusted proxy, since anyone can write the others.

    A hop that is no address counts as the proxy that passed it on.
    """
    address = request.remote or ""
    hops = [hop for line in request.headers.getall("X-Forwarded-For", ()) for hop in line.split(",")]
    while hops and is_trusted(address, proxies):
        hop = _without_port(hops.pop().strip())
        if hop is None:
            break
        address = hop
    return address


def _without_port(hop: str) -> str | None:
    """Return the address of a hop; some proxies add the client's port, another one for each connection."""
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ipaddress.ip_address(hop))
    except ValueError:
        return None
