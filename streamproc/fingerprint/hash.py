"""From content to numbers: exact and normalised xxh3-64, canonical JSON, error signatures."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
import xxhash

from streamproc.fingerprint.mask import mask, mask_ends
from streamproc.fingerprint.similarity import short_simhash, simhash, subjects
from streamproc.model.wire import Content

SIGNATURE_MESSAGES: Final = 3  # "the first 50 characters of each of the first 3 messages, joined with a bar"
SIGNATURE_CHARACTERS: Final = 50

_WORD: Final = re.compile(r"\w+")
_CANONICAL: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def h64(text: str | bytes) -> int:
    """xxh3-64 of a text in UTF-8."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    return xxhash.xxh3_64_intdigest(text)


def content(text: str) -> Content:
    """Exact and normalised hash, SimHash and size of a text."""
    return _content(text)[0]


def _content(text: str) -> tuple[Content, str]:
    """The same, and the beginning of the text as it was masked: masking is most of the work."""
    head, middle, tail = mask_ends(text)
    norm = h64(head) if not middle else h64(f"{h64(head)}|{h64(middle)}|{h64(tail)}")
    return Content(h64(text), norm, simhash(head), len(text)), head


def words(text: str) -> Content:
    """What somebody says or asks: as `content`, with a SimHash where it is short, too, and with what it is about."""
    plain, head = _content(text)
    return Content(plain.exact, plain.norm, plain.sim or short_simhash(head), plain.size, subjects(head))


def canonical(value: Any) -> str:
    """Any JSON as text in which only meaning counts: sorted keys, no white space, JSON inside text is opened."""
    if isinstance(value, str):
        return _opened(value)
    try:
        return orjson.dumps(value, option=_CANONICAL).decode()
    except TypeError:
        return repr(value)  # Python objects in one process: not JSON, still comparable


def _opened(text: str) -> str:
    """Model APIs hand tool arguments over as JSON in a string."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return orjson.dumps(orjson.loads(text), option=_CANONICAL).decode()
    except (TypeError, ValueError):  # not JSON, or too deep to be written again
        return text


def markdown(text: str) -> Content:
    """Markdown without its white space: what a reader sees is the same."""
    plain = content("\n".join(line for line in map(str.strip, text.splitlines()) if line))
    return Content(h64(text), plain.norm, plain.sim, len(text))


def question(text: str) -> Content:
    """A query: case, punctuation and white space do not change what is asked."""
    plain = words(text)
    asked = " ".join(_WORD.findall(text.casefold()))
    return Content(plain.exact, h64(asked) if asked else plain.norm, plain.sim, plain.size, plain.about)


_PATCH_NOISE: Final = ("index ", "diff --git ", "similarity index ", "old mode ", "new mode ")


def patch(text: str) -> Content:
    """A patch or file. Of a unified diff, blob ids, time stamps after file names and hunk positions do not count."""
    if not (text.startswith(("diff --git ", "--- ", "Index: ")) or "\n@@ " in text):
        return content(text)
    lines = []
    for line in text.splitlines():
        if line.startswith(_PATCH_NOISE):
            continue
        if line.startswith(("--- ", "+++ ")):
            line = line.split("\t", 1)[0]
        elif line.startswith("@@ "):
            line = "@@"
        lines.append(line.rstrip())
    plain = content("\n".join(lines))
    return Content(h64(text), plain.norm, plain.sim, len(text))


def signature(messages: list[str]) -> tuple[int, int]:
    """The error signature and its normalised twin."""
    heads = [message[:SIGNATURE_CHARACTERS] for message in messages[:SIGNATURE_MESSAGES]]
    masked = [mask(_last_words(message))[:SIGNATURE_CHARACTERS] for message in messages[:SIGNATURE_MESSAGES]]
    return h64("|".join(heads)), h64("|".join(masked))


def _last_words(message: str) -> str:
    """Of a traceback the line that it ends with: they all begin alike."""
    if not message.startswith("Traceback (most recent call last)"):
        return message
    return message.rstrip().rpartition("\n")[2]
