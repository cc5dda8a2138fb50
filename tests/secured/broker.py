"""A real Kafka with TLS, logins and ACLs, and the credentials of its users.

It has four listeners: ``SSL`` with certificates, ``SCRAM`` (SCRAM-SHA-256, -512 and PLAIN over TLS), ``OAUTH`` with
tokens (signed JWTs, which the broker checks against a key set in a file), and ``OPEN`` without TLS or logins, whose
clients have no rights.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import string
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from deploy.local.kafka import HOST, Broker, Kind, free_port
from streamproc.settings import Settings, load_settings

TEMPLATE = Path(__file__).with_name("secure.properties")
KEY_ID = "tests"


class Issuer:
    """An issuer of tokens."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def keys(self) -> str:
        """Return the public keys as a JWK set, the form that brokers read."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_text(value.to_bytes((value.bit_length() + 7) // 8)) for value in (numbers.n, numbers.e))
        return json.dumps({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": KEY_ID, "n": n, "e": e}]})

    def token(self, user: str, *, lives_s: float = 300) -> str:
        """Return a token of this user; with a negative lifetime, an expired one."""
        now = time.time()
        claims = {"sub": user, "aud": "kafka", "scope": "kafka", "iat": int(now) - 600, "exp": int(now + lives_s)}
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_text(signature)}"


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class SecureBroker:
    """The broker and the credentials of its users. Secrets are random in every test session."""

    def __init__(self, directory: Path, users: tuple[str, ...]) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.issuer = Issuer()
        self.passwords = {user: f"pw-{secrets.token_hex(16)}" for user in ("admin", *users)}
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(directory / "ca.pem"))
        for user in ("broker", "admin", *users):
            self.certificate(user)
        (directory / "keys.json").write_text(self.issuer.keys())
        jwks = (directory / "keys.json").as_uri()
        self._ports = {name: free_port() for name in ("SCRAM", "OAUTH", "OPEN")}
        properties = string.Template(TEMPLATE.read_text()).safe_substitute(
            directory=directory,
            jwks=jwks,
            password=self.passwords["admin"],
            **{f"{name.lower()}_port": port for name, port in self._ports.items()},
        )
        scrams = [
            f"{mechanism}=[name={user},password={password}]"
            for user, password in self.passwords.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        tls = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        tls.load_cert_chain(directory / "admin.pem")
        self._broker = Broker(
            directory / "broker",
            Kind(
                properties,
                # It runs for a minute: optimised compilation would cost more than it saves.
                java=(
                    "-XX:TieredStopAtLevel=1",
                    "-XX:+UseSerialGC",
                    f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}",
                ),
                format=tuple(word for scram in scrams for word in ("--add-scram", scram)),
                tls=tls,
            ),
        )

    def start(self) -> None:
        """Start the broker; returns when it answers."""
        self._ports["SSL"] = self._broker.start().port

    def kill(self) -> None:
        """Kill the broker."""
        self._broker.kill()

    @property
    def pid(self) -> int:
        """The process id."""
        state = self._broker.running()
        return state.pid

    @property
    def secrets(self) -> list[str]:
        """Texts that must not appear in any output: passwords, and a line of each key."""
        keys = [path.read_text().splitlines()[1] for path in self.directory.glob("*.pem") if path.name != "ca.pem"]
        return [*self.passwords.values(), *keys]

    def certificate(self, user: str, name: str = "", *, expired: bool = False) -> Path:
        """Write a file with a certificate of this user and its key."""
        then = datetime.now(UTC) + timedelta(days=-1 if expired else 1)
        issued = self._authority.issue_cert(HOST, common_name=user, not_before=then - timedelta(days=2), not_after=then)
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.directory / f"{name or user}.pem"
        path.write_bytes(plain + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        path.chmod(0o600)
        return path

    def by_certificate(self, user: str, **options: Any) -> Settings:
        """Return the settings of a user with a certificate."""
        certificate = str(self.directory / f"{user}.pem")
        given = {"ssl_certfile": certificate, "ssl_keyfile": certificate}
        return self._settings("SSL", "SSL", **(given | options))

    def by_password(self, user: str, mechanism: str = "SCRAM-SHA-512", **options: Any) -> Settings:
        """Return the settings of a user with a password."""
        given = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": self.passwords.get(user, "none")}
        return self._settings("SCRAM", "SASL_SSL", **(given | options))

    def by_token(self, **options: Any) -> Settings:
        """Return the settings of a client with a token; `options` name its source."""
        return self._settings("OAUTH", "SASL_SSL", sasl_mechanism="OAUTHBEARER", **options)

    def in_plain_text(self, **options: Any) -> Settings:
        """Return the settings of a client of the listener without TLS."""
        return self._settings("OPEN", "PLAINTEXT", **options)

    def _settings(self, listener: str, protocol: str, **options: Any) -> Settings:
        common = {
            "brokers": f"{HOST}:{self._ports[listener]}", "security_protocol": protocol,
            "ssl_cafile": str(self.directory / "ca.pem"), "partitions": 2, "session_timeout_s": 6.0,
        }  # fmt: skip
        return load_settings(**(common | options))
