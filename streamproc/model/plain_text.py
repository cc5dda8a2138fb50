"""Plain text: what a person reads in a text, without characters that hide it from a search.

A password in full-width letters (U+FF50 …), or with a zero-width space (U+200B) between its letters, looks to a reader
like the plain one. Redaction searches the plain form too; a text without secrets is sent as it is.

The plain form is that of NFKC (Unicode Standard Annex 15), without characters that are not displayed
(`Default_Ignorable_Code_Point`, control characters, sequences of a terminal), with ASCII digits and hyphens. Letters of
another script that only look the same, such as Cyrillic ones, stay what they are.
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


def plain(text: str) -> str:
    """Return the plain form of a text; the text itself if it is plain."""
    if text.isascii():  # nearly always: without a pattern, this is ten times as fast
        content = text.encode()
        if len(content.translate(None, _CONTROL_BYTES)) == len(content):
            return text
    elif _HIDING.search(text) is None:
        return text
    text = _UNSEEN.sub("", ANSI.sub("", text))
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))  # which makes ignorable letters of wide ones
    text = _ANY_HYPHEN.sub("-", text)
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)
