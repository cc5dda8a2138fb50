"""Masking: what may differ between two answers that say the same.

Masked: ANSI codes, timestamps, dates and clock times, UUIDs, long hex, memory addresses, temporary paths, durations,
process ids, white space. Kept: error codes, HTTP statuses, ports, line numbers, small counts.

Each pattern begins with a set of characters or a literal, because Python's `re` skips to those in C; a word
boundary in front would make it try every branch at every character (ten times slower on real tool output).
"""

from __future__ import annotations

import re
from typing import Final

END_MAX: Final = 65_536  # characters masked at each end of a text; what lies between is hashed as it is

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SPACE: Final = re.compile(r"\s+")

_CLOCK: Final = r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?(?:\s?[AaPp][Mm]\b)?"
_ZONE: Final = r"(?:\s?(?:Z\b|UTC\b|GMT\b|[+-]\d\d:?\d\d\b))?"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_UNIT: Final = r"(?:ns|us|µs|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b"

# `Sun Nov 9 07:10:55 2025`, `November 9, 2025`
_NAMED_DATE: Final = re.compile(
    rf"[JFMASONDTW](?<!\w[A-Z])(?:(?<=[MTWFS])(?:on|ue|ed|hu|ri|at|un)[a-z]*,?\s+{_MONTH}"
    r"|(?:an|eb|ar|pr|ay|un|ul|ug|ep|ct|ov|ec)[a-z]*)\.?"
    rf"\s+\d{{1,2}}\b(?:,?\s+\d{{4}})?(?:,?\s+{_CLOCK}{_ZONE})?(?:\s+\d{{4}}\b)?"
)
_PROCESS: Final = re.compile(r"[PpTt](?<!\w[PpTt])(?:id|ID|rocess|hread)[ =:#]+\d+")
_TEMPORARY: Final = re.compile(r"/(?:private/)?(?:tmp|var/tmp|var/folders|dev/shm)/[^\s'\"`:;,)>\]]+")

# Everything that begins with a digit, or with a hex letter, at the start of a word.
_NUMBER: Final = re.compile(
    r"[0-9a-fA-F](?<!\w[0-9a-fA-F])(?:"
    r"[0-9a-fA-F]{7}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|(?<=0)x[0-9a-fA-F]{6,}\b"
    r"|(?<=\d)(?:"
    rf"\d{{3}}[-/]\d\d[-/]\d\d(?:[T ,]+{_CLOCK}{_ZONE})?"
    rf"|\d?:\d\d:\d\d(?:[.,]\d+)?{_ZONE}"
    rf"|\d?[ -]{_MONTH}[ -]\d{{2,4}}(?:[ ,:]+{_CLOCK}{_ZONE})?"
    r"|(?<=1)[4-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b"
    rf"|\d*(?:\.\d+)?\s?{_UNIT}(?:\s?\d+(?:\.\d+)?\s?{_UNIT})*"
    r")"
    r"|[0-9a-fA-F]{11,}\b)"
)


def _number(match: re.Match[str]) -> str:
    text = match.group()
    if text.isalpha():
        return text  # a long word that happens to have the letters a to f only
    return "<…>"


def mask(text: str) -> str:
    """The text with all that varies by itself replaced by marks, and white space folded."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "/" in text:
        text = _TEMPORARY.sub("<tmp>", text)
    text = _NAMED_DATE.sub("<…>", text)
    text = _PROCESS.sub("<pid>", text)
    text = _NUMBER.sub(_number, text)
    return _SPACE.sub(" ", text).strip()


def mask_ends(text: str) -> tuple[str, str, str]:
    """For a very long text: its masked head, its middle as it is, its masked tail. Bounds the time it takes."""
    if len(text) <= 2 * END_MAX:
        return mask(text), "", ""
    return mask(text[:END_MAX]), text[END_MAX:-END_MAX], mask(text[-END_MAX:])


_SECRET: Final = re.compile(
    r"(?i)\b(?:sk|pk|ghp|gho|xox[abp]|AKIA|eyJ)[-_A-Za-z0-9.]{12,}"
    r"|(?:(?:api[-_ ]?key|token|secret|passw(?:or)?d|authorization|bearer)[\"']?\s*[:= ]\s*[\"']?)[^\s\"',;]{4,}"
    r"|[\w.+-]+@[\w-]+\.[\w.]+"
    r"|(?<=//)[^/\s:@]+:[^/\s@]+(?=@)"
)


def redact(text: str, limit: int = 120) -> str:
    """A short excerpt of an error that may leave the house: secrets, e-mail addresses and passwords are cut out."""
    folded = _SPACE.sub(" ", _ANSI.sub("", text[: limit * 8])).strip()
    folded = _SECRET.sub("<redacted>", folded)
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"
