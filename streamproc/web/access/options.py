"""What the options of `streamproc page` say about access, checked as a whole."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamproc.errors import InvalidSettings
from streamproc.web.access.client_address import read_networks
from streamproc.web.access.gate import Access
from streamproc.web.access.loopback import LoopbackLogin
from streamproc.web.access.own_address import is_loopback, public_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.settings import Settings
    from streamproc.web.access.gate import Layout
    from streamproc.web.access.login import LoginMethod


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """Where the page listens, and how people log in. Without a way to log in, it is the token of a loopback page."""

    host: str = "127.0.0.1"
    public_url: str = ""
    trusted_proxies: tuple[str, ...] = ()


def build_access(
    options: AccessOptions,
    settings: Settings,  # noqa: ARG001  # the client secret of an identity provider
    layout: Layout,
    *,
    announce: Callable[[], None] = lambda: None,
    now: Callable[[], float] = time.monotonic,
) -> Access:
    """Return the access that the options describe. `announce` is called when a token of loopback was used and
    `Access.address_hint` has another. Raises `InvalidSettings`."""
    proxies = read_networks(options.trusted_proxies)
    methods: list[LoginMethod] = []
    if not methods:
        if not is_loopback(options.host):
            raise InvalidSettings(
                f"--listen {options.host}: other machines can connect, so people must log in: name --users FILE, "
                "--oidc-issuer URL or --trust-header NAME; or listen on 127.0.0.1"
            )
        methods.append(LoopbackLogin(announce))
    if not options.public_url and not is_loopback(options.host):
        raise InvalidSettings(
            f"--listen {options.host}: name the address under which browsers reach the page with --public-url, such "
            "as https://ops.example.com; requests for other addresses are refused"
        )
    address = public_address(options.public_url) if options.public_url else None
    return Access(methods, layout, address=address, proxies=proxies, now=now)
