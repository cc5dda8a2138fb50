"""The checks of every request, in one place: host, method, origin, session, rights, CSRF token. Then login and logout.

A `GET` changes nothing. A `POST` needs all of: `Sec-Fetch-Site: same-origin`, an `Origin` of ours, and, with a session,
its CSRF token.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from streamproc.errors import InvalidSettings
from streamproc.kafka.log_limit import LogLimit
from streamproc.metrics.bounded_http import network_of
from streamproc.model.escaping import escape
from streamproc.report.markup import NOTHING, tag
from streamproc.web.access.client_address import TrustedProxies, client_address, is_trusted
from streamproc.web.access.headers import TRANSPORT, add_headers, cookie_values, the_only
from streamproc.web.access.login import (
    Fields,
    Identity,
    Layout,
    LoginMethod,
    LoginRefused,
    comes_from_elsewhere,
    known_browser_cookie,
)
from streamproc.web.access.own_address import OwnAddress, loopback_address, own_path
from streamproc.web.access.rights import VIEW
from streamproc.web.access.session import Session, Sessions

log = logging.getLogger(__name__)

SESSION: Final = web.RequestKey("session", object)  # ask `session_of`
CSRF_FIELD: Final = "csrf"
MANY_VALUED: Final = frozenset({"run"})
CSRF_HEADER: Final = "X-CSRF-Token"
STATIC: Final = "/static/"  # style sheets, which the login page needs, too
PUBLIC: Final = frozenset({"/login", "/login/continue.js", "/favicon.ico", "/favicon.svg"})
KNOWN_BROWSER_S: Final = 90 * 86_400
BODY_BYTES_MAX: Final = 65_536  # of a form without a session
NO_RIGHT: Final = "You have no right to see this page: ask for a group that has one."
CONTINUE_SCRIPT: Final = 'document.getElementById("continue").requestSubmit();\n'


class Access:
    """Who may see the page and send commands. `layout` makes a page of a title and a body; `address` None: that of the
    loopback `host`."""

    def __init__(
        self,
        methods: Sequence[LoginMethod],
        layout: Layout,
        *,
        host: str = "127.0.0.1",
        address: OwnAddress | None = None,
        proxies: TrustedProxies = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sessions = Sessions(now)
        self._methods = {method.name: method for method in methods}
        for method in methods:
            method.site = self
        self.layout = layout
        self._host = host
        self._address = address
        self._proxies = proxies
        self._refusals = LogLimit(log, now)
        self._own_paths = PUBLIC

    # For the server.

    def install(self, app: web.Application) -> None:
        """Put the checks, headers and routes into an application. Its routes need a session from then on."""
        app.middlewares.extend(self.middlewares())
        app.on_response_prepare.append(self._prepare)
        app.add_routes(self.routes())

    def middlewares(self) -> tuple[Middleware, ...]:
        """Return the middleware that checks each request and sets its session, for `session_of`."""
        return (self._check,)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of login and logout."""
        own = [
            web.get("/login", self._login_page),
            web.get("/login/continue.js", self._continue_script),
            *(route for method in self._methods.values() for route in method.routes()),
            web.post("/login/{method}", self._log_in),
            web.post("/logout", self._log_out),
        ]
        self._own_paths = PUBLIC | {route.path for route in own if route.path != "/logout"}
        return own

    def listens_on(self, port: int) -> None:
        """Say on which port the page listens, which may have been chosen by the system; before the first request."""
        if self._address is None:
            self._address = loopback_address(port, self._host)

    def is_proxy(self, address: str) -> bool:
        """Return whether an address is that of a trusted proxy, which connects for many clients."""
        return is_trusted(address, self._proxies)

    @property
    def address(self) -> OwnAddress:
        """The address under which browsers reach the page."""
        if self._address is None:
            raise InvalidSettings("the page does not listen yet: call `listens_on` before the first request")
        return self._address

    def address_hint(self) -> str:
        """Return the address to open in a browser; on loopback, with a token that works once."""
        hints = (method.address_hint() for method in self._methods.values())
        return self.address.origins[0] + next(filter(None, hints), "/")

    def alive(self, session: Session) -> bool:
        """Return whether a session is still valid; a stream of events asks from time to time, and ends with it."""
        return self.sessions.alive(session) and self._still_holds(session, None)

    # The checks.

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        request[SESSION] = None
        if not self.address.is_host(request):
            raise web.HTTPMisdirectedRequest(text="This is not the address of this page.\n")
        if request.method not in ("GET", "HEAD", "POST"):
            raise web.HTTPMethodNotAllowed(request.method, ("GET", "HEAD", "POST"))
        if request.method == "POST" and not self.address.is_same_origin(request):
            raise web.HTTPForbidden(text="This request comes from another site, or from a browser that does not say.\n")
        session = request[SESSION] = self._session_in_force(request)
        if self._is_public(request):
            return await handler(request)
        if session is None:
            return self._unauthenticated(request)
        if request.method == "POST":
            await self._check_token(request, session)
        if request.method == "POST" or request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate":
            self.sessions.use(session)  # a script that keeps a page live is no person
        return await handler(request)

    def _session_in_force(self, request: web.Request) -> Session | None:
        """Return the session of the request. A cookie that another page of this host sets beside ours counts only if it
        names a session too: then it is not known which of them is meant, and none is."""
        known = [self.sessions.find(value) for value in cookie_values(request, self.address.cookie)]
        found = [session for session in known if session is not None]
        return found[0] if len(found) == 1 and self._still_holds(found[0], request) else None

    def _still_holds(self, session: Session, request: web.Request | None) -> bool:
        """Bring the rights of a session up to date; end it if its login no longer holds."""
        rights = self._methods[session.name.partition(":")[0]].current(session, request)
        if rights is None or VIEW not in rights:
            log.info("session of %s ended: its login no longer holds", escape(session.name))
            self.sessions.end(session)
            return False
        session.rights = rights
        return True

    def _is_public(self, request: web.Request) -> bool:
        """By the route that was found, not by the text of the path: that can be written in many ways."""
        resource = request.match_info.route.resource
        return resource is not None and (resource.canonical in self._own_paths or resource.canonical.startswith(STATIC))

    def _unauthenticated(self, request: web.Request) -> web.Response:
        if request.method == "POST" or "text/html" not in request.headers.get("Accept", ""):
            return web.Response(status=401, text="Log in first.\n")
        target = own_path(request.raw_path)
        if comes_from_elsewhere(request):
            return self._open_again(request, target)
        raise web.HTTPSeeOther("/login" if target == "/" else f"/login?next={quote(target, safe='/')}")

    def _open_again(self, request: web.Request, target: str) -> web.Response:
        """A link from elsewhere brings no `SameSite=Strict` cookie; the same address, opened by our page, does."""
        response = self.layout("One moment", tag("p", tag("a", "Continue", href=target)), request)
        response.headers["Refresh"] = "0"
        return response

    async def _check_token(self, request: web.Request, session: Session) -> None:
        given = the_only(request, CSRF_HEADER) or ""
        if CSRF_HEADER not in request.headers:
            given = (await form_fields(request)).get(CSRF_FIELD, "")
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), session.csrf.encode()):
            raise web.HTTPForbidden(text="The form has no valid token of your session: reload the page.\n")

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        await add_headers(request, response)
        if self._address is not None and self._address.secure:
            response.headers["Strict-Transport-Security"] = TRANSPORT

    # Login and logout.

    async def _login_page(self, request: web.Request) -> web.Response:
        back_to = own_path(request.query.get("next", ""))
        if session_of(request) is not None:
            raise web.HTTPSeeOther(back_to)
        if comes_from_elsewhere(request):
            # Otherwise a site could log people in again, and so end the session that they have.
            return self._open_again(request, request.path_qs if request.path_qs.isascii() else "/login")
        return self._show_login(request, back_to)

    def _show_login(self, request: web.Request, back_to: str, problem: str = "") -> web.Response:
        forms = NOTHING.join(method.form(request, back_to) for method in self._methods.values())
        said = tag("p", problem, role="alert", class_="note bad") if problem else NOTHING
        return self.layout("Log in", tag("div", tag("h1", "Log in"), said, forms, class_="login"), request)

    async def _continue_script(self, _request: web.Request) -> web.Response:
        return web.Response(text=CONTINUE_SCRIPT, content_type="text/javascript")

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        method = self._methods.get(request.match_info["method"])
        if method is None:
            raise web.HTTPNotFound
        address = client_address(request, self._proxies)
        fields = await form_fields(request, BODY_BYTES_MAX)
        back_to = own_path(fields.get("next", ""))
        try:
            identity = await method.identify(request, fields)
            if VIEW not in identity.rights:
                log.warning("%s has no right to see the page", escape(identity.name))
                raise LoginRefused(NO_RIGHT)
        except LoginRefused as refused:
            # Not with the name: people type passwords into its field.
            kind = ("refused logins", method.name, network_of(address))
            self._refusals(logging.WARNING, kind, "login refused method=%s address=%s", method.name, escape(address))
            response = self._show_login(request, back_to, str(refused))
            response.set_status(403)
            return response
        return self._begin(request, identity, address, identity.back_to or back_to)

    def _begin(self, request: web.Request, identity: Identity, address: str, back_to: str) -> web.StreamResponse:
        if (before := session_of(request)) is not None:
            self.sessions.end(before)
        session = self.sessions.begin(identity.name, identity.rights, identity.basis)
        rights = ",".join(sorted(session.rights))
        log.info("login name=%s rights=%s address=%s", escape(session.name), rights, escape(address))
        response = web.Response(status=303, headers={"Location": back_to})
        self.address.set_cookie(response, self.address.cookie, session.id, int(self.sessions.age_s))
        if identity.known_browser:
            known = known_browser_cookie(self.address)
            self.address.set_cookie(response, known, identity.known_browser, KNOWN_BROWSER_S)
        return response

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        if (session := session_of(request)) is not None:
            self.sessions.end(session)
            log.info("logout name=%s", escape(session.name))
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(self.address.cookie, path="/", secure=self.address.secure, httponly=True, samesite="Strict")
        return response


def session_of(request: web.Request) -> Session | None:
    """Return the session of a request that has passed the checks; None on the pages of login."""
    found = request.get(SESSION)
    return found if isinstance(found, Session) else None


async def form_fields(request: web.Request, bytes_max: int | None = None) -> Fields:
    """Return the text fields of a posted form; one that comes twice is refused, as it says two things. The fields of
    `MANY_VALUED` have one value for each box that is ticked: they are one text, with spaces between the values."""
    if bytes_max is not None and (request.content_length or bytes_max + 1) > bytes_max:
        raise web.HTTPRequestEntityTooLarge(max_size=bytes_max, actual_size=request.content_length or bytes_max + 1)
    if request.content_type != "application/x-www-form-urlencoded":
        raise web.HTTPUnsupportedMediaType(text="Send the fields as application/x-www-form-urlencoded.\n")
    if (request.charset or "utf-8").lower() != "utf-8":  # browsers send no other; codecs of Python may take long
        raise web.HTTPUnsupportedMediaType(text="Send the fields in UTF-8.\n")
    try:
        posted = await request.post()
    except ValueError:  # not UTF-8, or too many fields
        raise web.HTTPBadRequest(text="The form cannot be read.\n") from None
    fields = {name: value for name, value in posted.items() if isinstance(value, str)}
    many = {name: posted.getall(name) for name in MANY_VALUED & fields.keys()}
    if len(fields) - len(many) != len(posted) - sum(map(len, many.values())):
        raise web.HTTPBadRequest(text="The form has a field twice.\n")
    return fields | {name: " ".join(map(str, values)) for name, values in many.items()}
