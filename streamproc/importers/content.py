"""What importers share: reading values whose shape a log does not guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import xxhash

TEXT_KEYS: Final = ("text", "content", "input_text", "output_text")
MEDIA: Final = frozenset({
    "audio", "blob", "document", "file", "image", "image_url", "input_audio", "input_file", "input_image", "media",
    "video",
})  # fmt: skip
UNLIKE: Final = frozenset({"id", "sessionID", "messageID", "cache_control"})  # differ between equal images


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def string(value: Any) -> str:
    """Return a text as it is, and an empty one for anything else."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """Return a number of tokens; 0 for anything that is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return 0
    try:
        return max(0, int(value))
    except (ValueError, OverflowError):
        return 0


def at_path(value: Any, path: str) -> Any:
    """Return what a record has at a path of names, such as `message.usage`; None if it has nothing there."""
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def first_text(value: Any, *paths: str) -> str:
    """Return the first text of a record at one of these paths; an empty one if there is none."""
    return next((found for path in paths if (found := string(at_path(value, path)))), "")


def usage_at(value: Any, places: Mapping[str, Sequence[str]], **fields: Any) -> dict[str, Any]:
    """Return numbers of tokens, each from the first of its paths that has one, and other fields of a usage."""
    found = {name: (count(at_path(value, path)) for path in paths) for name, paths in places.items()}
    return {name: next(filter(None, numbers), 0) for name, numbers in found.items()} | fields


def sums_at(value: Any, places: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return numbers of tokens, each the sum of those at its paths."""
    return {name: sum(count(at_path(value, path)) for path in paths) for name, paths in places.items()}


def text_of(content: Any) -> str:
    """Return content blocks as one text. What is no text is named, such as `[tool_reference]`; an image or a file with
    its hash, such as `[image kqzvbfhd]`: two different ones are no repeat."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return _as_json(content)
    return "\n".join(map(_block_text, content))


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return str(block)
    for key in TEXT_KEYS:
        if isinstance(block.get(key), str):
            return str(block[key])
    if isinstance(block.get("content"), list):
        return text_of(block["content"])
    kind = block.get("type")
    if is_media(block):
        return media_text(str(kind), block)
    return f"[{kind}]" if isinstance(kind, str) else _as_json(block)


def is_media(block: Any) -> bool:
    """Whether a content block is an image or a file."""
    return isinstance(block, dict) and string(block.get("type")) in MEDIA


def media_text(kind: str, block: Any) -> str:
    """Return the name of an image or a file, with a hash in letters: hex digits would be masked as a random id."""
    content = {key: value for key, value in block.items() if key not in UNLIKE} if isinstance(block, dict) else block
    number = xxhash.xxh3_64_intdigest(repr(content).encode("utf-8", "surrogatepass"))
    return f"[{kind} {''.join(chr(ord('a') + number // 26**place % 26) for place in range(8))}]"


def with_media(text: str, blocks: Any) -> str:
    """Return the text of a result, and the names of the images and files that it has beside it."""
    return "\n".join(filter(None, (text, *(text_of([block]) for block in items(blocks) if is_media(block)))))


def _as_json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # a lone surrogate, or nested too deeply
        with suppress(RecursionError):
            return str(value)
        return "[nested]"


def exited(text: str, code: Any) -> str:
    """Return what a command wrote, after its exit code if that says that it failed. The code tells a command that ran
    and found something wrong, such as a test suite or a linter, from a tool that could not do what it was asked."""
    failed = isinstance(code, int) and not isinstance(code, bool) and code > 0
    return f"Exit code {code}\n{text}" if failed else text


def without_blanks(event: dict[str, Any]) -> dict[str, Any]:
    """Return a raw event without fields that say nothing: None, empty texts, lists and mappings."""
    return {name: value for name, value in event.items() if value is not None and value not in ("", [], {})}


def utc(text: Any) -> str | None:
    """Return a time of ISO 8601 as RFC 3339; one without a zone is UTC. None for anything else."""
    if not isinstance(text, str) or not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        at.timestamp()
    except (ValueError, OverflowError):  # its offset may lead out of the years 1 to 9999
        return None
    return at.isoformat()


def utc_ms(value: Any) -> int:
    """Return such a time as epoch milliseconds, and a number as it is; 0 for anything else."""
    text = utc(value)
    if text is None:
        return count(value) if not isinstance(value, str) else 0
    return int(datetime.fromisoformat(text).timestamp() * 1000)
