"""Bearer tokens for Kafka (SASL OAUTHBEARER): from a file that is read again, or from a token endpoint.

A connection keeps the login that it began with. A broker with ``connections.max.reauth.ms`` closes it when that is
over, and the client connects again: with a token that was fetched or read then.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

if TYPE_CHECKING:
    from streamproc.settings import Settings

TOKEN_BYTES_MAX: Final = 65_536  # tokens with many groups in them have ten thousand
TIMEOUT_S: Final = 10.0  # an endpoint answers in well under a second; connecting as a whole may take 20 s
SHARE_USED: Final = 0.8  # of a token's life, before another is fetched: what Kafka's own clients do
LIFE_UNSAID_S: Final = 60.0  # of a token that does not say how long it lives
FAILED_FOR_S: Final = 1.0  # a process has several clients: they must not ask a dead endpoint one after another
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750; anything else would end up in Kafka's message


class NoToken(KafkaError):
    """There is no token to log in with. (A `KafkaError`, so that Kafka clients take it as a failed connection.)"""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}: {remedy}")


@lru_cache(maxsize=64)
def provider_of(settings: Settings) -> AbstractTokenProvider:
    """Where this process gets its tokens: one place for all its clients."""
    return TokenFile(settings.sasl_token_file) if settings.sasl_token_file else ClientCredentials(settings)


class TokenFile(AbstractTokenProvider):
    """A token that somebody else keeps fresh in a file, such as Kubernetes (a projected service account token)."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def token(self) -> str:
        """What the file holds now. Raises `NoToken`."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> str:
        try:
            with Path(self._path).open(encoding="ascii") as file:
                text = file.read(TOKEN_BYTES_MAX).strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise NoToken(f"no token can be read from {self._path} ({why})", "set STREAMPROC_SASL_TOKEN_FILE") from None
        _must_be_token(text, f"in {self._path}", "see STREAMPROC_SASL_TOKEN_FILE")
        until = _expiry(text)
        if until is not None and until <= time.time():
            raise NoToken(
                f"the token in {self._path} expired at {datetime.fromtimestamp(until, UTC):%Y-%m-%dT%H:%M:%SZ}",
                "whoever writes STREAMPROC_SASL_TOKEN_FILE must renew it in time",
            )
        return text


class ClientCredentials(AbstractTokenProvider):
    """Tokens of an OAuth 2.0 token endpoint, for a client id and secret (RFC 6749, section 4.4)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # clients in several threads and event loops share a token
        self._token = ""
        self._renew_at_s = self._over_at_s = 0.0
        self._failure: tuple[float, NoToken] = (0.0, NoToken("nothing was asked yet", "ask"))

    async def token(self) -> str:
        """The present token, or a new one in good time. Raises `NoToken`."""
        return await asyncio.to_thread(self._current)

    def _current(self) -> str:
        with self._lock:
            now = time.monotonic()
            if now < self._renew_at_s:
                return self._token
            failed_at_s, failure = self._failure
            if now - failed_at_s >= FAILED_FOR_S or not failed_at_s:
                try:
                    self._renew()
                    return self._token
                except NoToken as problem:
                    self._failure = time.monotonic(), problem
                    failure = problem
            if now < self._over_at_s:
                return self._token  # it is not over yet: perhaps the endpoint is back before it is
            raise NoToken(failure.what, failure.remedy)

    def _renew(self) -> None:
        asked_s = time.monotonic()
        answer = self._ask()
        token, lives_s = str(answer.get("access_token", "")), answer.get("expires_in")
        _must_be_token(token, f"in the answer of {_place(self._settings.sasl_oauth_token_url)}", WHERE)
        if isinstance(lives_s, bool) or not isinstance(lives_s, int | float):
            until = _expiry(token)
            lives_s = LIFE_UNSAID_S if until is None else until - time.time()
        self._token = token
        self._renew_at_s = asked_s + SHARE_USED * lives_s
        self._over_at_s = asked_s + lives_s

    def _ask(self) -> dict[str, Any]:
        settings = self._settings
        place = _place(settings.sasl_oauth_token_url)
        form = {"grant_type": "client_credentials"} | (
            {"scope": settings.sasl_oauth_scope} if settings.sasl_oauth_scope else {}
        )
        request = urllib.request.Request(  # the settings let https in alone, and http on this machine
            settings.sasl_oauth_token_url,
            data=urllib.parse.urlencode(form).encode(),
            headers={
                "Accept": "application/json",
                "Authorization": _basic(
                    settings.sasl_oauth_client_id, settings.sasl_oauth_client_secret.get_secret_value()
                ),
            },
        )
        try:
            with _opener(settings).open(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(TOKEN_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                said = _said(error.read(TOKEN_BYTES_MAX))
            raise NoToken(
                f"the token endpoint {place} answers {error.code}{said}",
                "check STREAMPROC_SASL_OAUTH_CLIENT_ID, _CLIENT_SECRET and _SCOPE",
            ) from None
        except (OSError, HTTPException) as error:
            raise NoToken(f"the token endpoint {place} does not answer ({_reason(error)})", WHERE) from None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise NoToken(f"the token endpoint {place} answers no JSON object", WHERE)
        return answer


WHERE: Final = "check STREAMPROC_SASL_OAUTH_TOKEN_URL"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The secret goes where the setting says, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


def _opener(settings: Settings) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context()
    if settings.ssl_cafile:
        context.load_verify_locations(settings.ssl_cafile)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())


def _basic(name: str, secret: str) -> str:
    pair = ":".join(map(urllib.parse.quote_plus, (name, secret)))  # encoded first: RFC 6749, section 2.3.1
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _place(url: str) -> str:
    """The endpoint for a message."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _said(body: bytes) -> str:
    """The error code of an endpoint's answer, which is one of a few words; its other text might be anything."""
    try:
        code = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return ""
    return f" ({code})" if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,40}", code) else ""


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "verify_message", "") or reason) or type(error).__name__


def _must_be_token(text: str, where: str, remedy: str) -> None:
    if not TOKEN.fullmatch(text):
        raise NoToken(f"there is no token {where}" if not text else f"what is {where} is no token", remedy)


def _expiry(token: str) -> float | None:
    """When a JWT is over, in epoch seconds; None for tokens that do not say. (Whether it is true, brokers know.)"""
    try:
        body = token.split(".")[1]
        until = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"]
    except (IndexError, KeyError, TypeError, ValueError):
        return None
    return float(until) if isinstance(until, int | float) else None
