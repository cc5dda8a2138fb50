"""The login of a laptop: the page listens on loopback only, and prints an address with a token that works once."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from aiohttp import web

from streamproc.report.markup import Html, tag
from streamproc.web.access.login import Fields, Identity, LoginMethod, LoginRefused, continue_form
from streamproc.web.access.rights import FLEET, rights_up_to

TOKEN_BYTES = 32


class LoopbackLogin(LoginMethod):
    """Logs in by a token: the person at this machine, with all rights. Each login makes another token.

    `announce` gets the address with the next token, to print it.
    """

    name = "loopback"

    def __init__(self, announce: Callable[[], None] = lambda: None) -> None:
        self.announce = announce
        self._token = secrets.token_urlsafe(TOKEN_BYTES)

    def form(self, request: web.Request, back_to: str) -> Html:
        """Return the form that carries the token on; without one, where to find it."""
        token = request.query.get("token", "")
        if not token:
            return tag("p", "Open the address with a token that `streamproc page` printed last.")
        return continue_form(self.name, {"token": token, "next": back_to}, "Continue")

    async def identify(self, _request: web.Request, fields: Fields) -> Identity:
        """Check the token, and replace it."""
        if not hmac.compare_digest(fields.get("token", "").encode(), self._token.encode()):
            raise LoginRefused("This token is wrong or used up: open the address that `streamproc page` printed last.")
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self.announce()
        return Identity(self.name, rights_up_to(FLEET))

    def address_hint(self) -> str:
        """Return the path with the token."""
        return f"/login?token={self._token}"
