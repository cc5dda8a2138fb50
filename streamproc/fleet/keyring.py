"""Signs with one of several named keys, and verifies the signatures of all of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from typing import Any, Final

from streamproc.model.signing_keys import SigningKey

SECRET_BYTES: Final = 32


class Keyring:
    """Keys by name. The first one that can sign signs, so two keys can be in use while one replaces the other."""

    def __init__(self, keys: Iterable[SigningKey] = ()) -> None:
        self._signers: dict[str, Callable[[bytes], bytes]] = {}
        self._verifiers: dict[str, Callable[[bytes, bytes], bool]] = {}
        for key in keys:
            if key.kind == "hmac":
                self._add_hmac(key)
            else:
                self._add_ed25519(key)

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._verifiers)})"

    def __bool__(self) -> bool:
        return bool(self._verifiers)

    def __contains__(self, name: str) -> bool:
        return name in self._verifiers

    @property
    def names(self) -> list[str]:
        """The names whose signatures can be verified."""
        return list(self._verifiers)

    def signer(self, preferred: str = "") -> str | None:
        """Return the name that signs: the preferred one if its key can, else the first that can; None if none can."""
        return preferred if preferred in self._signers else next(iter(self._signers), None)

    def sign(self, name: str, content: bytes) -> str:
        """Return the signature in hex: 64 digits (HMAC-SHA256) or 128 (Ed25519)."""
        return self._signers[name](content).hex()

    def verifies(self, name: str, content: bytes, signature: str) -> bool:
        """Return whether this is the signature of `name` over `content`."""
        try:
            given = bytes.fromhex(signature)
        except ValueError:
            return False
        return self._verifiers[name](content, given)

    def _add_hmac(self, key: SigningKey) -> None:
        def sign(content: bytes) -> bytes:
            return hmac.digest(key.secret, content, hashlib.sha256)

        self._signers[key.name] = sign
        self._verifiers[key.name] = lambda content, given: hmac.compare_digest(sign(content), given)

    def _add_ed25519(self, key: SigningKey) -> None:
        # Imported here: it takes 20 ms, and most processes use no such key.
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ed25519

        if key.signs:
            private = ed25519.Ed25519PrivateKey.from_private_bytes(key.secret)
            self._signers[key.name] = private.sign
            public = private.public_key()
        else:
            public = ed25519.Ed25519PublicKey.from_public_bytes(key.secret)

        def verifies(content: bytes, given: bytes) -> bool:
            try:
                public.verify(given, content)
            except InvalidSignature:
                return False
            return True

        self._verifiers[key.name] = verifies


def new_keys(name: str, *, ed25519: bool) -> tuple[SigningKey, SigningKey]:
    """Make a key: the one that signs, and the one that verifies (with a shared secret, they are the same)."""
    if not ed25519:
        key = SigningKey(name, "hmac", base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).rstrip(b"="))
        return key, key
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private: Any = Ed25519PrivateKey.generate()
    return (
        SigningKey(name, "ed25519", private.private_bytes_raw()),
        SigningKey(name, "ed25519-public", private.public_key().public_bytes_raw()),
    )
