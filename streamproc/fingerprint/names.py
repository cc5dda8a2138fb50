"""Redacts the names of one event for a bounded time: looking for secrets takes up to 2 µs a character."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from streamproc.model.redaction import hidden_name, redact_json, redact_name

CHARACTERS_MAX: Final = 16_384  # of different names; a thousand parallel calls have a dozen names
FEW: Final = 50  # names of at most 256 characters that need no count


class EventNames:
    """The names of one kind in one event. Those beyond the limit are not read: their hash stands for them."""

    def __init__(self, read: Callable[[str], str] = redact_name) -> None:
        self._read = read
        self._known: dict[str, str] = {}
        self._left = CHARACTERS_MAX

    def redact(self, name: str) -> str:
        """Return the name without secrets, or its hash."""
        found = self._known.get(name)
        if found is None:
            self._left -= len(name)
            found = self._known[name] = self._read(name) if self._left >= 0 else hidden_name(name)
        return found


def redact_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels without secrets. Of more than `CHARACTERS_MAX` characters, hashes stand for the last ones."""
    left = CHARACTERS_MAX
    found: dict[str, str] = {}
    for name, value in labels.items():
        left -= len(name) + len(value)
        # Read together, because a text at the key `password` is a secret.
        found |= redact_json({name: value}) if left >= 0 else {hidden_name(name): hidden_name(value)}
    return found


def redacting(parts: Collection[object]) -> Callable[[str], str]:
    """Return what redacts the names of so many parts of one event."""
    return redact_name if len(parts) <= FEW else EventNames().redact
