"""Login with OpenID Connect: the code flow with PKCE.

Nothing is kept on the server between the two halves of a login. A cookie of the browser has a random value; `state`,
`nonce` and the PKCE verifier are derived from it with a key of this process. So only the browser that began a login can
end it, and a `GET` by which anyone can begin one changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from streamproc.errors import Unavailable, shown
from streamproc.metrics.bounded_http import network_of
from streamproc.model.escaping import escape
from streamproc.model.newest import Newest
from streamproc.report.markup import Html, tag
from streamproc.web.access.client_address import TrustedProxies, client_address
from streamproc.web.access.headers import cookie_values
from streamproc.web.access.login import (
    AccessOptions,
    Fields,
    Identity,
    LoginMethod,
    LoginRefused,
    comes_from_elsewhere,
    continue_form,
)
from streamproc.web.access.oidc_provider import OidcProvider
from streamproc.web.access.own_address import own_path
from streamproc.web.access.rights import rights_of

log = logging.getLogger(__name__)

CALLBACK: Final = "/login/oidc/callback"
RETURNED: Final = ("code", "state", "iss", "error")
LOGIN_S: Final = 600  # between beginning and end of a login
LEEWAY_S: Final = 60  # of clocks
EXCHANGES_MAX: Final = 10  # at once, of an address: each may take as long as the provider
USED_MAX: Final = 10_000  # logins that were ended
NAME_MAX: Final = 120  # characters
FAILED: Final = "The identity provider could not be asked: try again, or look into the log of the page."
BUSY: Final = "Too many people log in from this address at once: try again."
BEGIN_AGAIN: Final = "This login was begun in another browser, too long ago, or is over: begin again."


class OidcLogin(LoginMethod):
    """Logs in people by the provider; the groups in its token give rights, for as long as the session lasts."""

    name = "oidc"

    def __init__(
        self,
        options: AccessOptions,
        secret: str,
        granted: Mapping[str, frozenset[str]],
        proxies: TrustedProxies = (),
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`now` is the wall clock in seconds. Raises `InvalidSettings`."""
        self._options = options
        self._granted = granted
        self._proxies = proxies
        self._exchanging: Counter[str] = Counter()
        self._now = now
        self._provider = OidcProvider(options.oidc_issuer, options.oidc_client_id, secret)
        self._key = secrets.token_bytes(32)
        self._used: Newest[str, None] = Newest(USED_MAX)

    def form(self, _request: web.Request, back_to: str) -> Html:
        """Return a link that begins a login."""
        host = urlsplit(self._options.oidc_issuer).netloc
        return tag("p", tag("a", f"Log in with {host}", href=f"/login/oidc?{urlencode({'next': back_to})}"))

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes that begin a login, and to which the provider sends the browser back."""
        return (web.get("/login/oidc", self._begin), web.get(CALLBACK, self._returned))

    async def identify(self, request: web.Request, fields: Fields) -> Identity:
        """End a login: check `state`, exchange the code, check the token."""
        state = fields.get("state", "")
        cookies = cookie_values(request, self._cookie)
        cookie = next((one for one in cookies if _equal(state, self._derived("state", one))), "")
        if not self._is_fresh(cookie) or fields.get("iss", self._options.oidc_issuer) != self._options.oidc_issuer:
            raise LoginRefused(BEGIN_AGAIN)
        if fields.get("error"):
            raise LoginRefused(f"The identity provider refused: {shown(fields['error'])}.")
        claims = await self._exchange(request, cookie, fields.get("code", ""))
        if problem := self._problem(claims, self._derived("nonce", cookie)):
            log.warning("login with the identity provider failed: its token has a wrong %s", problem)
            raise LoginRefused(FAILED)
        groups = claims.get(self._options.oidc_groups_claim)
        named = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        rights = rights_of((group for group in named if isinstance(group, str)), self._granted)
        back_to = _decoded(cookie.rpartition(".")[2])
        return Identity(f"{self.name}:{self._name(claims)}", rights, back_to=own_path(back_to))

    async def _exchange(self, request: web.Request, cookie: str, code: str) -> Mapping[str, Any]:
        """Return the claims of the provider for a code, which is asked for once, and for few logins of an address."""
        place = network_of(client_address(request, self._proxies))
        if self._exchanging[place] >= EXCHANGES_MAX:
            raise LoginRefused(BUSY)
        self._used[cookie] = None
        self._exchanging[place] += 1
        try:
            token = await self._provider.id_token(code, self._derived("verifier", cookie), self._redirect_uri)
            return await self._provider.claims(token)
        except Unavailable as error:
            log.warning("login with the identity provider failed: %s", error)
            raise LoginRefused(FAILED) from None
        finally:
            self._exchanging[place] -= 1
            if not self._exchanging[place]:
                del self._exchanging[place]

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        back_to = own_path(request.query.get("next", ""))
        if comes_from_elsewhere(request):
            # Otherwise a site could end the login that a person has begun, again and again, by beginning another one.
            return self.site.layout("Log in", tag("h1", "Log in") + self.form(request, back_to), request)
        try:
            found = await self._provider.configuration()
        except Unavailable as error:
            log.warning("login with the identity provider failed: %s", error)
            raise web.HTTPServiceUnavailable(text=f"{FAILED}\n") from None
        cookie = f"{int(self._now())}.{secrets.token_urlsafe(32)}.{_encoded(back_to.encode())}"
        challenge = hashlib.sha256(self._derived("verifier", cookie).encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._options.oidc_client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._options.oidc_scope,
            "state": self._derived("state", cookie),
            "nonce": self._derived("nonce", cookie),
            "code_challenge": _encoded(challenge),
            "code_challenge_method": "S256",
        }
        endpoint = found["authorization_endpoint"]
        to = f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"
        response = web.Response(status=303, headers={"Location": to})
        self.site.address.set_cookie(response, self._cookie, cookie, LOGIN_S)
        return response

    async def _returned(self, request: web.Request) -> web.Response:
        """Pass on what the provider says by a form of ours: its redirect brings no `SameSite=Strict` cookie."""
        fields = {name: request.query[name] for name in RETURNED if name in request.query}
        form = tag("div", tag("h1", "Log in"), continue_form(self.name, fields, "Continue"), class_="login")
        return self.site.layout("Log in", form, request)

    @property
    def _cookie(self) -> str:
        return f"{self.site.address.cookie}-login"

    @property
    def _redirect_uri(self) -> str:
        return self.site.address.origins[0] + CALLBACK

    def _derived(self, purpose: str, cookie: str) -> str:
        content = f"{purpose}\0{cookie}".encode("utf-8", "surrogateescape")
        return _encoded(hmac.digest(self._key, content, hashlib.sha256))

    def _is_fresh(self, cookie: str) -> bool:
        began = cookie.partition(".")[0]
        return cookie not in self._used and began.isdigit() and 0 <= self._now() - int(began) < LOGIN_S

    def _problem(self, claims: Mapping[str, Any], nonce: str) -> str:
        """Return the first claim that is wrong; empty if the token is for this login."""
        audience, party, now_s = claims.get("aud"), claims.get("azp"), self._now()
        audiences = audience if isinstance(audience, list) else [audience]
        client = self._options.oidc_client_id
        checks = {
            "iss": claims.get("iss") == self._options.oidc_issuer,
            "aud": client in audiences and (party == client or (party is None and len(audiences) == 1)),
            "exp": _number(claims.get("exp")) > now_s - LEEWAY_S,
            "iat": abs(_number(claims.get("iat")) - now_s) < LOGIN_S,
            "nbf": _number(claims.get("nbf", 0)) <= now_s + LEEWAY_S,
            "nonce": _equal(str(claims.get("nonce")), nonce),
            "sub": isinstance(claims.get("sub"), str) and claims["sub"] != "",
        }
        return next((claim for claim, right in checks.items() if not right), "")

    def _name(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self._options.oidc_name_claim)
        # Some providers send it as a text.
        verified = str(claims.get("email_verified", True)).lower() == "true"
        unverified = self._options.oidc_name_claim == "email" and not verified
        if not isinstance(name, str) or not name.strip() or unverified:
            name = str(claims["sub"])
        return escape(name.strip())[:NAME_MAX]


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("-inf")
