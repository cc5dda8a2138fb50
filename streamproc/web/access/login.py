"""What every way to log in has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from aiohttp import web

from streamproc.report.markup import NOTHING, Html, tag
from streamproc.web.access.own_address import OwnAddress
from streamproc.web.access.session import Session

Fields = Mapping[str, str]
Layout = Callable[[str, Html, web.Request], web.Response]  # title, body, request


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """Where the page listens, and how people log in. Without a way to log in, it is the token of a loopback page.

    `groups` are ``GROUP=RIGHT`` pairs, for the provider's groups and the header's.
    """

    host: str = "127.0.0.1"
    public_url: str = ""
    users_file: str = ""
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_scope: str = "openid profile email"
    oidc_name_claim: str = "email"
    oidc_groups_claim: str = "groups"
    trust_header: str = ""
    groups_header: str = ""
    trusted_proxies: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who logged in. `basis` is compared later to see whether the login still holds; `back_to` is the path to go to, if
    the form does not say; `known_browser` is the value of a cookie by which the method knows the browser next time."""

    name: str
    rights: frozenset[str]
    basis: str = ""
    back_to: str = ""
    known_browser: str = ""


class LoginSite(Protocol):
    """What a way to log in needs of the page that it is part of."""

    @property
    def address(self) -> OwnAddress:
        """The address under which browsers reach the page."""

    @property
    def layout(self) -> Layout:
        """Makes a page of a title and a body."""


class LoginRefused(Exception):
    """This login failed. The message is shown to the person, so it says nothing that helps to guess."""


class LoginMethod(ABC):
    """A way to log in. Its form posts to ``/login/NAME``; sessions are named ``NAME:WHO``."""

    name: ClassVar[str]
    site: LoginSite
    """The page that this is a part of; set before the first request."""

    @abstractmethod
    def form(self, request: web.Request, back_to: str) -> Html:
        """Return what the login page shows for it; nothing if it cannot be used from this browser now."""

    @abstractmethod
    async def identify(self, request: web.Request, fields: Fields) -> Identity:
        """Return who sent the form. Raises `LoginRefused`.

        A method whose secret can be guessed slows guesses down (`LoginThrottle`). Others must not: another site can
        make a browser send wrong tokens, and would lock its person out.
        """

    def current(self, session: Session, request: web.Request | None) -> frozenset[str] | None:  # noqa: ARG002
        """Return the rights that the session has now; None if its login no longer holds. Without a request, as far as
        that can be known without one."""
        return session.rights

    def routes(self) -> Sequence[web.RouteDef]:
        """Return further routes below ``/login/``; they need no session."""
        return ()

    def address_hint(self) -> str:
        """Return a path and query to open in a browser, for the person who starts the page; empty: none."""
        return ""


def comes_from_elsewhere(request: web.Request) -> bool:
    """Return whether another site sent the browser here: its person may not know of it."""
    return request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")


def known_browser_cookie(address: OwnAddress) -> str:
    """Return the name of the cookie of a browser that has logged in before."""
    return f"{address.cookie}-known"


def hidden(name: str, value: str) -> Html:
    """Return a hidden field of a form."""
    return tag("input", type="hidden", name=name, value=value)


def continue_form(method: str, fields: Mapping[str, str], button: str) -> Html:
    """Return a form that a script submits by itself; without script, its button does.

    A `GET` never logs in, so what follows a link, such as a mail scanner or a prefetching browser, uses up nothing.
    """
    inputs = NOTHING.join(hidden(name, value) for name, value in fields.items())
    form = tag("form", inputs, tag("button", button), method="post", action=f"/login/{method}", id="continue")
    return form + tag("script", src="/login/continue.js", type="module")
