"""Connection options of the aiokafka clients. (Unusable TLS files: tests/kafka/test_certificate_files.py.)"""

from __future__ import annotations

import ssl

import pytest

from streamproc.kafka.options import connection_options, ssl_context
from streamproc.kafka.tokens import TokenFile
from streamproc.settings import load_settings

USER = {"sasl_username": "ada", "sasl_password": "a-password"}


def test_plaintext_needs_neither_tls_nor_a_login() -> None:
    options = connection_options(load_settings(brokers="one:1, two:2,"))

    assert options == {
        "bootstrap_servers": ["one:1", "two:2"],
        "security_protocol": "PLAINTEXT",
        "ssl_context": None,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_has_user_and_password(mechanism: str) -> None:
    options = connection_options(load_settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **USER))

    assert (options["sasl_mechanism"], options["ssl_context"]) == (mechanism, None)
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("ada", "a-password")


def test_oauthbearer_has_a_token_source_and_no_password() -> None:
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_token_file": "token"}

    options = connection_options(load_settings(**login))

    assert isinstance(options["sasl_oauth_token_provider"], TokenFile)
    assert "sasl_plain_password" not in options


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_tls_verifies_certificates_and_host_names(protocol: str) -> None:
    context = ssl_context(load_settings(security_protocol=protocol, **USER))

    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
