"""Bearer tokens for Kafka (SASL OAUTHBEARER), from a file or from a token endpoint.

A connection keeps the login that it started with. A broker with ``connections.max.reauth.ms`` closes it when that login
expires; the client then reconnects with a token that it reads or fetches at that moment.
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

TOKEN_BYTES_MAX: Final = 65_536  # a token that lists many groups takes about 10 000 bytes
TIMEOUT_S: Final = 10.0  # an endpoint answers in well under a second; a whole connection attempt may take 20 s
RENEW_AT_SHARE: Final = 0.8  # of a token's lifetime, as Kafka's own clients do
LIFETIME_DEFAULT_S: Final = 60.0  # of a token that does not state its expiry
LIFETIME_MAX_S: Final = 366 * 86_400.0  # the endpoint's number may be too large for a float
FAILURE_CACHED_S: Final = 1.0  # the clients of a process share a failure, so they do not each wait for a dead endpoint
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750; other characters would corrupt Kafka's login message


class NoToken(KafkaError):
    """No token to log in with. It is a `KafkaError` because Kafka clients treat that as a failed connection."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}: {remedy}")


@lru_cache(maxsize=64)
def token_provider(settings: Settings) -> AbstractTokenProvider:
    """Return the token source of this process, shared by all its clients."""
    return TokenFile(settings.sasl_token_file) if settings.sasl_token_file else ClientCredentials(settings)


class TokenFile(AbstractTokenProvider):
    """Reads a token from a file that another program renews, such as a projected Kubernetes service account token."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def token(self) -> str:
        """Return the current content of the file. Raises `NoToken`."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> str:
        try:
            with Path(self._path).open(encoding="ascii") as file:
                text = file.read(TOKEN_BYTES_MAX).strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise NoToken(f"no token can be read from {self._path} ({why})", "set STREAMPROC_SASL_TOKEN_FILE") from None
        _require_token(text, f"in {self._path}", "check STREAMPROC_SASL_TOKEN_FILE")
        until = _expiry(text)
        if until is not None and until <= time.time():
            expired_at = datetime.fromtimestamp(max(0.0, until), UTC)  # it may be far below what a date can express
            raise NoToken(
                f"the token in {self._path} expired at {expired_at:%Y-%m-%dT%H:%M:%SZ}",
                "the program that writes STREAMPROC_SASL_TOKEN_FILE must renew it before it expires",
            )
        return text


class ClientCredentials(AbstractTokenProvider):
    """Fetches tokens from an OAuth 2.0 token endpoint with a client id and secret (RFC 6749, section 4.4)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # clients in several threads and event loops share a token
        self._token = ""
        self._renew_at_s = self._expires_at_s = 0.0
        self._failure: tuple[float, NoToken] = (0.0, NoToken("no token has been requested yet", "request one"))

    async def token(self) -> str:
        """Return the current token, or a new one if it is about to expire. Raises `NoToken`."""
        return await asyncio.to_thread(self._current)

    def _current(self) -> str:
        with self._lock:
            now = time.monotonic()
            if now < self._renew_at_s:
                return self._token
            failed_at_s, failure = self._failure
            if now - failed_at_s >= FAILURE_CACHED_S or not failed_at_s:
                try:
                    self._renew()
                    return self._token
                except NoToken as problem:
                    self._failure = time.monotonic(), problem
                    failure = problem
            if now < self._expires_at_s:
                return self._token  # not expired yet: the endpoint may be back before it is
            raise NoToken(failure.what, failure.remedy)

    def _renew(self) -> None:
        requested_at_s = time.monotonic()
        answer = self._request()
        token, lifetime_s = str(answer.get("access_token", "")), answer.get("expires_in")
        _require_token(token, f"in the answer of {_endpoint(self._settings.sasl_oauth_token_url)}", CHECK_URL)
        if isinstance(lifetime_s, bool) or not isinstance(lifetime_s, int | float):
            until = _expiry(token)
            lifetime_s = LIFETIME_DEFAULT_S if until is None else until - time.time()
        lifetime_s = min(lifetime_s, LIFETIME_MAX_S)
        self._token = token
        self._renew_at_s = requested_at_s + RENEW_AT_SHARE * lifetime_s
        self._expires_at_s = requested_at_s + lifetime_s

    def _request(self) -> dict[str, Any]:
        settings = self._settings
        endpoint = _endpoint(settings.sasl_oauth_token_url)
        form = {"grant_type": "client_credentials"} | (
            {"scope": settings.sasl_oauth_scope} if settings.sasl_oauth_scope else {}
        )
        request = urllib.request.Request(  # the settings accept only https, and http on this machine
            settings.sasl_oauth_token_url,
            data=urllib.parse.urlencode(form).encode(),
            headers={
                "Accept": "application/json",
                "Authorization": client_basic(
                    settings.sasl_oauth_client_id, settings.sasl_oauth_client_secret.get_secret_value()
                ),
            },
        )
        try:
            with _opener(settings).open(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(TOKEN_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                code = oauth_error(error.read(TOKEN_BYTES_MAX))
            raise NoToken(
                f"the token endpoint {endpoint} answers {error.code}{f' ({code})' if code else ''}",
                "check STREAMPROC_SASL_OAUTH_CLIENT_ID, _CLIENT_SECRET and _SCOPE",
            ) from None
        except (OSError, HTTPException) as error:
            raise NoToken(f"the token endpoint {endpoint} does not answer ({_reason(error)})", CHECK_URL) from None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise NoToken(f"the token endpoint {endpoint} did not return a JSON object", CHECK_URL)
        return answer


CHECK_URL: Final = "check STREAMPROC_SASL_OAUTH_TOKEN_URL"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Sends the secret only to the configured URL."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""


def _opener(settings: Settings) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context()
    if settings.ssl_cafile:
        context.load_verify_locations(settings.ssl_cafile)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())


def client_basic(name: str, secret: str) -> str:
    """Return the header with which a client logs in to an OAuth 2.0 endpoint."""
    pair = ":".join(map(urllib.parse.quote_plus, (name, secret)))  # encoded first: RFC 6749, section 2.3.1
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _endpoint(url: str) -> str:
    """Return the endpoint for a message: host, port and path."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def oauth_error(body: bytes) -> str:
    """Return the error code of an endpoint's answer. Other text in it could contain what was sent."""
    try:
        code = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,40}", code) else ""


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "verify_message", "") or reason) or type(error).__name__


def _require_token(text: str, where: str, remedy: str) -> None:
    if not TOKEN.fullmatch(text):
        raise NoToken(f"there is no token {where}" if not text else f"the text {where} is not a token", remedy)


def _expiry(token: str) -> float | None:
    """Return when a JWT expires, in epoch seconds, or None if it does not say. The signature is left to the broker."""
    try:
        body = token.split(".")[1]
        until = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"]
        return float(until) if isinstance(until, int | float) else None
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
