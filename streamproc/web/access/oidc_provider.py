"""What is asked of an OpenID Connect provider: its configuration, its keys, and tokens for a code."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from streamproc.errors import InvalidSettings, Unavailable, shown
from streamproc.kafka.tokens import client_basic, oauth_error
from streamproc.metrics.own_host import is_loopback

ANSWER_BYTES_MAX: Final = 1 << 20
TIMEOUT_S: Final = 10.0
FRESH_S: Final = 3_600.0  # configuration and keys are asked for again after this time
RETRY_S: Final = 60.0  # an unknown key makes us ask again, but not more often
# Asymmetric ones only: with HS256, the client secret could sign, and `none` signs nothing.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class OidcProvider:
    """The provider at `issuer`. All methods raise `Unavailable` if it cannot be reached or answers nonsense."""

    def __init__(self, issuer: str, client_id: str, client_secret: str) -> None:
        self.issuer = issuer
        self._client_id = client_id
        self._secret = client_secret
        self._found: Mapping[str, Any] = {}
        self._found_s = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._keys: KeySet | None = None
        self._keys_s = 0.0
        if not is_safe(issuer):
            raise InvalidSettings(
                f"--oidc-issuer {shown(issuer)}: must start with https://, and name a host and no user"
            )

    async def configuration(self) -> Mapping[str, Any]:
        """Return the provider's configuration; the addresses in it are checked. Those who wait share one request."""
        if not self._found or time.monotonic() - self._found_s > FRESH_S:
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask())
                self._asking.add_done_callback(self._asked)
            await asyncio.shield(self._asking)
        return self._found

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # those who wait have it

    async def _ask(self) -> None:
        found = await self._fetch("GET", f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self.issuer:
            raise Unavailable(f"{self.issuer}: it calls itself {shown(found.get('issuer'))}: correct --oidc-issuer")
        for name in ENDPOINTS:
            if not isinstance(found.get(name), str) or not is_safe(found[name]):
                raise Unavailable(f"{self.issuer}: {name} is not an https:// address")
        self._found, self._found_s = found, time.monotonic()

    async def id_token(self, code: str, verifier: str, redirect_uri: str) -> str:
        """Exchange a code. Returns the ID token, not checked yet."""
        found = await self.configuration()
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri,
            "client_id": self._client_id, "code_verifier": verifier,
        }  # fmt: skip
        headers = {}
        if self._secret:
            methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
            if "client_secret_basic" in methods:
                headers["Authorization"] = client_basic(self._client_id, self._secret)
            else:
                form["client_secret"] = self._secret
        answer = await self._fetch("POST", found["token_endpoint"], data=form, headers=headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Unavailable(f"{self.issuer}: the answer has no id_token: does the scope contain openid?")
        return token

    async def claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of an ID token whose signature is the provider's; the claims are not checked yet."""
        try:
            return jwt.decode(token, await self._key_set(), algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError) as first:
            if time.monotonic() - self._keys_s < RETRY_S:
                raise Unavailable(f"{self.issuer}: the signature of its token is invalid ({first})") from None
        self._keys = None  # it may have new keys
        try:
            return jwt.decode(token, await self._key_set(), algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError) as error:
            raise Unavailable(f"{self.issuer}: the signature of its token is invalid ({error})") from None

    async def _key_set(self) -> KeySet:
        if self._keys is None or time.monotonic() - self._keys_s > FRESH_S:
            found = await self._fetch("GET", (await self.configuration())["jwks_uri"])
            try:
                self._keys = KeySet.import_key_set(found)  # type: ignore[arg-type]  # checked by the call
            except (JoseError, ValueError, KeyError, TypeError) as error:
                raise Unavailable(f"{self.issuer}: its keys cannot be read ({type(error).__name__})") from None
            self._keys_s = time.monotonic()
        return self._keys

    async def _fetch(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object at an address; redirects are not followed."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as http,
                http.request(method, url, allow_redirects=False, **options) as answer,
            ):
                body = await answer.content.read(ANSWER_BYTES_MAX)
                if answer.status != 200:
                    raise Unavailable(f"{url}: answered {answer.status}: {oauth_error(body) or 'no error code'}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{url}: cannot be reached ({type(error).__name__})") from None
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unavailable(f"{url}: the answer is no JSON object")
        return found


def is_safe(url: str) -> bool:
    """Return whether secrets may be sent to an address: by TLS, or to this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if not host or "@" in parts.netloc or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
