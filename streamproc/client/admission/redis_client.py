"""The address of Redis (`STREAMPROC_REDIS`): connecting to it, and what is wrong where that fails. No passwords."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError

from streamproc.errors import InvalidSettings

CONNECTIONS_MAX: Final = 32  # of a process; Redis works on one call at a time, and more would only wait there
RETRIES: Final = 1  # a connection from before a restart of Redis fails once; repeating a call changes nothing

WANTED: Final = (
    "STREAMPROC_REDIS must be an address such as redis://user:password@host:6379/0, or rediss:// for TLS; "
    "write / as %2F, @ as %40 and # as %23 in a password"
)


def connect(url: str, timeout_s: float) -> Redis:
    """A client of this address; it connects when it is used. Raises `InvalidSettings`."""
    # Said outright, because redis-py before version 6 did not check whose certificate it is.
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
        raise InvalidSettings(WANTED) from None  # what redis-py says of it may show a part of the password
    return Redis.from_pool(pool)


def place(url: str) -> str:
    """Where that is, without its password. Raises `InvalidSettings`."""
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError:
        raise InvalidSettings(WANTED) from None  # it would show what it took for a port: perhaps a password
    return f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path


def remedy(error: BaseException) -> str:
    """What to do about a Redis that does not let us in."""
    if isinstance(error, AuthenticationError):
        return "check user and password in STREAMPROC_REDIS"
    if isinstance(error, NoPermissionError):
        return "give this user the rights that docs/admission.md lists"
    text = f"{error} {error.__cause__}"
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return "name it in STREAMPROC_REDIS as its certificate does"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "name the authority that signed its certificate: STREAMPROC_REDIS=rediss://…?ssl_ca_certs=ca.pem"
    if any(sign in text for sign in ("SSL", "closed by server", "reset by peer")):
        return "see STREAMPROC_REDIS, and whether it needs rediss://, ssl_certfile=… and ssl_keyfile=…"
    return "see STREAMPROC_REDIS"
