"""Kafka's security settings reach every client."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import InvalidSettings, Unavailable
from streamproc.settings import load_settings
from tests.waiting import until

SECURE = [
    {"security_protocol": "SSL"},
    {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "u",
        "sasl_password": "p",
    },
    {"security_protocol": "SASL_SSL", "sasl_username": "u", "sasl_password": "p"},
]


@pytest.mark.kafka
@pytest.mark.parametrize("secure", SECURE, ids=lambda options: options["security_protocol"])
async def test_a_secure_client_does_not_fall_back_to_a_plaintext_broker(brokers: str, secure: dict[str, str]) -> None:
    """The shared broker speaks plaintext only: a client configured for TLS or SASL must not connect to it."""
    settings = load_settings(brokers=brokers, **secure)

    with pytest.raises(Unavailable):
        await HaltListener(settings=settings, start_timeout_s=1).start()
    async with TurnPublisher(settings=settings, close_timeout_s=0.1) as turns:
        await turns.turn(run_id="r1", node="coder")
        await until(lambda: turns.trouble, what="the refused connection")
        assert turns.delivered == 0


@pytest.mark.parametrize("client", [TurnPublisher, HaltListener])
def test_a_missing_certificate_raises_in_the_constructor(client: type, tmp_path: Path) -> None:
    missing = load_settings(security_protocol="SSL", ssl_cafile=str(tmp_path / "ca.pem"))

    with pytest.raises(InvalidSettings, match="STREAMPROC_SSL_CAFILE"):
        client(settings=missing)
