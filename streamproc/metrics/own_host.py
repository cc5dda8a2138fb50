"""The names under which a server on loopback is reached. Requests that name another host are refused.

Any site that a browser on this machine opens can reach such a server, with a name of its own that resolves to 127.0.0.1
(DNS rebinding). `Host` shows it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Container
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp import web

HTTP_PORT: Final = 80


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine, and no other can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def loopback_hosts(host: str, port: int) -> tuple[str, ...]:
    """Return the values of `Host` that name a server on this port of loopback, that of `host` first."""
    suffix = "" if port == HTTP_PORT else f":{port}"
    names = dict.fromkeys((f"[{host}]" if ":" in host else host, "127.0.0.1", "localhost", "[::1]"))
    return tuple(f"{name}{suffix}" for name in names)


def names_host(request: web.Request, hosts: Container[str]) -> bool:
    """Return whether the request names one of these as its host, and no other."""
    named = request.headers.getall("Host", ())
    return len(named) == 1 and named[0].lower() in hosts
