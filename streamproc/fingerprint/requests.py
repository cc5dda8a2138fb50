"""What a model was asked, as the `request` of a turn: a digest of the message that its answer belongs to.

Adapters of frameworks and importers of traces report it. Other publishers may send the text itself.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import to_jsonable_python

from streamproc.fingerprint.turn import as_request

_DIGITS: Final = b"0123456789"


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
