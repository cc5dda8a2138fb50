"""A small OpenID Connect provider: code flow with PKCE, as the standard says. It can be told to lie."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlencode

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

CLIENT, SECRET = "streamproc-page", "the client's secret: 100 %"


class IdentityProvider:
    """Issues codes to the browser that comes, and tokens for them. `claims` are those of the person."""

    def __init__(self) -> None:
        self.issuer = ""
        self.claims: dict[str, Any] = {
            "sub": "248289761001", "email": "ada@example.com", "email_verified": True, "groups": ["dev", "oncall"],
        }  # fmt: skip
        self.change: Callable[[dict[str, Any]], Any] = lambda _claims: None
        """Changes the claims of a token before it is signed."""
        self.configuration: dict[str, Any] = {}
        self.algorithm = "RS256"
        self.keys = KeySet([RSAKey.generate_key(2048), ECKey.generate_key("P-256")])
        self.signing: Any = None
        """A key to sign with, instead of the published one."""
        self.more_keys: list[dict[str, str]] = []
        """Further keys to publish, such as one that should have stayed secret."""
        self.asked: list[dict[str, str]] = []
        self.exchanged = 0
        self.configured = 0
        """How often the configuration was asked for."""
        self.answering = asyncio.Event()
        """While it is not set, no request for the configuration or a token is answered."""
        self.answering.set()
        self.exchanging = 0
        self.down = False
        self._codes: dict[str, dict[str, str]] = {}

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/.well-known/openid-configuration", self._configuration),
                web.get("/authorize", self._authorize),
                web.post("/token", self._token),
                web.get("/keys", self._keys),
            ]
        )
        return app

    async def _configuration(self, _request: web.Request) -> web.Response:
        self.configured += 1
        await self.answering.wait()
        if self.down:
            raise web.HTTPServiceUnavailable
        found = {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize?prompt=login",
            "token_endpoint": f"{self.issuer}/token", "jwks_uri": f"{self.issuer}/keys",
        }  # fmt: skip
        return web.json_response(found | self.configuration)

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        assert asked["prompt"] == "login"
        self.asked.append(asked)
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"], "iss": self.issuer})
        return web.Response(status=302, headers={"Location": f"{asked['redirect_uri']}?{back}"})

    async def _token(self, request: web.Request) -> web.Response:
        fields = await request.post()
        self.exchanging += 1
        await self.answering.wait()
        asked = self._codes.pop(str(fields.get("code")), None)  # a code works once
        challenge = hashlib.sha256(str(fields.get("code_verifier", "")).encode()).digest()
        basic = base64.b64decode(request.headers.get("Authorization", "Basic Og==").removeprefix("Basic ")).decode()
        if (
            asked is None
            or [unquote_plus(part) for part in basic.split(":")] != [CLIENT, SECRET]
            or asked["redirect_uri"] != fields.get("redirect_uri")
            or asked["code_challenge"] != base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.exchanged += 1
        now = int(time.time())
        claims = self.claims | {"iat": now, "exp": now + 300}
        claims |= {"iss": self.issuer, "aud": CLIENT, "nonce": asked["nonce"]}
        self.change(claims)
        return web.json_response({"id_token": self.signed(claims), "access_token": "x", "token_type": "Bearer"})

    def signed(self, claims: dict[str, Any]) -> str:
        """A token, signed with the key that there is for the algorithm."""
        key = self.signing or next(one for one in self.keys if self.algorithm[0] == one.key_type[0])
        header = {"alg": self.algorithm, "kid": self.keys.keys[0].kid if isinstance(key, OctKey) else key.kid}
        return jwt.encode(header, claims, key, algorithms=[self.algorithm])

    async def _keys(self, _request: web.Request) -> web.Response:
        return web.json_response({"keys": [*self.keys.as_dict(private=False)["keys"], *self.more_keys]})


@asynccontextmanager
async def identity_provider() -> AsyncIterator[IdentityProvider]:
    """Serve a provider on this machine."""
    provider = IdentityProvider()
    runner = web.AppRunner(provider.app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        provider.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield provider
    finally:
        await runner.cleanup()
