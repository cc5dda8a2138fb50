"""The address under which browsers reach the page. Requests that name another one are refused.

A page on loopback can be reached by any site that a browser on this machine opens: with a name of its own that resolves
to 127.0.0.1 (DNS rebinding), or with a form that posts here. The first shows in `Host`, the second in `Origin`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from streamproc.errors import InvalidSettings, shown
from streamproc.metrics.own_host import is_loopback, loopback_hosts, names_host
from streamproc.web.access.headers import the_only

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
HOME: Final = "/"
PATH_MAX: Final = 2_000  # characters of a path to return to after a login


@dataclass(frozen=True, slots=True)
class OwnAddress:
    """The first of `origins` is the one that is shown. `secure`: browsers talk TLS with the page, or its proxy."""

    origins: tuple[str, ...]
    secure: bool
    cookie: str

    @property
    def hosts(self) -> frozenset[str]:
        """The values of `Host` that are ours."""
        return frozenset(origin.partition("://")[2] for origin in self.origins)

    def set_cookie(self, response: web.Response, name: str, value: str, max_age_s: int) -> None:
        """Set a cookie that scripts cannot read and that other sites' links do not bring."""
        response.set_cookie(
            name, value, max_age=max_age_s, path="/", secure=self.secure, httponly=True, samesite="Strict"
        )

    def is_host(self, request: web.Request) -> bool:
        """Return whether the request names us as its host."""
        return names_host(request, self.hosts)

    def is_same_origin(self, request: web.Request) -> bool:
        """Return whether a page of ours sent the request, by what the browser says and a page cannot change."""
        return the_only(request, "Sec-Fetch-Site") == "same-origin" and the_only(request, "Origin") in self.origins


def loopback_address(port: int, host: str = "127.0.0.1") -> OwnAddress:
    """Return the address of a page on loopback. Without TLS there is no `Secure` cookie, and so no `__Host-` name; the
    port in its name keeps two pages on one machine apart, because cookies do not know ports."""
    origins = tuple(f"http://{name}" for name in loopback_hosts(host, port))
    return OwnAddress(origins, secure=False, cookie=f"streamproc-session-{port}")


def public_address(url: str) -> OwnAddress:
    """Return the address that `--public-url` names. Raises `InvalidSettings`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidSettings(f"--public-url {shown(url)}: not a URL, such as https://ops.example.com") from None
    host = (parts.hostname or "").lower()
    if parts.scheme not in DEFAULT_PORTS or not host or "@" in parts.netloc or parts.path not in ("", "/"):
        raise InvalidSettings(f"--public-url {shown(url)}: expected only https:// and a host, perhaps with a port")
    if parts.query or parts.fragment:
        raise InvalidSettings(f"--public-url {shown(url)}: expected no query and no fragment")
    secure = parts.scheme == "https"
    if not secure and not is_loopback(host):
        raise InvalidSettings(
            f"--public-url {shown(url)}: must start with https://, because passwords and sessions are sent there; put "
            "a proxy with TLS in front of the page"
        )
    named = f"[{host}]" if ":" in host else host
    suffix = "" if port in (None, DEFAULT_PORTS[parts.scheme]) else f":{port}"
    cookie = "__Host-streamproc-session" if secure else f"streamproc-session-{port or DEFAULT_PORTS['http']}"
    return OwnAddress((f"{parts.scheme}://{named}{suffix}",), secure, cookie)


def own_path(text: str) -> str:
    """Return a path of ours to go to after a login; `/` for anything that a browser might take for another site."""
    usable = text.startswith("/") and not text.startswith(("//", "/\\", "/login", "/logout")) and len(text) <= PATH_MAX
    return text if usable and text.isascii() and text.isprintable() and "\\" not in text else HOME
