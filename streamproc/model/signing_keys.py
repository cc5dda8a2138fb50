"""The lines of `STREAMPROC_COMMAND_KEY` and `STREAMPROC_CONTROL_KEY`: named keys that sign and verify.

`NAME:SECRET` is a shared secret (HMAC-SHA256): it signs and verifies. `NAME:ed25519:BASE64` is a private key: it signs
and verifies. `NAME:ed25519-public:BASE64` is its public key: it only verifies, so a stolen one forges nothing.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["hmac", "ed25519", "ed25519-public"]

PRIVATE: Final[Kind] = "ed25519"
PUBLIC: Final[Kind] = "ed25519-public"
SECRET_MIN: Final = 16  # characters: 128 random bits at best, and longer than most dictionary words
ED25519_BYTES: Final = 32  # of a private seed, and of a public key
NEW_KEY: Final = "make one with `streamproc keys new NAME`"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A named key. `secret` is a shared secret, an Ed25519 seed or an Ed25519 public key."""

    name: str
    kind: Kind
    secret: bytes = field(repr=False)

    @property
    def signs(self) -> bool:
        """Whether signatures can be made with it."""
        return self.kind != "ed25519-public"

    def line(self) -> str:
        """Return the key as a setting has it."""
        if self.kind == "hmac":
            return f"{self.name}:{self.secret.decode()}"
        return f"{self.name}:{self.kind}:{base64.b64encode(self.secret).decode()}"


def read_signing_keys(text: str) -> tuple[SigningKey, ...]:
    """Read keys that are separated by commas. Raises `ValueError`, which shows no secret."""
    keys: dict[str, SigningKey] = {}
    for number, part in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        name, colon, rest = part.partition(":")
        if not colon or not name or name in keys:
            raise ValueError(f"key {number} needs a unique name before a colon: NAME:SECRET")
        keys[name] = _read_key(name, rest, number)
    return tuple(keys.values())


def _read_key(name: str, rest: str, number: int) -> SigningKey:
    """Read one key. Errors give its number: a text that is no key may have a secret where the name should be."""
    kind, colon, text = rest.partition(":")
    found: Kind | None = {"ed25519": PRIVATE, "ed25519-public": PUBLIC}.get(kind) if colon else None
    if found is not None:
        try:
            secret = base64.b64decode(text, validate=True)
        except ValueError:  # binascii.Error is one, and so is a character that is not ASCII
            secret = b""
        if len(secret) != ED25519_BYTES:
            raise ValueError(f"{kind} key {number} is not {ED25519_BYTES} bytes in base64: {NEW_KEY} --ed25519")
        return SigningKey(name, found, secret)
    if len(rest) < SECRET_MIN:
        raise ValueError(f"the secret of key {number} has fewer than {SECRET_MIN} characters: {NEW_KEY}")
    return SigningKey(name, "hmac", rest.encode())
