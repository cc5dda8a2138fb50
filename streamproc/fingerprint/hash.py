"""Exact and normalised xxh3-64 hashes, canonical JSON, error signatures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import orjson
import xxhash

from streamproc.fingerprint.keyed import ABOUT_MAX, HashKey
from streamproc.fingerprint.mask import END_MAX, mask, mask_ends, scan
from streamproc.fingerprint.similarity import SIZE_MIN, short_simhash, simhash, subjects, voted, word_set
from streamproc.model.wire import Content

SIGNATURE_MESSAGES: Final = 3  # "the first 50 characters of each of the first 3 messages, joined with a bar"
TRACEBACK: Final = "Traceback (most recent call last)"
SIGNATURE_CHARACTERS: Final = 50
TIMES_MAX: Final = 20_000  # characters at each end of a request in which times are masked
MASKED_CHARACTERS: Final = 4_000  # of a message that are masked for its first 50: masks make a text shorter

_WORD: Final = re.compile(r"\w+(?:\+\+|#(?!\w)|\*)?|[<>=≠≤≥~]+")  # also `C++`, `C#`, and what compares
_CANONICAL: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def h64(text: str | bytes) -> int:
    """Return the xxh3-64 of a text in UTF-8."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    return xxhash.xxh3_64_intdigest(text)


def content(text: str, key: HashKey | None = None) -> Content:
    """Return exact and normalised hash, SimHash and size of a text. Only the SimHash needs the `key` already here."""
    if scan is not None and key is None:
        return Content(*scan.content(text))
    return _content(text, key)[0]


def compared(text: str, key: HashKey | None) -> tuple[int, int, int]:
    """Return exact and normalised hash and the SimHash of what a program has answered: all times in it are measured."""
    if scan is not None and key is None:
        exact, norm, sim, _ = scan.answer(text)
        return exact, norm, sim
    plain = _content(text, key, produced=False)[0]
    return plain.exact, plain.norm, plain.sim


def artifact(text: str, key: HashKey | None = None) -> Content:
    """Return the same as `content` for a file or a patch, in which ids count."""
    if scan is not None and key is None:
        return Content(*scan.artifact(text))
    return _content(text, key, artifact=True)[0]


def _content(text: str, key: HashKey | None, *, produced: bool = True, artifact: bool = False) -> tuple[Content, str]:
    """Return the same with the masked start of the text, because masking is most of the work."""
    head, middle, tail = mask_ends(text, produced=produced, artifact=artifact)
    norm = h64(head) if not middle else h64(f"{h64(head)}|{h64(middle)}|{h64(tail)}")
    sim = simhash(head, key) if scan is None else voted(scan.features(head), key)
    return Content(h64(text), norm, sim, len(text)), head


def words(text: str, key: HashKey | None = None) -> Content:
    """Return the same as `content` for speech, with a SimHash for short texts, too, and a hash of its subjects."""
    if scan is not None and key is None:
        return Content(*scan.words(text))
    plain, head = _content(text, key)
    return Content(plain.exact, plain.norm, plain.sim or short_simhash(head, key), plain.size, subjects(head))


def canonical(value: Any) -> str:
    """Return any JSON as canonical text: sorted keys, no white space, JSON inside a string parsed."""
    if type(value) is str:
        return _parsed(value)
    if isinstance(value, str):
        return _parsed(str.__str__(value))  # `scan` reads no subclasses
    try:
        return orjson.dumps(value, option=_CANONICAL).decode()
    except TypeError:
        return repr(value)  # Python objects in one process: not JSON, still comparable


def parsed_arguments(args: Any) -> tuple[bytes, Any]:
    """Return the canonical JSON of a call's arguments in UTF-8, and the arguments; JSON in a text is parsed."""
    if type(args) is str and args[:1] in ("{", "["):
        try:
            args = orjson.loads(text := args)
            return orjson.dumps(args, option=_CANONICAL), args
        except (TypeError, ValueError):  # not JSON, or nested too deeply to serialise
            return text.encode("utf-8", "surrogatepass"), args
    if type(args) is dict:
        try:
            return orjson.dumps(args, option=_CANONICAL), args
        except TypeError:
            pass
    return canonical(args).encode("utf-8", "surrogatepass"), args


def _parsed(text: str) -> str:
    """Parse JSON in a string: model APIs pass tool arguments that way."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return orjson.dumps(orjson.loads(text), option=_CANONICAL).decode()
    except (TypeError, ValueError):  # not JSON, or nested too deeply to serialise
        return text


def markdown(text: str, key: HashKey | None = None) -> Content:
    """Hash Markdown without its white space, which readers do not see."""
    plain = content("\n".join(filter(None, map(str.strip, text.splitlines()))), key)
    return Content(h64(text), plain.norm, plain.sim, len(text))


# Words that show how a query is put and not what it asks. Question words and negations stay: they do.
_FUNCTION_WORDS: Final = frozenset((
    "a", "an", "the", "this", "that", "these", "those", "of", "in", "on", "at", "for", "to", "from", "by", "with",
    "about", "as", "and", "or", "is", "are", "was", "were", "be", "been", "am", "do", "does", "did", "has", "have",
    "had", "can", "could", "will", "would", "shall", "should", "may", "might", "must", "i", "me", "my", "we", "us",
    "our", "you", "your", "it", "its", "there", "please",
))  # fmt: skip
_PARTS_MAX: Final = 12  # words of a short query; more would fill the 64 bits of `word_set`


def question(text: str, key: HashKey | None = None) -> Content:
    """Hash a query by the words that it asks with, in any order. A short one has the `word_set` of these as `sim`."""
    plain = words(text, key)
    asked = _WORD.findall(text[:END_MAX].casefold())
    kept = {word for word in asked if word not in _FUNCTION_WORDS}
    if "from" in asked and "to" in asked:  # from here to there is not from there to here
        goal = next((word for word in asked[len(asked) - asked[::-1].index("to") :] if word in kept), "")
        kept ^= {goal, f"to {goal}"} if goal else set()
    parts = sorted(kept) or asked
    rest = f"|{h64(text[END_MAX:])}" if len(text) > END_MAX else ""
    sim = plain.sim
    if len(text) < SIZE_MIN:
        sim = word_set(parts, key) if len(parts) <= _PARTS_MAX else 0
    return Content(plain.exact, h64(" ".join(parts) + rest) if parts else plain.norm, sim, plain.size, plain.about)


# `2026-11-26T10:02:03.5Z`, `10:02:03`: to the second, as programs write them. A date or `10:30` may be the item.
_MOMENT: Final = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d+)?")


def request(text: str) -> int:
    """Hash what a turn answers: everything counts in it, also ids, but not the times near its start and its end."""
    if len(text) <= 2 * TIMES_MAX:
        return h64(_MOMENT.sub("…", text))
    ends = [_MOMENT.sub("…", end) for end in (text[:TIMES_MAX], text[-TIMES_MAX:])]
    return h64("|".join((ends[0], str(h64(text[TIMES_MAX:-TIMES_MAX])), ends[1])))


_PATCH_NOISE: Final = ("index ", "diff --git ", "similarity index ", "old mode ", "new mode ")


def patch(text: str, key: HashKey | None = None) -> Content:
    """Hash a patch or file without times; in a unified diff, ignore blob ids, time stamps after file names and hunk
    positions. White space counts only where it indents a line: there it may have a meaning."""
    if not (text.startswith(("diff --git ", "--- ", "Index: ")) or "\n@@ " in text):
        return _with_indents(artifact(text, key), text.splitlines(), 0)
    lines, names = [], set()
    for line in text.splitlines():
        if line.startswith(_PATCH_NOISE):
            continue
        if line.startswith(("--- ", "+++ ")):
            line = line.split("\t", 1)[0]
            names.add(line[4:].removeprefix("a/").removeprefix("b/").rstrip())
        elif line.startswith("@@ "):
            line = "@@"
        lines.append(line.rstrip())
    plain = _with_indents(artifact("\n".join(lines), key), lines, 1)
    return Content(h64(text), plain.norm, plain.sim, len(text), names_hash(names - {"/dev/null"}))


def _with_indents(plain: Content, lines: list[str], mark: int) -> Content:
    """Return the hashes of a text in which the indents of lines count, after a `mark` of so many characters; those of
    empty lines do not."""
    indents = [len(line) - mark - len(line[mark:].lstrip()) for line in lines if line[mark:].strip()]
    if not any(indents):
        return plain
    norm = plain.norm ^ h64(",".join(map(str, indents)))
    return Content(plain.exact, norm, plain.sim, plain.size, plain.about)


def names_hash(names: Iterable[str]) -> int:
    """Return a 32-bit hash of the files of an artifact, whatever their content; 0 for none."""
    known = sorted(names)
    return (h64("\n".join(known)) & ABOUT_MAX or 1) if known else 0


def signature(messages: list[str], *, produced: bool = False) -> tuple[int, int]:
    """Return the error signature, exact and normalised; `produced` as for `mask`."""
    heads = [message[:SIGNATURE_CHARACTERS] for message in messages[:SIGNATURE_MESSAGES]]
    lines = [_last_line(message)[:MASKED_CHARACTERS] for message in messages[:SIGNATURE_MESSAGES]]
    masked = [mask(line, produced=produced)[:SIGNATURE_CHARACTERS] for line in lines]
    return h64("|".join(heads)), h64("|".join(masked))


def _last_line(message: str) -> str:
    """Return the last line of a traceback, because all tracebacks start alike; any other message as it is."""
    if not message.startswith(TRACEBACK):
        return message
    return message.rstrip().rpartition("\n")[2]
