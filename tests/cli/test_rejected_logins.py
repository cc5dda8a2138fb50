"""Rejected logins: every command names the setting to fix, and shows no secret."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import Unavailable
from streamproc.settings import Settings
from tests.secured.broker import SecureBroker
from tests.secured.endpoint import SECRET, TokenEndpoint
from tests.waiting import until

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]


def wrong_password(secured: SecureBroker, **_: object) -> Settings:
    return secured.by_password("admin", sasl_password="pw-of-another")


def wrong_password_of_plain(secured: SecureBroker, **_: object) -> Settings:
    return secured.by_password("admin", "PLAIN", sasl_password="pw-of-another")


def unknown_user(secured: SecureBroker, **_: object) -> Settings:
    return secured.by_password("unknown")


def wrong_mechanism(secured: SecureBroker, tmp_path: Path, **_: object) -> Settings:
    token = tmp_path / "token"
    token.write_text(secured.issuer.token("admin"))
    by_password = secured.by_password("admin")
    return secured.by_token(sasl_token_file=str(token), brokers=by_password.brokers)


def no_tls(secured: SecureBroker, **_: object) -> Settings:
    return secured.by_password("admin", security_protocol="SASL_PLAINTEXT")


def no_login(secured: SecureBroker, **_: object) -> Settings:
    return secured.by_password("admin", security_protocol="PLAINTEXT")


def tls_without_a_login(secured: SecureBroker, **_: object) -> Settings:
    return secured.by_certificate("admin", brokers=secured.in_plain_text().brokers)


def tls_with_a_login(secured: SecureBroker, **_: object) -> Settings:
    return secured.by_password("admin", brokers=secured.in_plain_text().brokers)


def another_authority(secured: SecureBroker, tmp_path: Path, **_: object) -> Settings:
    import trustme

    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    return secured.by_password("admin", ssl_cafile=str(tmp_path / "other.pem"))


def another_name(secured: SecureBroker, **_: object) -> Settings:
    there = secured.by_password("admin")
    return there.model_copy(update={"brokers": there.brokers.replace("127.0.0.1", "localhost")})


def no_certificate(secured: SecureBroker, **_: object) -> Settings:
    return secured.by_certificate("admin", ssl_certfile=None, ssl_keyfile=None)


def expired_certificate(secured: SecureBroker, **_: object) -> Settings:
    secured.certificate("admin", "expired", expired=True)
    return secured.by_certificate("expired")


def certificate_of_another(secured: SecureBroker, tmp_path: Path, **_: object) -> Settings:
    import trustme

    path = tmp_path / "foreign.pem"
    trustme.CA().issue_cert("127.0.0.1", common_name="admin").private_key_and_cert_chain_pem.write_to_path(str(path))
    return secured.by_certificate("admin", ssl_certfile=str(path), ssl_keyfile=str(path))


def expired_token(secured: SecureBroker, tmp_path: Path, **_: object) -> Settings:
    token = tmp_path / "token"
    token.write_text(secured.issuer.token("admin", lives_s=-60))
    return secured.by_token(sasl_token_file=str(token))


def token_of_another(secured: SecureBroker, tmp_path: Path, **_: object) -> Settings:
    token = tmp_path / "token"
    token.write_text(type(secured.issuer)().token("admin"))
    return secured.by_token(sasl_token_file=str(token))


def wrong_secret(secured: SecureBroker, endpoint: TokenEndpoint, **_: object) -> Settings:
    return secured.by_token(**(endpoint.options | {"sasl_oauth_client_secret": SECRET + "x"}))


# fmt: off
CASES = [
    (wrong_password, "rejects the login of user admin: check STREAMPROC_SASL_USERNAME, _PASSWORD"),
    (wrong_password_of_plain, "rejects the login of user admin: check STREAMPROC_SASL_USERNAME, _PASSWORD"),
    (unknown_user, "rejects the login of user unknown: check STREAMPROC_SASL_USERNAME, _PASSWORD"),
    (wrong_mechanism, "does not accept OAUTHBEARER: set STREAMPROC_SASL_MECHANISM"),
    (no_tls, "requires TLS, and this client speaks SASL_PLAINTEXT: set STREAMPROC_SECURITY_PROTOCOL to SASL_SSL"),
    (no_login, "requires TLS, and this client speaks PLAINTEXT: set STREAMPROC_SECURITY_PROTOCOL to SSL, or SASL_SSL"),
    (tls_without_a_login, "speaks no TLS on this port, and this client speaks SSL: "
                          "use the port of its TLS listener in STREAMPROC_BROKERS"),
    (tls_with_a_login, "speaks no TLS on this port, and this client speaks SASL_SSL: "
                       "use the port of its TLS listener in STREAMPROC_BROKERS"),
    (another_authority, "a certificate that this client does not trust (unable to get local issuer certificate): "
                        "set STREAMPROC_SSL_CAFILE"),
    (another_name, "a certificate for another name (Hostname mismatch, certificate is not valid for 'localhost'.): "
                   "use the name in its certificate in STREAMPROC_BROKERS"),
    (no_certificate, "does not accept a client without a certificate (sslv3 alert bad certificate): "
                     "set STREAMPROC_SSL_CERTFILE"),
    (expired_certificate, "expired.pem (sslv3 alert certificate unknown): set STREAMPROC_SSL_CERTFILE"),
    (certificate_of_another, "foreign.pem (sslv3 alert certificate unknown): set STREAMPROC_SSL_CERTFILE"),
    (expired_token, "Z: the program that writes STREAMPROC_SASL_TOKEN_FILE must renew it"),
    (token_of_another, "rejects the login of the owner of this token: check STREAMPROC_SASL_TOKEN_FILE"),
    (wrong_secret, "answers 401 (invalid_client): check STREAMPROC_SASL_OAUTH_CLIENT_ID, _CLIENT_SECRET"),
]
# fmt: on


@pytest.mark.long
@pytest.mark.parametrize(("refused", "says"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_the_error_about_a_rejected_login_names_the_setting(
    refused: Callable[..., Settings],
    says: str,
    secured: SecureBroker,
    endpoint: TokenEndpoint,
    tmp_path: Path,
    run_cli: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = refused(secured=secured, endpoint=endpoint, tmp_path=tmp_path)
    caplog.set_level("DEBUG")
    what, _, remedy = says.partition(": ")

    checked = run_cli(settings, "topics", "check", code=2)
    examined = run_cli(settings, "doctor", code=1)

    assert what in checked
    assert remedy in checked
    assert what in examined
    assert f"To fix it: {remedy}" in examined
    secrets = [
        *secured.secrets,
        "pw-of-another",
        SECRET,
        (tmp_path / "token").read_text() if settings.sasl_token_file else SECRET,
    ]
    assert not [secret for secret in secrets if secret in checked + examined + caplog.text]


async def test_publisher_and_listener_name_the_setting_too(
    secured: SecureBroker, caplog: pytest.LogCaptureFixture
) -> None:
    settings = wrong_password_of_plain(secured)
    caplog.set_level("DEBUG", logger="aiokafka.conn")

    with pytest.raises(Unavailable, match="rejects the login of user admin: check STREAMPROC_SASL_USERNAME"):
        await HaltListener(settings=settings, start_timeout_s=3).start()
    async with TurnPublisher(settings=settings, close_timeout_s=0.1) as turns:
        await turns.turn(run_id="r1", node="coder")
        trouble = await until(lambda: turns.trouble, what="the refused connection")
        assert "rejects the login of user admin: check STREAMPROC_SASL_USERNAME" in str(trouble)
    assert "SaslHandShake" in caplog.text  # requests are logged
    assert "pw-of-another" not in caplog.text
