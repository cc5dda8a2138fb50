"""Redis clients for the address in `STREAMPROC_REDIS`, and remedies for failed connections. Shows no passwords."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError

from streamproc.errors import InvalidSettings
from streamproc.kafka.transport import speaks_tls

CONNECTIONS_MAX: Final = 32  # per process; Redis runs one call at a time, so more connections would only queue there
RETRIES: Final = 1  # a connection from before a Redis restart fails once; all calls are idempotent

CHECK: Final = "check STREAMPROC_REDIS"
CHECK_TLS: Final = f"{CHECK}, and whether it needs rediss://, ssl_certfile=… and ssl_keyfile=…"
WANTED: Final = (
    "STREAMPROC_REDIS must be an address such as redis://user:password@host:6379/0, or rediss:// for TLS; "
    "write / as %2F, @ as %40 and # as %23 in a password"
)


def connect(url: str, timeout_s: float) -> Redis:
    """Return a client for this address; it connects on first use. Raises `InvalidSettings`."""
    # Explicit, because redis-py before version 6 does not check the host name by default.
    checked = {"ssl_check_hostname": True} if url.startswith("rediss:") and "ssl_cert_reqs=none" not in url else {}
    try:
        pool = ConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), RETRIES),
            **checked,
        )
    except ValueError:
        raise InvalidSettings(WANTED) from None  # redis-py's own message may contain part of the password
    return Redis.from_pool(pool)


def place(url: str) -> str:
    """Return host and port, without the password. Raises `InvalidSettings`."""
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError:
        raise InvalidSettings(WANTED) from None  # its message quotes the invalid port, which may be part of a password
    return f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path


def remedy(error: BaseException) -> str:
    """Return the remedy for a failed call or connection."""
    if isinstance(error, AuthenticationError):
        return "check user and password in STREAMPROC_REDIS"
    if isinstance(error, NoPermissionError):
        return "give this user the rights that docs/admission.md lists"
    text = f"{error} {error.__cause__}"
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return "use the host name of its certificate in STREAMPROC_REDIS"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "name the authority that signed its certificate: STREAMPROC_REDIS=rediss://…?ssl_ca_certs=ca.pem"
    if any(sign in text for sign in ("SSL", "closed by server", "reset by peer")):
        return CHECK_TLS
    return CHECK


async def wrong_transport(url: str, error: BaseException, timeout_s: float) -> tuple[str, str] | None:
    """Return that one side speaks TLS and the other does not, and the remedy; None if that is not why a call failed."""
    parts = urlsplit(url)
    if remedy(error) not in (CHECK, CHECK_TLS) or not parts.hostname or parts.scheme not in ("redis", "rediss"):
        return None
    host, port = parts.hostname, parts.port or 6379
    try:
        async with asyncio.timeout(timeout_s):
            if parts.scheme == "redis":
                if not await speaks_tls(host, port):
                    return None
                return "requires TLS, and redis:// is without", "write rediss:// in STREAMPROC_REDIS"
            if not await _speaks_plainly(host, port):
                return None
    except (OSError, ValueError):  # TimeoutError is an OSError; a line that is too long
        return None
    fix = "use its TLS port in STREAMPROC_REDIS; only in a network that you trust, write redis://"
    return "speaks no TLS on this port, and rediss:// requires it", fix


async def _speaks_plainly(host: str, port: int) -> bool:
    """Return whether a Redis answers in plain text. Sends no password: an error is an answer too."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"PING\r\n")
        return (await reader.readline())[:1] in (b"+", b"-")
    finally:
        writer.close()
