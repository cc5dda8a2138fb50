"""Plain text: what a person reads in a text, without characters that hide it from a search.

A password in full-width letters (U+FF50 …), or with a zero-width space (U+200B) between its letters, looks to a reader
like the plain one. Redaction searches the plain form; a text without secrets is sent as it is.

The plain form is that of NFKC (Unicode Standard Annex 15), without characters that are not displayed
(`Default_Ignorable_Code_Point`, control characters, sequences of a terminal), with ASCII digits and hyphens. JSON,
`repr` and URLs write such characters as escapes, which are read as well. Letters of another script that only look the
same, such as Cyrillic ones, stay what they are.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

# White space stays, as does \x1c to \x1f, which Python counts as such.
_CONTROL: Final = r"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
_IGNORABLE: Final = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HYPHENS: Final = r"\u2010-\u2015\u2212\ufe58"
# What NFKC turns into ASCII; without "…" and "™", which are frequent and part of no secret.
_FOLDED: Final = (
    r"\u00a0\u00a8\u00aa\u00af\u00b2-\u00b4\u00b8-\u00ba\u00bc-\u00be\u0132\u0133\u0149\u017f\u01c4-\u01cc\u01f1-\u01f3"
    r"\u02b0-\u02b8\u02d8-\u02e3\u037a\u037e\u0384\u0385\u1680\u1d2c-\u1d6a\u1d78\u1d9b-\u1dbf\u1e9a\u1e9b\u1fbd-\u1fff"
    r"\u2000-\u200a\u2017\u2024\u2025\u202f\u2033-\u203e\u2047-\u2057\u205f\u2070-\u209c\u20a8\u2100-\u2121\u2123-\u2189"
    r"\u222c\u222d\u2260\u226e\u226f\u2460-\u24ea\u2a0c\u2a74-\u2a76\u2c7c\u2c7d\u3000\u309b\u309c\u3200-\u33ff"
    r"\ua69c\ua69d\ua770\ua7f1-\ua7f4\ua7f8\ua7f9\uab5c-\uab69\ufb00-\ufb06\ufb29\ufc5e-\ufc63\ufdfa\ufdfb\ufe10-\ufe19"
    r"\ufe30-\ufe6f\ufe70-\ufe7f\uff01-\uffee\U00010780-\U000107ba\U0001ccd6-\U0001ccf9\U0001d400-\U0001d7ff"
    r"\U0001e030-\U0001e06d\U0001f100-\U0001f251\U0001fbf0-\U0001fbf9"
)
_OTHER_DIGIT: Final = re.compile(r"[^\D0-9]")
_UNSEEN: Final = re.compile(f"[{_CONTROL}{_IGNORABLE}]+")
_ANY_HYPHEN: Final = re.compile(f"[{_HYPHENS}]")
_HIDING: Final = re.compile(f"[^\\D0-9]|[{_CONTROL}{_IGNORABLE}{_HYPHENS}{_FOLDED}]")
_CONTROL_BYTES: Final = bytes(
    code for code in range(128) if (code < 0x1C and chr(code) not in "\t\n\v\f\r") or code == 0x7F
)

# Escapes, within up to three texts that are escaped themselves: ``%E2``, ``%25E2``, ``\u200b``, ``\\u200b``. Patterns
# that begin with a literal are found ten times as fast.
_PERCENT: Final = r"%(?:25){0,3}"
_SLASHES: Final = r"\\\\{0,14}"
_COLOUR: Final = re.compile(
    rf"(?:{_SLASHES}(?:u00|x)|{_PERCENT})1[bB](?:\[|{_PERCENT}5[bB])(?:[0-9;]|{_PERCENT}3[bB]){{0,20}}m"
)
_PERCENT_BYTES: Final = re.compile(rf"{_PERCENT}[89A-Fa-f][0-9A-Fa-f](?:{_PERCENT}[89A-Fa-f][0-9A-Fa-f])*")
_NOT_ASCII: Final = re.compile(
    rf"{_SLASHES}(?:u(?!00[0-7])[0-9A-Fa-f]{{4}}(?:{_SLASHES}u(?!00[0-7])[0-9A-Fa-f]{{4}})*"
    rf"|x[89A-Fa-f][0-9A-Fa-f](?:{_SLASHES}x[89A-Fa-f][0-9A-Fa-f])*|U000[1eE][0-9A-Fa-f]{{4}})"
)
_CODE: Final = re.compile(rf"(?:{_PERCENT}|\\[xuU])([0-9A-Fa-f]+)")
_ASCII: Final = re.compile(rf"(?:{_PERCENT}|{_SLASHES}(?:x|u00))([2-7][0-9A-Fa-f]|0[9aAdD])")
_FORM: Final = re.compile(r"[?&][\w.~%-]{1,64}=[^\s&\"'`<>#+]{0,256}\+[^\s&\"'`<>#]*")


def plain(text: str) -> str:
    """Return the plain form of a text; the text itself if it is plain."""
    percent, slashes = "%" in text, "\\u" in text or "\\x" in text or "\\U" in text
    if (percent or slashes) and ("1b" in text or "1B" in text):
        text = _COLOUR.sub("", text)
    if percent:
        text = _PERCENT_BYTES.sub(_character, text)
    if slashes:
        text = _NOT_ASCII.sub(_character, text)
    if text.isascii():  # nearly always: without a pattern, this is ten times as fast
        content = text.encode()
        if len(content.translate(None, _CONTROL_BYTES)) == len(content):
            return text
    elif _HIDING.search("".join(set(text))) is None:
        return text
    text = _UNSEEN.sub("", ANSI.sub("", text))
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))  # which makes ignorable letters of wide ones
    text = _ANY_HYPHEN.sub("-", text)
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)


def unescaped(text: str) -> str:
    """Return a text without escapes of ASCII and, in the query of a URL, without a plus for a space."""
    if "+" in text and ("?" in text or "&" in text):
        text = _FORM.sub(lambda field: field[0].replace("+", " "), text)
    if "%" in text or "\\u" in text or "\\x" in text:
        text = _ASCII.sub(lambda escape: chr(int(escape[1], 16)), text)
    return text


def _character(match: re.Match[str]) -> str:
    """Return the text that a row of escapes stands for; the row itself if its bytes are no text."""
    code = bytes.fromhex("".join(_CODE.findall(match[0])))
    kind = match[0].lstrip("\\")[0]
    if kind == "u":
        return code.decode("utf-16-be", "surrogatepass")
    if kind == "U":
        return code.decode("utf-32-be")
    try:
        text = code.decode()
        return match[0] if text.isspace() else text  # an escaped space is a part of a value, and does not end it
    except UnicodeDecodeError:
        return code.decode("latin-1") if kind == "x" and min(code) >= 0xA0 else match[0]
