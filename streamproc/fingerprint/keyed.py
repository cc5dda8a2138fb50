"""Keyed hashes: without the key, no one can test whether a hash belongs to a guessed text."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from streamproc.model.wire import Call, Content, Errors, Tests

ABOUT_MAX: Final = 0xFFFFFFFF  # `Content.about` has 32 bits


class HashKey:
    """A deployment's key for the hashes of texts.

    Calling it turns a 64-bit hash into BLAKE2b of that hash under the key, in 64 bits; 0, which means "none", stays 0.
    Equal texts keep equal hashes. It costs less than a microsecond a hash, however long the text.
    """

    __slots__ = ("_start",)

    def __init__(self, secret: str) -> None:
        self._start = blake2b(digest_size=8, key=blake2b(secret.encode()).digest(), person=b"streamproc")

    @classmethod
    def of(cls, secret: str) -> HashKey | None:
        """Return the key, or None if the secret is empty."""
        return cls(secret) if secret else None

    def __call__(self, value: int) -> int:
        if not value:
            return 0
        state = self._start.copy()
        state.update(value.to_bytes(8, "little"))
        return int.from_bytes(state.digest(), "little") or 1

    def content(self, plain: Content | None) -> Content | None:
        """Return the fingerprint of a text with keyed hashes. Its SimHash was made of keyed features."""
        if plain is None:
            return None
        about = self(plain.about) & ABOUT_MAX or 1 if plain.about else 0
        return Content(self(plain.exact), self(plain.norm), plain.sim, plain.size, about)

    def call(self, plain: Call) -> Call:
        """Return a tool call with keyed hashes."""
        hashes = self(plain.key), self(plain.exact), self(plain.norm)
        return Call(plain.name, *hashes, plain.outcome, plain.sim, plain.marks)

    def tests(self, plain: Tests | None) -> Tests | None:
        """Return a test report with a keyed hash of the failing ids."""
        return plain and msgspec.structs.replace(plain, failing_set=self(plain.failing_set))

    def errors(self, plain: Errors | None) -> Errors | None:
        """Return the errors of a turn with keyed signatures."""
        return plain and msgspec.structs.replace(plain, signature=self(plain.signature), norm=self(plain.norm))
