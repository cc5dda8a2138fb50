"""Starts Kafka clients; if the broker rejects the connection, reports why, and which setting to change.

An aiokafka client logs each failed connection, but its error only says that there is no broker. After such a failure
this module opens one more connection and looks at how it fails.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final

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
from streamproc.kafka import retry_log
from streamproc.kafka.options import connection_options
from streamproc.kafka.tokens import NoToken
from streamproc.kafka.transport import speaks_tls
from streamproc.kafka.vendor import network_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.settings import Settings

CONNECTIONS: Final = logging.getLogger("aiokafka.conn")
DIAGNOSIS_TIMEOUT_S: Final = 5.0  # a running broker answers in milliseconds
AUTHORIZATION_ERRORS: Final = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
)
NAME_MISMATCH: Final = frozenset({62, 64})  # OpenSSL: the certificate is for another host name or address
EXPIRED: Final = 10  # OpenSSL: the certificate has expired


async def start(client: Any, settings: Settings) -> None:
    """Start an aiokafka client. Raises `AccessDenied` if a broker rejects it, else what the client raises."""
    CONNECTIONS.addFilter(_not_a_login)
    try:
        with retry_log.ours():
            await client.start()
    except KafkaConnectionError as error:
        reason = await diagnose(settings)
        if reason is None:
            raise
        raise reason from error
    if not network_client(client).cluster.brokers():  # a rejected token looks like this, too
        reason = await diagnose(settings)
        if reason is not None:
            raise reason


def _not_a_login(record: logging.LogRecord) -> bool:
    """Drop login requests from aiokafka's log, which at DEBUG shows every request, passwords and tokens included."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(type(argument).__name__.startswith("SaslAuthenticate") for argument in arguments)


async def diagnose(settings: Settings) -> AccessDenied | None:
    """Return why the brokers reject this client; None if none answers, or if one accepts it now."""
    options = connection_options(settings)
    servers = collect_hosts(options.pop("bootstrap_servers"))
    attempts = (_try_connection(settings, options, host, port) for host, port, _ in servers)
    try:
        async with asyncio.timeout(DIAGNOSIS_TIMEOUT_S):
            found = await asyncio.gather(*attempts)
    except TimeoutError:
        return None
    return next(filter(None, found), None)


def as_access_denied(settings: Settings, error: BaseException) -> AccessDenied | None:
    """Return the error of a client that is logged in but lacks a right; None for any other error."""
    if not isinstance(error, AUTHORIZATION_ERRORS):
        return None
    named = error.args[0] if error.args else ""
    names = [named] if isinstance(named, str) else sorted(map(str, named))
    kind = type(error).__name__.removesuffix("AuthorizationFailedError").lower()
    return AccessDenied(
        f"broker at {settings.brokers}: {who(settings)} has no right to {kind} {', '.join(names)}".rstrip(),
        "`streamproc topics acls` lists the rights of each role",
    )


async def _try_connection(settings: Settings, options: dict[str, Any], host: str, port: int) -> AccessDenied | None:
    logged_in = False
    try:
        connection = await create_conn(host, port, request_timeout_ms=int(DIAGNOSIS_TIMEOUT_S * 1000), **options)
        logged_in = True
        try:
            answer = await connection.send(MetadataRequest([]))
            if not answer.brokers:
                raise SaslAuthenticationFailed
        finally:
            connection.close()
    except (KafkaError, OSError) as error:  # TimeoutError is an OSError
        found = _reason(settings, error)
        if found is None and not logged_in:
            found = await _explain_transport(settings, host, port)
        if found is None:
            found = _explain_rest(settings, error, logged_in=logged_in)
        return AccessDenied(f"broker at {host}:{port} {found[0]}", found[1]) if found else None
    return None


def _reason(settings: Settings, error: BaseException) -> tuple[str, str] | None:
    """Return what the broker does, and the remedy; None if the error does not say it."""
    for one in _causes(error):
        if isinstance(one, NoToken):
            return f"requires a token, but {one.what}", one.remedy
        if isinstance(one, UnsupportedSaslMechanismError):
            return f"does not accept {settings.sasl_mechanism}", "set STREAMPROC_SASL_MECHANISM to one that it accepts"
        if isinstance(one, SaslAuthenticationFailed | IllegalSaslStateError):
            return f"rejects the login of {who(settings)}", _login_remedy(settings)
        if isinstance(one, ssl.SSLCertVerificationError):
            return _explain_certificate(one)
        if isinstance(one, ssl.SSLError) and "ALERT" in (one.reason or ""):
            return _explain_alert(settings, one)
    return None


async def _explain_transport(settings: Settings, host: str, port: int) -> tuple[str, str] | None:
    """Return that one side speaks TLS and the other does not; None if both agree or nothing answers."""
    protocol = settings.security_protocol
    if "SSL" not in protocol:
        if not await speaks_tls(host, port):
            return None
        wanted = "SASL_SSL" if "SASL" in protocol else "SSL, or SASL_SSL with a login"
        return f"requires TLS, and this client speaks {protocol}", f"set STREAMPROC_SECURITY_PROTOCOL to {wanted}"
    try:  # without a login: brokers say which versions they speak before
        connection = await create_conn(host, port, request_timeout_ms=int(DIAGNOSIS_TIMEOUT_S * 1000))
    except (KafkaError, OSError):
        return None
    connection.close()
    return (
        f"speaks no TLS on this port, and this client speaks {protocol}",
        "use the port of its TLS listener in STREAMPROC_BROKERS; only in a network that you trust, set "
        f"STREAMPROC_SECURITY_PROTOCOL to {protocol.replace('SASL_SSL', 'SASL_PLAINTEXT').replace('SSL', 'PLAINTEXT')}",
    )


def _explain_rest(settings: Settings, error: BaseException, *, logged_in: bool) -> tuple[str, str] | None:
    """Return what is known of a connection that ended without a reason."""
    broken = next((one for one in _causes(error) if isinstance(one, ssl.SSLError)), None)
    if broken is not None:
        reason = (broken.reason or "").replace("_", " ").lower()
        what = f"did not complete the TLS handshake ({reason})"
        return what, "set STREAMPROC_SECURITY_PROTOCOL to the protocol of that listener"
    if isinstance(error, KafkaConnectionError) and "closed" in str(error):
        return _explain_disconnect(settings, logged_in=logged_in)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def who(settings: Settings) -> str:
    """Return the name of this client in messages."""
    if "SASL" not in settings.security_protocol:
        return "this client"
    if settings.sasl_mechanism == "OAUTHBEARER":
        return "the owner of this token"
    return f"user {settings.sasl_username}"


def _login_remedy(settings: Settings) -> str:
    if settings.sasl_mechanism == "OAUTHBEARER":
        where = "STREAMPROC_SASL_TOKEN_FILE" if settings.sasl_token_file else "STREAMPROC_SASL_OAUTH_SCOPE"
        return f"check {where}, and the issuer, audience and key that the broker expects"
    return "check STREAMPROC_SASL_USERNAME, _PASSWORD and _MECHANISM"


def _explain_certificate(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    if error.verify_code in NAME_MISMATCH:
        return (
            f"shows a certificate for another name ({error.verify_message})",
            "use the name in its certificate in STREAMPROC_BROKERS, and in its advertised.listeners",
        )
    if error.verify_code == EXPIRED:
        return "shows an expired certificate", "renew the broker's certificate"
    return (
        f"shows a certificate that this client does not trust ({error.verify_message})",
        "set STREAMPROC_SSL_CAFILE to the certificate of the authority that signed it",
    )


def _explain_alert(settings: Settings, error: ssl.SSLError) -> tuple[str, str]:
    """Explain an alert, which the broker sends about this client."""
    reason = (error.reason or "").replace("_", " ").lower()
    shown = f"the certificate in {settings.ssl_certfile}" if settings.ssl_certfile else "a client without a certificate"
    return (
        f"does not accept {shown} ({reason})",
        "set STREAMPROC_SSL_CERTFILE and _KEYFILE to a valid certificate from an authority that it trusts",
    )


def _explain_disconnect(settings: Settings, *, logged_in: bool) -> tuple[str, str]:
    if logged_in and "SASL" in settings.security_protocol:
        return f"rejects the login of {who(settings)}", _login_remedy(settings)
    return (
        f"closes the connection of a client that speaks {settings.security_protocol}",
        "set STREAMPROC_SECURITY_PROTOCOL to the protocol of that listener",
    )
