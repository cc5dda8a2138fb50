"""Login by a header of a proxy that has checked who sends the request, such as oauth2-proxy or a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from streamproc.report.markup import Html, tag
from streamproc.web.access.client_address import TrustedProxies, is_trusted
from streamproc.web.access.headers import the_only
from streamproc.web.access.login import Fields, Identity, LoginMethod, LoginRefused, continue_form
from streamproc.web.access.rights import rights_of
from streamproc.web.access.session import Session

USER_MAX: Final = 120  # characters
NOT_NAMED: Final = "The proxy in front of this page did not say who you are."


class ProxyHeaderLogin(LoginMethod):
    """Logs in the person that a trusted proxy names. From any other address, the header means nothing."""

    name = "header"

    def __init__(
        self, header: str, groups_header: str, proxies: TrustedProxies, granted: Mapping[str, frozenset[str]]
    ) -> None:
        self._header = header
        self._groups_header = groups_header
        self._proxies = proxies
        self._granted = granted

    def form(self, request: web.Request, back_to: str) -> Html:
        """Return a form to continue as the person that the proxy names."""
        user = self._user(request)
        if not user:
            return tag("p", NOT_NAMED)
        return continue_form(self.name, {"next": back_to}, f"Continue as {user}")

    async def identify(self, request: web.Request, _fields: Fields) -> Identity:
        """Return the person that the proxy names."""
        user = self._user(request)
        if not user:
            raise LoginRefused(NOT_NAMED)
        return Identity(f"{self.name}:{user}", self._rights(request))

    def current(self, session: Session, request: web.Request | None) -> frozenset[str] | None:
        """Return the rights by the groups of this request; None if the proxy does not name the same person."""
        if request is None:
            return session.rights
        return self._rights(request) if session.name == f"{self.name}:{self._user(request)}" else None

    def _user(self, request: web.Request) -> str:
        """Return the person that the proxy names; empty for a header from elsewhere, or one that comes twice."""
        user = (the_only(request, self._header) or "").strip()
        if not is_trusted(request.remote or "", self._proxies):
            return ""
        return user if user.isprintable() and len(user) <= USER_MAX else ""

    def _rights(self, request: web.Request) -> frozenset[str]:
        """Return the rights of the groups that the proxy names; a header that comes twice names none."""
        groups = (the_only(request, self._groups_header) or "") if self._groups_header else ""
        return rights_of((group.strip() for group in groups.split(",")), self._granted)
