"""What a model was asked, as the `request` of a turn: a digest of the message that its answer belongs to.

Adapters of frameworks and importers of traces report it. Other publishers may send the text itself.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pydantic_core import to_jsonable_python

from streamproc.fingerprint.hash import h64
from streamproc.fingerprint.turn import as_request

GROWS_FROM: Final = 200  # characters of a prompt that may go on in the next one; a short one may be an item
_DIGITS: Final = b"0123456789"


class Prompt(NamedTuple):
    """A prompt of which the text is not kept: its length, its hash, and the request that it is."""

    size: int
    hash: int
    about: str | None

    @classmethod
    def after(cls, before: Prompt | None, text: str, about: str | None) -> Prompt:
        """Return a prompt that came after another one of its node. One that goes on where a long one ended is the same
        request: some programs write all that has happened into one message."""
        if before is not None and len(text) > before.size >= GROWS_FROM and h64(text[: before.size]) == before.hash:
            about = before.about
        return cls(len(text), h64(text), about)


def request_of(asked: Any, instructions: str = "") -> str | None:
    """Return the digest of what was asked (a text, or any parts of a message); None if nothing was.

    Pass the last message of a person or of the program, not the conversation: that is another one in each turn.
    The `instructions` of a system prompt count without their digits, as many of them carry a clock or a counter.
    """
    about = as_request(as_json(asked))
    if instructions:
        fixed = instructions.encode("utf-8", "surrogatepass").translate(None, _DIGITS)
        about = as_request([f"{about:016x}", as_request(fixed.decode("utf-8", "surrogatepass"))])
    return f"{about:016x}" if about else None


def as_json(value: Any) -> Any:
    """Return a value as JSON values. An object that is no data becomes the name of its type: its text may carry an
    address, which is another one each time."""
    return value if isinstance(value, str) else to_jsonable_python(value, fallback=_type_name, bytes_mode="base64")


def _type_name(value: object) -> str:
    return type(value).__qualname__
