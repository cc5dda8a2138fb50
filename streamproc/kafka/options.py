"""Connection options of every Kafka client of this process, made from its settings."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from streamproc.errors import InvalidSettings
from streamproc.kafka.retry_log import quiet_retries
from streamproc.kafka.tokens import token_provider
from streamproc.kafka.vendor import treat_resets_as_disconnects
from streamproc.model.addresses import need_kafka

if TYPE_CHECKING:
    from streamproc.settings import Settings


def ssl_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context, or None if the security protocol uses no TLS. Host names are always checked.

    Raises `InvalidSettings` for a file that cannot be used.
    """
    if "SSL" not in settings.security_protocol:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile or None)
    except OSError as error:
        why = error.strerror or error
        raise InvalidSettings(
            f"STREAMPROC_SSL_CAFILE: no certificates can be read from {settings.ssl_cafile} ({why})"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.ssl_certfile:
        try:  # the password as a function: given None, OpenSSL prompts for one at the terminal
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_password.get_secret_value)
        except OSError as error:
            files = f"{settings.ssl_certfile} and {settings.ssl_keyfile or 'the key in it'}"
            raise InvalidSettings(
                f"STREAMPROC_SSL_CERTFILE, _KEYFILE or _PASSWORD: {files} cannot be used ({error.strerror or error}): "
                "check that both are PEM, that the key belongs to the certificate, and the password"
            ) from None
    return context


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return the connection arguments of an aiokafka client.

    Raises `InvalidSettings` for unusable TLS files, and for the log of `streamproc up` in place of brokers.
    """
    need_kafka(settings.brokers)
    treat_resets_as_disconnects()
    quiet_retries()
    options: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in settings.brokers.split(",") if server.strip()],
        "security_protocol": settings.security_protocol,
        "ssl_context": ssl_context(settings),
    }
    if "SASL" not in settings.security_protocol:
        return options
    options["sasl_mechanism"] = settings.sasl_mechanism
    if settings.sasl_mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = token_provider(settings)
    else:
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password.get_secret_value()
    return options
