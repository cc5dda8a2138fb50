"""Unusable certificate and key files: every command reports them at once, and none prompts for a password."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from streamproc.errors import InvalidSettings
from streamproc.kafka.options import connection_options, ssl_context
from streamproc.settings import load_settings

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

PASSWORD = "pass-of-the-key"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A certificate, its encrypted key, and another key."""
    authority = trustme.CA()
    mine, other = (authority.issue_cert("me") for _ in range(2))
    key = serialization.load_pem_private_key(mine.private_key_pem.bytes(), None)
    sealed = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    (tmp_path / "sealed.pem").write_bytes(sealed)
    other.private_key_pem.write_to_path(str(tmp_path / "other.pem"))
    (tmp_path / "empty.pem").write_text("")
    return {path.stem: str(path) for path in tmp_path.glob("*.pem")}


def test_an_encrypted_key_is_decrypted(files: dict[str, str]) -> None:
    options = {"ssl_certfile": files["certificate"], "ssl_keyfile": files["sealed"], "ssl_password": PASSWORD}

    assert ssl_context(load_settings(security_protocol="SSL", **options)) is not None


@pytest.mark.parametrize(("given", "says"), [
    ({"ssl_cafile": "nowhere"}, "STREAMPROC_SSL_CAFILE: no certificates can be read from .* .No such file"),
    ({"ssl_cafile": "empty"}, "STREAMPROC_SSL_CAFILE: no certificates can be read from .*empty.pem"),
    ({"ssl_certfile": "nowhere"}, "STREAMPROC_SSL_CERTFILE, _KEYFILE or _PASSWORD: .* cannot be used .No such"),
    ({"ssl_certfile": "certificate", "ssl_keyfile": "other"}, "that the key belongs to the certificate"),
    ({"ssl_certfile": "certificate", "ssl_keyfile": "sealed"}, "_PASSWORD: .* cannot be used"),
    ({"ssl_certfile": "certificate", "ssl_keyfile": "sealed", "ssl_password": "pw-of-another"}, "cannot be used"),
])  # fmt: skip
def test_the_error_about_an_unusable_file_names_its_setting(
    given: dict[str, str], says: str, files: dict[str, str], run_cli: Callable[..., str]
) -> None:
    options = {name: files.get(value, value) for name, value in given.items()}
    settings = load_settings(security_protocol="SSL", **options)

    with pytest.raises(InvalidSettings, match=says) as problem:
        connection_options(settings)
    said = run_cli(settings, "topics", "check", code=2)

    assert "STREAMPROC_SSL_" in said
    assert "Traceback" not in said
    assert "pw-of-another" not in said + str(problem.value)
