"""Starts Kafka clients; and where the broker is there but does not let one in, says why, and what to set.

A Kafka client tells its log of each connection that fails, and its caller only that there is no broker. So after
that, one more connection is tried, to see what happens to it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from streamproc.errors import AccessDenied
from streamproc.kafka.options import connection_options
from streamproc.kafka.tokens import NoToken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.settings import Settings

CONNECTIONS: Final = logging.getLogger("aiokafka.conn")
LOOK_TIMEOUT_S: Final = 5.0  # a broker that is there answers in milliseconds
NO_RIGHT: Final = (TopicAuthorizationFailedError, GroupAuthorizationFailedError, ClusterAuthorizationFailedError)
WRONG_NAME: Final = frozenset({62, 64})  # OpenSSL: the certificate is for another host name, or address
OVER: Final = 10  # OpenSSL: the certificate has expired


async def start(client: Any, settings: Settings) -> None:
    """Start an aiokafka client. Raises `AccessDenied` where a broker is there, else what the client raises."""
    CONNECTIONS.addFilter(_no_login)
    try:
        await client.start()
    except KafkaConnectionError as error:
        reason = await why_not(settings)
        if reason is None:
            raise
        raise reason from error
    inner = client.client if isinstance(client, AIOKafkaProducer) else client._client
    if not inner.cluster.brokers():  # a token that is refused looks to aiokafka like a cluster without brokers
        reason = await why_not(settings)
        if reason is not None:
            raise reason


def _no_login(record: logging.LogRecord) -> bool:
    """aiokafka writes each request to its log, where that is at DEBUG: passwords and tokens of logins, too."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(type(argument).__name__.startswith("SaslAuthenticate") for argument in arguments)


async def why_not(settings: Settings) -> AccessDenied | None:
    """Why no broker lets us in; None where none answers, or one does let us in now."""
    options = connection_options(settings)
    servers = collect_hosts(options.pop("bootstrap_servers"))
    looks = (_look(settings, options, host, port) for host, port, _ in servers)
    try:
        async with asyncio.timeout(LOOK_TIMEOUT_S):
            found = await asyncio.gather(*looks)
    except TimeoutError:
        return None
    return next(filter(None, found), None)


def not_allowed(settings: Settings, error: BaseException) -> AccessDenied | None:
    """The error of a client that was let in, and may not do what it tries; None for any other error."""
    if not isinstance(error, NO_RIGHT):
        return None
    named = error.args[0] if error.args else ""
    names = [named] if isinstance(named, str) else sorted(map(str, named))
    kind = type(error).__name__.removesuffix("AuthorizationFailedError").lower()
    return AccessDenied(
        f"broker at {settings.brokers}: {_who(settings)} has no right to {kind} {', '.join(names)}".rstrip(),
        "`streamproc topics acls` tells the rights of each role",
    )


async def _look(settings: Settings, options: dict[str, Any], host: str, port: int) -> AccessDenied | None:
    entered = False
    try:
        connection = await create_conn(host, port, request_timeout_ms=int(LOOK_TIMEOUT_S * 1000), **options)
        entered = True
        try:
            answer = await connection.send(MetadataRequest([]))
            if not answer.brokers:
                raise SaslAuthenticationFailed
        finally:
            connection.close()
    except (KafkaError, OSError) as error:  # TimeoutError is an OSError
        found = _reason(settings, error, entered=entered)
        return AccessDenied(f"broker at {host}:{port} {found[0]}", found[1]) if found else None
    return None


def _reason(settings: Settings, error: BaseException, *, entered: bool) -> tuple[str, str] | None:
    """What the broker does, and the remedy."""
    for one in _chain(error):
        if isinstance(one, NoToken):
            return f"wants a token, and {one.what}", one.remedy
        if isinstance(one, UnsupportedSaslMechanismError):
            return f"does not take {settings.sasl_mechanism}", "set STREAMPROC_SASL_MECHANISM to one that it takes"
        if isinstance(one, SaslAuthenticationFailed | IllegalSaslStateError):
            return f"does not let {_who(settings)} in", _login(settings)
        if isinstance(one, ssl.SSLCertVerificationError):
            return _certificate(one)
        if isinstance(one, ssl.SSLError):
            return _handshake(settings, one)
    if isinstance(error, KafkaConnectionError) and "closed" in str(error):
        return _hung_up(settings, entered=entered)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _who(settings: Settings) -> str:
    if "SASL" not in settings.security_protocol:
        return "this client"
    if settings.sasl_mechanism == "OAUTHBEARER":
        return "the owner of this token"
    return f"user {settings.sasl_username}"


def _login(settings: Settings) -> str:
    if settings.sasl_mechanism == "OAUTHBEARER":
        where = "STREAMPROC_SASL_TOKEN_FILE" if settings.sasl_token_file else "STREAMPROC_SASL_OAUTH_SCOPE"
        return f"see {where}, and what issuer, audience and key the broker expects"
    return "check STREAMPROC_SASL_USERNAME, _PASSWORD and _MECHANISM"


def _certificate(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    if error.verify_code in WRONG_NAME:
        return (
            f"shows a certificate of another name ({error.verify_message})",
            "name it in STREAMPROC_BROKERS, and in its advertised.listeners, as its certificate does",
        )
    if error.verify_code == OVER:
        return "shows a certificate that has expired", "renew the broker's certificate"
    return (
        f"shows a certificate that is not trusted here ({error.verify_message})",
        "set STREAMPROC_SSL_CAFILE to the authority that signed it",
    )


def _handshake(settings: Settings, error: ssl.SSLError) -> tuple[str, str]:
    reason = (error.reason or "").replace("_", " ").lower()
    if "alert" in reason:  # the broker's word on us
        shown = f"the certificate in {settings.ssl_certfile}" if settings.ssl_certfile else "a client without one"
        return (
            f"does not take {shown} ({reason})",
            "set STREAMPROC_SSL_CERTFILE and _KEYFILE to a certificate that is valid, of an authority that it trusts",
        )
    return f"speaks no TLS that we know ({reason})", "set STREAMPROC_SECURITY_PROTOCOL to what it speaks there"


def _hung_up(settings: Settings, *, entered: bool) -> tuple[str, str]:
    if entered and "SASL" in settings.security_protocol:
        return f"does not let {_who(settings)} in", _login(settings)
    return (
        f"hangs up on a client that speaks {settings.security_protocol}",
        "set STREAMPROC_SECURITY_PROTOCOL to what it speaks there",
    )
