"""What the options of `streamproc page` say about access, checked as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec

from streamproc.errors import InvalidSettings
from streamproc.metrics.own_host import is_loopback
from streamproc.settings import Settings
from streamproc.web.access.client_address import TrustedProxies, read_networks, warn_of_wide
from streamproc.web.access.gate import Access
from streamproc.web.access.login import AccessOptions, Layout, LoginMethod
from streamproc.web.access.loopback import LoopbackLogin
from streamproc.web.access.own_address import public_address
from streamproc.web.access.passwords import PasswordLogin
from streamproc.web.access.proxy_header import ProxyHeaderLogin
from streamproc.web.access.rights import read_groups

NO_LOGIN = "name --users FILE, --oidc-issuer URL or --trust-header NAME; or listen on 127.0.0.1"


def build_access(
    options: AccessOptions,
    settings: Settings,
    layout: Layout,
    *,
    announce: Callable[[], None] = lambda: None,
    now: Callable[[], float] = time.monotonic,
) -> Access:
    """Return the access that the options describe. `announce` is called when a token of loopback was used and
    `Access.address_hint` has another. Raises `InvalidSettings`."""
    proxies = read_networks(options.trusted_proxies)
    methods = list(_methods(options, settings, proxies, now))
    local = is_loopback(options.host)
    if not methods:
        if not local:
            raise InvalidSettings(
                f"--listen {options.host}: other machines can connect, so people must log in: {NO_LOGIN}"
            )
        methods.append(LoopbackLogin(announce))
    if not options.public_url and not local:
        raise InvalidSettings(
            f"--listen {options.host}: name the address under which browsers reach the page with --public-url, such "
            "as https://ops.example.com; requests for other addresses are refused"
        )
    address = public_address(options.public_url) if options.public_url else None
    warn_of_wide(proxies, options.trust_header)
    return Access(methods, layout, host=options.host, address=address, proxies=proxies, now=now)


def _methods(
    options: AccessOptions, settings: Settings, proxies: TrustedProxies, now: Callable[[], float]
) -> Iterator[LoginMethod]:
    granted = read_groups(options.groups)
    if (options.oidc_issuer or options.trust_header) and not granted:
        raise InvalidSettings(
            "--group: say what people may do, such as --group oncall=fleet; --group '*=view' is everyone"
        )
    if options.users_file:
        yield PasswordLogin(options.users_file, proxies, now=now)
    if options.oidc_issuer:
        yield _oidc(options, settings, granted, proxies)
    if options.trust_header:
        if not proxies:
            raise InvalidSettings(
                f"--trust-header {options.trust_header}: name the proxies that may send it with --trusted-proxy, such "
                "as 10.1.2.3/32: anyone who reaches the page could send it otherwise"
            )
        yield ProxyHeaderLogin(options.trust_header, options.groups_header, proxies, granted)


def _oidc(
    options: AccessOptions, settings: Settings, granted: Mapping[str, frozenset[str]], proxies: TrustedProxies
) -> LoginMethod:
    if not options.oidc_client_id:
        raise InvalidSettings("--oidc-client-id: name the client that the identity provider knows this page as")
    if find_spec("joserfc") is None:
        raise InvalidSettings("--oidc-issuer needs a package that is not installed: pip install 'streamproc[page]'")
    from streamproc.web.access.oidc import OidcLogin

    return OidcLogin(options, settings.page_oidc_secret.get_secret_value(), granted, proxies)
