"""Secrets of many words: the mnemonic of a wallet, a pass phrase, recovery codes.

A word or a code of them alone looks like any other, so a list counts only behind a name of it, and as far as its items
look alike: words of three to nine letters, without the small words of English that no such list has, or codes with
digits or of parts that are as long as each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from streamproc.model.secret_rules import HARMLESS, NAMED_DIGITS, SHAPED_DIGITS, Lowered

ITEMS_MAX: Final = 60  # of a list; a mnemonic has 12 to 33 words, a sheet of codes 16 at most
GAP_MAX: Final = 12  # characters between two items: a number, a comma, quotes, a line's end
MNEMONIC_MIN: Final = 11  # one less than the least: a cut text may lack a part of the last
CUT_LIST_MIN: Final = 3
PASS_PHRASE_MIN: Final = 3
CODE_MIN: Final = 4
LETTERS_MIN: Final = 6  # of codes without a digit, three of which are as long as each other
LIST_MAX: Final = ITEMS_MAX * (GAP_MAX + 12)  # characters of a list

# None of these is in the word lists of wallets (BIP 39, SLIP 39, Electrum).
_SMALL_WORDS: Final = frozenset(
    (
        "the", "and", "for", "are", "was", "were", "but", "not", "had", "has", "its", "our", "with", "from", "been",
        "which", "these", "those", "their", "should", "would", "could", "does", "did",
    )
)  # fmt: skip
_BETWEEN: Final = re.compile(rf"(?:\d{{1,2}}[.):]|[^\w=#(/<>{{}}]){{0,{GAP_MAX}}}")  # two words of a list
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_CODE: Final = re.compile(r"(?a)[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*")
_NUMBER_OF_ITEM: Final = re.compile(r"\d{1,2}(?=[.):\]])")
_TOLD: Final = r"(?:[^\n:=]{0,60}?(?::(?!//)|=>?|->|\s(?:is|are|was|were)(?=\s)))?"


class ListRule(NamedTuple):
    """A name of a list, after which `read` says how many characters belong to the secret.

    It is searched in a text that has one of `hints`, where one of `begins` stands.
    """

    hints: tuple[str, ...]
    begins: tuple[str, ...]
    name: re.Pattern[str]
    read: Callable[[str], int]
    digits: int


def secret_lists(text: str, rule: ListRule, lowered: Lowered) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, digits of its number) of each list that the rule finds."""
    for start in lowered.starts(rule.begins):
        if match := rule.name.match(text, start):
            yield from _list_after(text, match, rule.read, rule.digits)


def _list_after(
    text: str, match: re.Match[str], read: Callable[[str], int], digits: int
) -> Iterator[tuple[int, int, int]]:
    for start in dict.fromkeys((match.end(), match.end("name"))):
        if size := read(text[start : start + LIST_MAX]):
            first = next(n for n in range(start, start + size) if text[n].isalnum())
            yield first, start + size, digits
            return


def _words(text: str, least: int) -> int:
    """Return where the words of a list end; 0 if there are too few. Of a text that was cut, a few are enough."""
    count = end = 0
    for word in _LETTERS.finditer(text):
        letters = word[0].lower()
        if not _BETWEEN.fullmatch(text, end, word.start()) or not 2 <= len(letters) <= 9 or letters in _SMALL_WORDS:
            break
        if letters.isascii() and len(letters) < 3:
            break
        count, end = count + 1, word.end()
        if count == ITEMS_MAX:
            break
    if count >= CUT_LIST_MIN and text[end:].strip() in ("…", "..."):
        return end
    return end if count >= least else 0


def _mnemonic(text: str) -> int:
    return _words(text, MNEMONIC_MIN)


def _pass_phrase(text: str) -> int:
    line = text.lstrip(" \t\"'").partition("\n")[0]
    first = _LETTERS.match(line)
    if first is None or HARMLESS.fullmatch(first[0]):
        return 0
    size = _words(line, PASS_PHRASE_MIN)
    return size and size + text.index(line)


def _codes(text: str) -> int:
    found: list[re.Match[str]] = []
    end = 0
    for code in _CODE.finditer(text):
        if code.start() - end > GAP_MAX or len(found) == ITEMS_MAX:
            break
        end = code.end()
        if not _NUMBER_OF_ITEM.match(text, code.start()):
            found.append(code)
    sure = {len(code[0]) for code in found if _is_code(code[0])}
    if not sure:
        alike = [code for code in found if len(code[0]) == len(found[0][0]) >= LETTERS_MIN]
        return alike[2].end() if len(alike) > 2 and alike[:3] == found[:3] else 0
    size = 0
    for code in found:
        if not _is_code(code[0]) and len(code[0]) not in sure:
            break
        size = code.end()
    return size


def _is_code(text: str) -> bool:
    parts = text.split("-")
    if len(text) < CODE_MIN:
        return False
    return any(map(str.isdecimal, text)) or (len(parts) > 1 and len(set(map(len, parts))) == 1 and len(parts[0]) > 2)


LISTS: Final = (
    ListRule(
        ("mnemonic", "seed", "phrase", "words"),
        ("mnemonic", "seed", "recovery", "secret", "backup", "wallet", "bip"),
        re.compile(
            r"(?i)(?P<name>(?<![a-z])(?:mnemonic|(?:seed|recovery|secret|backup|wallet|bip[- ]?39)[-_ ]?"
            rf"(?:recovery[-_ ]?)?(?:phrase|words?|seed|mnemonic)|seed)s?(?![a-z])){_TOLD}"
        ),
        _mnemonic,
        SHAPED_DIGITS,
    ),
    ListRule(
        ("phrase",),
        ("passphrase", "pass phrase", "pass-phrase", "pass_phrase"),
        re.compile(r"(?i)(?P<name>pass[-_ ]?phrase)\\{0,7}[\"']?\s{0,3}(?:[:=]|is(?=\s))"),
        _pass_phrase,
        NAMED_DIGITS,
    ),
    ListRule(
        ("code", "pass", "recovery", "pins"),
        ("recovery", "backup", "scratch", "emergency", "rescue", "one", "single", "2fa", "mfa", "two", "otp", "totp"),
        re.compile(
            r"(?i)(?P<name>(?<![a-z])(?:(?:recovery|backup|scratch|emergency|rescue|one[-_ ]time|single[-_ ]use|2fa|mfa"
            r"|two[-_ ]factor|t?otp)[-_ ]?(?:[a-z0-9]{1,14}[-_ ]){0,2}"
            r"(?:codes?|pass(?:code|word)s|pins)|recovery[-_ ]?keys?)"
            rf"(?![a-z])){_TOLD}"
        ),
        _codes,
        NAMED_DIGITS,
    ),
)  # fmt: skip
