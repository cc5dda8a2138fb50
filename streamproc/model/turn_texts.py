"""What a turn says in words: cut to what a person may see, kept for a while, redacted when it is shown or sent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from streamproc.model.aliases import rename_tool_call, rename_turn
from streamproc.model.expansion import parsed
from streamproc.model.redaction import READ_PER_SHOWN, redact, redact_json

LONG_MAX: Final = 400  # characters of each text of an occurrence
READ_MAX: Final = LONG_MAX * READ_PER_SHOWN  # characters that are kept until a text is redacted
CALLS_MAX: Final = 6  # calls of a turn that are shown
ITEMS_MAX: Final = 20  # items of a list or a mapping that are kept
DEPTH_MAX: Final = 4  # levels of arguments that are kept
FIRST: Final = ("command", "cmd", "code", "query", "file_path", "path", "url", "pattern")  # arguments that say most

_Cut = Any


class CallTexts(NamedTuple):
    """The texts of a call, cut."""

    tool: str
    args: _Cut
    answer: _Cut
    failed: bool


class TurnTexts(NamedTuple):
    """The texts of a turn, cut, and about how many characters they are."""

    said: str
    left: _Cut  # artifact or docs
    calls: tuple[CallTexts, ...]
    size: int


def turn_texts(raw: Mapping[str, Any] | None) -> TurnTexts | None:
    """Return the texts of a turn's fields, as a log or `Turn.content` has them; None if there are none."""
    if not raw:
        return None
    fields = rename_turn(raw)
    calls = fields.get("tool_calls")
    made = [_call(one) for one in calls[:CALLS_MAX] if isinstance(one, Mapping)] if isinstance(calls, list) else []
    said = next((cut(fields[name]) for name in ("output", "structured_output", "query") if fields.get(name)), "")
    left = next((cut(fields[name]) for name in ("artifact", "docs") if fields.get(name)), "")
    if not made and not said and not left:
        return None
    said = said if isinstance(said, str) else _json(said)
    size = len(said) + size_of(left) + sum(size_of(one.args) + size_of(one.answer) for one in made)
    return TurnTexts(said, left, tuple(made), size)


def _call(data: Mapping[str, Any]) -> CallTexts:
    call = rename_tool_call(data)
    error = call.get("error")
    failed = error not in (None, False, "")
    answer = call.get("result")
    if failed and error is not True and answer in (None, ""):
        answer = error
    name, args = call.get("name"), call.get("args")
    if isinstance(args, str) and args.startswith("{"):
        args = parsed(args)  # as OpenAI sends arguments
    return CallTexts(name if isinstance(name, str) else "", cut(args), cut(answer), failed)


def cut(value: Any, depth: int = DEPTH_MAX) -> _Cut:
    """Return a value with short texts, lists and mappings."""
    if isinstance(value, str):
        return value[: READ_MAX + 1]
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [cut(part, depth - 1) for part in value[:ITEMS_MAX]] if depth else "[…]"
    if isinstance(value, (dict, Mapping)):  # the check of an abstract class takes a microsecond
        if not depth:
            return "{…}"
        return {str(name)[:READ_MAX]: cut(part, depth - 1) for name, part in islice(value.items(), ITEMS_MAX)}
    return type(value).__name__


def size_of(value: _Cut) -> int:
    """Return about how many characters a cut value has."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(name) + size_of(part) for name, part in value.items())
    return sum(map(size_of, value)) if isinstance(value, list) else 8


def excerpt(value: _Cut, limit: int) -> str:
    """Return a redacted excerpt of a value on one line. A mapping begins with the argument that says most."""
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        return redact(value, limit).encode("utf-8", "replace").decode()  # a lone surrogate cannot be written
    if isinstance(value, dict):
        value = redact_json(value)
        names = [name for name in FIRST if name in value] + [name for name in value if name not in FIRST]
        parts = [_text(value[name]) if at == 0 and name in FIRST else f"{name}={_text(value[name])}"
                 for at, name in enumerate(names)]  # fmt: skip
        return excerpt(" · ".join(parts), limit)
    return excerpt(_json(redact_json(value)), limit)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return str(type(value).__name__)
