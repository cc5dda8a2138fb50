"""Redaction: replace secrets in texts and names, before anything leaves the process.

A secret is found by its place (`password=…`, a header, a flag of a command, the user part of a URL), by its shape (the
prefix that its issuer gives it, the checksum of a card), or because it is long and random. The plain form of a text is
searched (`plain_text`): characters that are not seen, and escapes, hide nothing. Shapes follow the rules of gitleaks 8
(MIT, https://github.com/gitleaks/gitleaks, config/gitleaks.toml), shortened to the prefix and the least length.

Git hashes, digests, UUIDs, paths and the ids of requests stay: an error is useless without them.

Every quantifier is bounded or cannot fail after it, so the time is linear in the text. A rule runs only on a text that
contains one of its hints, because a search for a literal is a hundred times faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, Final

from streamproc.model.personal_numbers import personal_numbers
from streamproc.model.plain_text import ANSI, plain, unescaped
from streamproc.model.secret_lists import LISTS, secret_lists
from streamproc.model.secret_phrases import PHRASES
from streamproc.model.secret_places import PLACES
from streamproc.model.secret_rules import NAMED_DIGITS, SHAPED_DIGITS, Lowered, Say, SecretRule, lower, value_of
from streamproc.model.secret_shapes import SHAPES

EXCERPT_MAX: Final = 120  # characters: enough to recognise an error
TEXT_MAX: Final = 500  # characters of a reason: every message about the command contains it
READ_PER_SHOWN: Final = 8  # characters read for each one shown: redaction and folding shorten a text
CUT_MIN: Final = 200  # characters of a word; every shape is recognised by fewer
NUMBER_MIN: Final = 6  # digits; fewer show no more than the bank of a card
NUMBER_MAX: Final = 20  # characters of what a cut leaves of a number of four groups
NAME_MAX: Final = 128  # characters of a scope on the wire; a redacted name must still fit
NAME_READ_MAX: Final = 4_096  # characters of a name that are read; the longest that is sent has 256
RANDOM_MIN: Final = 20  # characters; shorter random texts are ids more often than secrets
CHUNK_MAX: Final = 3.0  # mean length of runs of one kind of character: random text has 1.5 to 3, names 3 to 8
SEPARATED_MIN: Final = 8  # characters for each separator: base 64 has one in 32, a path one in six

RULES: Final = (*PHRASES, *PLACES)
_LISTS_BY_HINT: Final = {
    hint: [n for n, one in enumerate(LISTS) if hint in one.hints] for one in LISTS for hint in one.hints
}
_RULES_BY_HINT: Final = {
    hint: [n for n, one in enumerate(RULES) if hint in one.hints] for one in RULES for hint in one.hints
}
_HINTS: Final = tuple(_LISTS_BY_HINT | _RULES_BY_HINT)
_HEX: Final = re.compile(r"[0-9a-f]+(?:-[0-9a-f]+)*")  # a UUID or the like: none of the hints is in it

_GOES_ON: Final = r"(?:%(?:2[BbFf]|3[Dd])[\w+/=-]*)*"  # base 64 in a URL
_SHAPE: Final = re.compile(f"(?a)(?<![A-Za-z0-9])(?:{'|'.join(SHAPES)}){_GOES_ON}")
_LONG_WORD: Final = re.compile(r"(?a)[A-Za-z0-9_][\w.~+/%-]{14,}={0,2}")

_CHUNK: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_PIECE: Final = re.compile(r"[A-Za-z0-9_+~-]{20,}")
_LONG_HEX: Final = re.compile(r"[0-9a-f]{16,}|[0-9A-F]{16,}")
_ESCAPED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_KNOWN_IDS: Final = re.compile(
    r"(?:toolu|srvtoolu|call|fc|chatcmpl|cmpl|msg|req|resp|rs|run|asst|thread|file|step|batch|ftjob|org|proj|user"
    r"|gen|trace|span|cus|pi|ch|in|evt|sub|si|prod|price|seti|acct|txn|re|py|po|pm|card|cs)[_-]"
)
_DIGEST: Final = re.compile(r"_Z|sha(?:1|256|384|512)-")  # also names that a compiler made
_BEFORE_DIGEST: Final = re.compile(r"(?i)(?:sha\d{1,3}|md5|h1|;base64|etag)[-:=,\s\"']{1,3}\Z")
_EMAIL: Final = re.compile(r"(?a)(?<![\w.+-])(?!git@)[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,4}\.[A-Za-z]{2,24}")


def redact(text: str, limit: int = EXCERPT_MAX) -> str:
    """Return an excerpt of a text on one line, at most `limit` characters, without secrets and e-mail addresses."""
    head = ANSI.sub("", _head(text, limit * READ_PER_SHOWN))
    folded = " ".join(_clean(head, _hidden_text, random=True, addresses=True).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def redact_text(text: str, limit: int = TEXT_MAX) -> str:
    """Return the first `limit` characters of a text without secrets. E-mail addresses and white space stay."""
    return _clean(_head(text, limit * READ_PER_SHOWN), _hidden_text, random=True)[:limit]


def _hidden_text(_secret: str, _digits: int) -> str:
    return "<redacted>"


@lru_cache(maxsize=8_192)  # a run repeats its names in every turn
def redact_name(text: str) -> str:
    """Return a name with its secrets replaced by ``<redacted-HASH>``, so that different names stay different."""
    return _fitted(text, _clean(_head(text, NAME_READ_MAX), _numbered, random=True))


@lru_cache(maxsize=8_192)
def redact_id(text: str) -> str:
    """Return the id of a run, session, user, tenant or task as `redact_name` does, but keep what is only random.

    Random texts are usual ids. Every program of a deployment finds the same id, as no key is needed.
    """
    return _fitted(text, _clean(_head(text, NAME_READ_MAX), _numbered, random=False))


def hidden_name(text: str) -> str:
    """Return what stands for a whole name, so that different names stay different: ``<redacted-HASH>``."""
    return _numbered(text, SHAPED_DIGITS)


def redact_json(value: Any) -> Any:
    """Return JSON with `redact_name` applied to every text and key; so is a text at the key ``password``."""
    if type(value) is str:
        return redact_name(value)
    if type(value) in (list, tuple):  # a graph has many thousand short ones
        return [redact_name(part) if type(part) is str else redact_json(part) for part in value]
    if isinstance(value, Mapping):
        return {redact_name(str(name)): _field(str(name), part) for name, part in value.items()}
    return value


def _field(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return redact_json(value)
    start = f'"{name}": "'
    named = redact_name(f"{start}{value}")
    return named.removeprefix(start) if named.startswith(start) else redact_name(value)


def _head(text: str, limit: int) -> str:
    """Return the start of a text, without its last word if that is too short to show the shape of a cut secret."""
    if len(text) <= limit:
        return text
    words = text[:limit].rsplit(None, 1)
    if len(words) != 2 or len(words[1]) >= CUT_MIN:
        return text[:limit]
    # Nor with the first groups of a number.
    whole = words[0][:-NUMBER_MAX] + words[0][-NUMBER_MAX:].rstrip("0123456789 .-")
    digits = sum(map(str.isdecimal, words[0][len(whole) :]))
    return f"{words[0] if digits < NUMBER_MIN else whole} …"


def _fitted(text: str, redacted: str) -> str:
    """Return a redacted name that is no longer than a name may be."""
    most = max(len(text), NAME_MAX)
    if len(redacted) <= most:
        return redacted
    whole = _numbered(text, NAMED_DIGITS)
    return redacted[: most - len(whole)] + whole


def _numbered(secret: str, digits: int) -> str:
    number = blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=SHAPED_DIGITS // 2).hexdigest()
    return f"<redacted-{number[:digits]}>"


def _clean(text: str, say: Say, *, random: bool, addresses: bool = False) -> str:
    """Return a text without secrets; what is none stays as it is written, if it can be told apart.

    `random`: whether a random text is a secret, and a number of the form of a card's; among ids, both are usual.
    """
    search = partial(_searched, say=say, random=random, addresses=addresses)
    seen = plain(text)
    found = search(seen)
    if found == seen:
        found = text
    elif seen != text and plain(kept := search(text)) == found:
        found = kept
    if unescaped(found) == found:
        return found
    # Escapes end a secret in one reading and are part of it in the other, so both are searched.
    lines = []
    for line in found.split("\n"):
        told = unescaped(plain(line))
        lines.append(line if told == line or (again := search(told)) == told else again)
    return "\n".join(lines)


def _searched(text: str, say: Say, random: bool, addresses: bool) -> str:
    if len(text) < 6:
        return text
    if random and (spans := personal_numbers(text)):
        text = _without(text, ((*span, NAMED_DIGITS) for span in spans), say)
    lowered = lower(text)
    if not _HEX.fullmatch(lowered) and (hints := [hint for hint in _HINTS if hint in lowered]):
        text = _without_told(text, hints, say)
    if len(text) >= 15:
        text = _LONG_WORD.sub(lambda match: _word(match, say, random), text)
    if addresses and "@" in text:
        text = _EMAIL.sub(lambda match: say(match[0], NAMED_DIGITS), text)
    return text


def _without_told(text: str, hints: list[str], say: Say) -> str:
    """Return a text without the secrets that what stands around them tells."""
    lowered = Lowered(text)
    for n in sorted({n for hint in hints for n in _LISTS_BY_HINT.get(hint, ())}):
        if spans := list(secret_lists(text, LISTS[n], lowered)):
            text = _without(text, spans, say)
            lowered = Lowered(text)
    for n in sorted({n for hint in hints for n in _RULES_BY_HINT.get(hint, ())}):
        rule = RULES[n]
        if not rule.also or any(word in lowered.text for word in rule.also):
            text, before = _without_named(text, rule, lowered, say), text
            lowered = lowered if text is before else Lowered(text)
    return text


def _without_named(text: str, rule: SecretRule, lowered: Lowered, say: Say) -> str:
    """Return a text without what a rule finds; the text itself if it finds nothing."""
    if not rule.begins:
        redacted = rule.pattern.sub(lambda match: _hidden(match, rule, say), text)
        return text if redacted == text else redacted
    parts, last = [], 0
    for start in lowered.starts(rule.begins):
        if start >= last and (match := rule.pattern.match(text, start)):
            parts += [text[last:start], _hidden(match, rule, say)]
            last = match.end()
    redacted = "".join((*parts, text[last:])) if parts else text
    return text if redacted == text else redacted


def _without(text: str, spans: Iterable[tuple[int, int, int]], say: Say) -> str:
    """Return a text with what `say` says of each span, (start, end, digits), in its place."""
    parts, last = [], 0
    for start, end, digits in sorted(spans):
        if end > last:
            start = max(start, last)
            parts += [text[last:start], say(text[start:end], digits)]
            last = end
    return "".join((*parts, text[last:])) if parts else text


def _hidden(match: re.Match[str], rule: SecretRule, say: Say) -> str:
    found, given = match.group(), match["s"]
    value = value_of(given)
    if rule.doubtful(match, value):
        return found
    start, end = match.start("s") - match.start() + len(given) - len(value), match.end("s") - match.start()
    return found[:start] + say(value, rule.digits) + found[end:]


@lru_cache(maxsize=8_192)  # a run repeats its paths and names, and more than a hundred shapes take 10 µs
def _has_shape(word: str) -> bool:
    return _SHAPE.search(word) is not None


def _word(match: re.Match[str], say: Say, random: bool) -> str:
    word = found = match.group()
    if _has_shape(word):
        found = _SHAPE.sub(lambda shape: say(shape.group(), SHAPED_DIGITS), word)
    if found != word or not random or len(word) < RANDOM_MIN:
        return found
    if _DIGEST.match(word) or _BEFORE_DIGEST.search(match.string, max(0, match.start() - 12), match.start()):
        return word
    if is_random(word):
        return say(word, SHAPED_DIGITS)
    return _PIECE.sub(
        lambda piece: say(piece.group(), SHAPED_DIGITS) if is_random(piece.group()) else piece.group(), word
    )


def is_random(word: str) -> bool:
    """Return whether a word is a long random one in base 62 or 64: upper and lower case and digits in short runs.

    Hex, base 32 and decimal digits do not count: most of them are hashes and ids.
    """
    if _KNOWN_IDS.match(word):
        return False
    if "%" in word:
        word = _ESCAPED.sub("", word)
    word = _LONG_HEX.sub("", word)
    if sum(map(word.count, "_-./")) * SEPARATED_MIN > len(word):
        return False
    chunks = _CHUNK.findall(word)
    size = sum(map(len, chunks))
    if size < RANDOM_MIN - 2 or size > len(chunks) * CHUNK_MAX:
        return False
    upper, lower = sum(map(str.isupper, word)), sum(map(str.islower, word))
    return upper > 2 and lower > 2 and (size > upper + lower or size <= len(chunks) * 2.2)
