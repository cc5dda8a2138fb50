"""How a rule finds a secret by what stands before it, and what is no secret after all."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Final, NamedTuple

SHAPED_DIGITS: Final = 12  # 48 bits tell random secrets apart and do not help to guess one
NAMED_DIGITS: Final = 4  # a password may be in a dictionary of millions: 16 bits tell two names apart, not more

Say = Callable[[str, int], str]


class SecretRule(NamedTuple):
    """A pattern whose group `s` is the secret; it runs on a text that has one of `hints`, and one of `also` if given.

    If `begins` is set, each match begins with one of these, so the pattern is tried only there: a search for a literal
    is a hundred times faster than one for many words in upper or lower case.
    """

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    doubtful: Callable[[re.Match[str], str], bool]
    digits: int = NAMED_DIGITS
    begins: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


def lower(text: str) -> str:
    """Return a text in lower case; a letter whose lower case is longer stays, so positions are the same."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


class Lowered:
    """A text in lower case, in which literals are searched once for all rules. Its positions are those of the text."""

    def __init__(self, text: str) -> None:
        self.text = lower(text)
        self._found: dict[str, list[int]] = {}

    def starts(self, literals: tuple[str, ...]) -> list[int]:
        """Return where these literals stand, in order; `A_KEY` is any name of a key."""
        found: set[int] = set()
        for literal in literals:
            if literal not in self._found:
                self._found[literal] = self._starts_of_keys() if literal == A_KEY else self._starts_of(literal)
            found.update(self._found[literal])
        return sorted(found)

    def _starts_of(self, literal: str) -> list[int]:
        found, at = [], self.text.find(literal)
        while at >= 0:
            found.append(at)
            at = self.text.find(literal, at + 1)
        return found

    def _starts_of_keys(self) -> list[int]:
        found = set()
        for end in (start + len("key") for start in self._starts_of("key")):
            found |= {name.start() for name in _KEY_NAME.finditer(self.text, max(0, end - KEY_NAME_MAX), end)}
        return sorted(found)


# A value in quotes, escaped or not, up to the same quote; else up to white space, a quote or the next `&name=`.
QUOTED: Final = r"(?P<e>\\{0,7})(?P<q>[\"'`])(?:(?!(?<!\\)(?P=e)(?P=q)).)+"
VALUE: Final = rf"(?P<s>{QUOTED}|(?:[^\s\"'`&\\]|&(?!\w{{1,40}}=)|\\(?![\"'nrt]))+)"
_OPENING: Final = re.compile(r"\\{0,7}[\"'`]")

HARMLESS: Final = re.compile(
    r"(?i)[\s({\[]*(?:<.*|\$.*|%.*%|\{\{?.*|[*.x…•-]+|\W+|none|null|nil|true|false|undefined|nan|yes|no|on|off|n/a|\(?got|str|string"
    r"|int|bytes|bool|optional.*|any|object|required|missing|invalid|incorrect|wrong|bad|expired|revoked|denied|empty"
    r"|unset|failed|failure|error|rejected|unauthori[sz]ed|not|must|is|are|was|were|has|had|have|can|cannot|could|should"
    r"|does|did|will|may|and|or|of|for|in|with|the|a|an|this|that|your|no|field|value|parameter|argument|header"
    r"|authentication|authorization|auth|basic|bearer|token|tokens|password|secret|too|at|used|using|provided|redacted"
    r"|\[redacted\]|os\.\w+.*|process\.env.*|env\..*|self\..*|config\..*|settings\..*|getenv.*|[\w.]+\(.*)"
    r"[)\]},.;:!?]*"
)
_SUFFIX: Final = re.compile(
    r"(?i)[_.-]?(?:ids?|names?|count|len|length|version|size|types?|files?|path|dir|ttl|expir\w*|url|uri|endpoint|policy|field"
    r"|arn|ref|enabled|required|limit|max|min|budget|usage|used|algorithm|age|stdin|format|hint|class|error|status)"
)
_SECRET_ID: Final = re.compile("(?i)secret[_-]?id")  # of Vault's AppRole: a secret itself
_PLAIN: Final = re.compile(r"[a-z]+|[A-Z]?[a-z]+(?:[ _-][a-z]+)*")


def value_of(text: str) -> str:
    opening = _OPENING.match(text)
    return text[opening.end() :] if opening else text


def never(_match: re.Match[str], value: str) -> bool:
    return not value.strip() or HARMLESS.fullmatch(value) is not None


def surely_named(match: re.Match[str], value: str) -> bool:
    """For passwords and keys: any value that is not a word of an error message or a number."""
    rest = match["rest"]
    if len(value) < 3 or HARMLESS.fullmatch(value) or (match[0][:4] == "PWD=" and value[0] in "/~"):
        return True
    return _SUFFIX.fullmatch(rest) is not None and _SECRET_ID.search(match[0]) is None


def loosely_named(match: re.Match[str], value: str) -> bool:
    """For tokens, signatures and sessions: `token: 'foo'` is a syntax error, and `max_tokens=4096` a limit."""
    if surely_named(match, value) or len(value) < 6 or value.rstrip(",;.)]}").isdecimal():
        return True
    is_field = match["s"] != value and match["close"] != ""  # a JSON field
    return not (is_field or any(map(str.isdecimal, value)) or len(value) >= 16) or bool(
        _PLAIN.fullmatch(value) and not (is_field and len(value) >= 16)
    )


def is_number(_match: re.Match[str], value: str) -> bool:
    return value.isdecimal() or HARMLESS.fullmatch(value) is not None


def needs_digit(_match: re.Match[str], value: str) -> bool:
    return (
        len(value) < 8
        or value.isdecimal()
        or not any(map(str.isdecimal, value))
        or HARMLESS.fullmatch(value) is not None
    )


def is_word(match: re.Match[str], value: str) -> bool:
    word = value.rstrip(".,:;!?)]}")
    return (word.isalpha() and (word.islower() or word.istitle())) or is_number(match, value)


KEYS: Final = (
    r"(?:api|access|private|account|master|encryption|decryption|signing|shared|subscription|licen[sc]e|auth|app|client"
    r"|service|storage|consumer|integration|deploy|functions?|webhook|session|ssh|admin|root|write|read|project|admin"
    r"|application|host|sas|aws|azure|gcp|openai|anthropic)[-_ ]?key(?!word|board|s?pace|stroke|frame)"
)
SURE: Final = rf"passw(?:or)?d|passphrase|passcode|passkey|pwd|secret|credential|{KEYS}|connection[-_ ]?string|psk"
LOOSE: Final = (
    r"(?<![a-z])pass(?![a-z])|token(?!i[sz])|jwt|signature|(?<![a-z])sig(?![a-z])|[cx]srf"
    r"|session(?:[-_]?(?:id|key|token))?|sess(?:id)?|(?<![a-z])sid(?![a-z])|hmac|(?<![a-z])auth(?![a-z])"
)
CLOSE: Final = r"(?P<close>\\{0,7}[\"'`]?\]?)\*{0,3}"
_GAP: Final = r"(?:\s{0,3}|[ \t]{0,24}|\s{0,24}(?=\\{0,7}[\"'`]))"  # only a quote or a block of YAML is far below
SEPARATOR: Final = (
    r"(?:\s{0,3}|[ \t]{0,24})(?:(?:=>|:=|={1,3})\s{0,24}|:(?!:)(?:\s{1,3}[|>][-+1-9]{0,2}\s{1,24}|\*{0,3}"
    rf"{_GAP})|\s(?:is|was|provided|given|used|set to)[:=]?(?=\s){_GAP})"
)
A_KEY: Final = "a key"  # among `begins`
KEY_NAME_MAX: Final = 20  # characters, with "key"
_KEY_NAME: Final = re.compile(KEYS)
_ASCII_LOWER: Final = {ord(letter): letter.lower() for letter in string.ascii_uppercase}
SURE_BEGINS: Final = (
    "passw",
    "passphrase",
    "passcode",
    "passkey",
    "pwd",
    "secret",
    "credential",
    "connection",
    "psk",
    A_KEY,
)
LOOSE_BEGINS: Final = ("pass", "token", "jwt", "sig", "csrf", "xsrf", "sess", "sid", "hmac", "auth")
SURE_HINTS: Final = ("pass", "pwd", "secret", "cred", "key", "connection", "psk")
LOOSE_HINTS: Final = ("token", "pass", "jwt", "sig", "srf", "sess", "sid", "hmac", "auth")


def rule(
    hints: tuple[str, ...],
    pattern: str,
    doubtful: Callable[[re.Match[str], str], bool] = never,
    digits: int = NAMED_DIGITS,
    begins: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> SecretRule:
    return SecretRule(hints, re.compile(f"(?ais){pattern}"), doubtful, digits, begins, also)
