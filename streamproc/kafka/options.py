"""Connection options: how every Kafka client of this process connects, from its settings."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from streamproc.errors import InvalidSettings
from streamproc.kafka.tokens import provider_of
from streamproc.kafka.uvloop_resets import treat_resets_as_disconnects

if TYPE_CHECKING:
    from streamproc.settings import Settings


def ssl_context(settings: Settings) -> ssl.SSLContext | None:
    """TLS for Kafka, where the security protocol asks for it. Host names are always checked.

    Raises `InvalidSettings` for a file that cannot be used.
    """
    if "SSL" not in settings.security_protocol:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile or None)
    except OSError as error:
        why = error.strerror or error
        raise InvalidSettings(f"STREAMPROC_SSL_CAFILE: {settings.ssl_cafile} holds no certificates ({why})") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.ssl_certfile:
        try:  # a function, because OpenSSL asks at the terminal if it is given no password
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_password.get_secret_value)
        except OSError as error:
            files = f"{settings.ssl_certfile} and {settings.ssl_keyfile or 'the key in it'}"
            raise InvalidSettings(
                f"STREAMPROC_SSL_CERTFILE, _KEYFILE or _PASSWORD: {files} cannot be used "
                f"({error.strerror or error}): is it PEM, the key of this certificate, and its password?"
            ) from None
    return context


def connection_options(settings: Settings) -> dict[str, Any]:
    """Connection arguments of every aiokafka client. Raises `InvalidSettings` for TLS files that cannot be used."""
    treat_resets_as_disconnects()
    options: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in settings.brokers.split(",") if server.strip()],
        "security_protocol": settings.security_protocol,
        "ssl_context": ssl_context(settings),
    }
    if "SASL" not in settings.security_protocol:
        return options
    options["sasl_mechanism"] = settings.sasl_mechanism
    if settings.sasl_mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = provider_of(settings)
    else:
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password.get_secret_value()
    return options
