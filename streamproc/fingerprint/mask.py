"""Masking: remove the parts that may differ between two otherwise equal answers.

Masked: ANSI codes, timestamps and clock times with seconds, UUIDs, long hex, ids of eight hex digits, prefixed random
ids, memory addresses, random names below temporary folders, durations, process ids, white space, and what a harness
adds around an answer: ids of chunks, counts of tokens, the line of a shell's own input. Kept: error codes, HTTP
statuses, ports, lines of files, counts, measured values, and dates without a time, which are the same all day: another
one is another subject. In a text that an agent has chosen the words of, a whole number of seconds or minutes is kept,
too: a limit or a slot, where a program's answer has what it measured. In a file or a patch, ids and numbers in hex are
kept: they are its content, such as the revision of a package or a bit mask.

Each pattern starts with a set of characters or a literal, because Python's `re` skips to those in C. A leading word
boundary would make it try every branch at every character (ten times slower on real tool output).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Final

END_MAX: Final = 65_536  # characters masked at each end of a text; the middle is hashed unmasked
ID_LENGTH: Final = 8  # hex digits of a short id: the first group of a UUID, or 32 random bits

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

_CLOCK: Final = r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?(?:\s?[AaPp][Mm]\b)?"
_ZONE: Final = r"(?:\s?(?:Z\b|UTC\b|GMT\b|[+-]\d\d:?\d\d\b))?"
_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\b"
)
_UNIT: Final = r"(?:ns|us|µs|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b"

# `Sun Nov 9 07:10:55 2025`, `November 9, 2025 7:10 AM`. Whole names only: `Section 9`, `Maybe 9` and `Day 9` count.
_NAMED_DATE: Final = re.compile(
    r"[JFMASONDTW](?<![A-Za-z0-9][JFMASONDTW])(?:"
    r"(?:(?<=M)on|(?<=T)(?:ues?|hu(?:rs)?)|(?<=W)ed(?:nes)?|(?<=F)ri|(?<=S)(?:at(?:ur)?|un))(?:day)?"
    rf",?\s+{_MONTH}"
    r"|(?:(?<=J)(?:an(?:uary)?|une?|uly?)|(?<=F)eb(?:ruary)?|(?<=M)(?:ar(?:ch)?|ay)|(?<=A)(?:pr(?:il)?|ug(?:ust)?)"
    r"|(?<=S)ept?(?:ember)?|(?<=O)ct(?:ober)?|(?<=N)ov(?:ember)?|(?<=D)ec(?:ember)?)\b)"
    rf"\.?\s+\d{{1,2}}\b(?:,?\s+\d{{4}})?,?\s+{_CLOCK}{_ZONE}(?:\s+\d{{4}}\b)?"
)
_PROCESS: Final = re.compile(r"[PpTt](?<!\w[PpTt])(?:(?:id|ID)[ =:#]+\d+|(?:rocess|hread)[ =:#-]+\d{3,})")
_TEMPORARY: Final = re.compile(r"/(?<![\w.~-]/)(?:private/)?(?:tmp|var/tmp|var/folders|dev/shm)/[^\s'\"`:;,)>\]]+")
# A part of such a path that a program has made up: `tmpab12`, `pytest-7`, `run1a`, `out-1234.log`, `jest-aBcDeF`. Parts
# that a person has named stay: `/tmp/input.csv`, `/tmp/step2.py`.
_MADE_UP: Final = re.compile(
    r"tmp.|pytest-|[^0-9]*[0-9](?:[^0-9]*[0-9]){2}|.*[0-9][A-Za-z]"
    r"|.*[._-](?:[a-f]{6,}|(?=[A-Za-z0-9]*[a-z])(?=[A-Za-z0-9]+[A-Z])[A-Za-z0-9]{6,})\Z",
    re.DOTALL,
)
# `req_011CSHoEeqs5C35K2UU1BMFE`, `chatcmpl-9qZ…`: keep the name, mask the random part.
_TOKEN: Final = re.compile(r"[_-](?=[A-Za-z]{0,20}\d)(?=\d{0,20}[A-Za-z])[A-Za-z0-9]{20,}\b")

# `"durationMs":93` in JSON, also in JSON inside a string, where quotes are escaped. A setting is no measurement.
# The set before the quote holds the last letters of the keys.
_JSON_NUMBER: Final = re.compile(r'":(?<=[sdnk\\]":)( ?)\d+(?:\.\d+)?(?:[eE][+-]?\d+)?')
_TIME_KEY: Final = re.compile(r"(?:_ms|[a-z]Ms|_seconds|[a-z]Seconds|\b(?:elapsed|duration|took))\\?\Z")
_SETTING: Final = re.compile(r"(?i:timeout|interval|delay|ttl)")
KEY_MAX: Final = 24  # characters of a key that are looked at
# `Chunk ID: 3f2a1b`. Other ids that are short, in capitals or only digits are names of things, such as `Room ID: B204`,
# and the id of a commit says which commit it is.
_SHORT_ID: Final = re.compile(
    r"ID: (?:(?<!ommit ID: )(?=[a-f]{0,6}\d)(?=\d{0,6}[a-f])[\da-f]{6,7}\b"
    r"|(?<=Chunk ID: )[\da-f]{6}(?=\s{1,2}Wall time: ))"
)
_TOKEN_COUNT: Final = re.compile(r"Original token count: \d+")
# `bash: line 36191:` is a line of a shell's own input; `build.sh: line 7:` is a line of a file.
_SHELL_LINE: Final = re.compile(
    r"sh: line (?:(?<![\w.]sh: line )|(?<=[bd]ash: line )(?<![\w.][bd]ash: line )"
    r"|(?<=[kz]sh: line )(?<![\w.][kz]sh: line ))\d+(?=:)"
)

# Everything that starts with a digit, or with a hex letter, at the start of a word.
_NUMBER: Final = re.compile(
    r"[0-9a-fA-F](?<![A-Za-z0-9][0-9a-fA-F])(?:"
    r"[0-9a-fA-F]{7}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|(?<=0)x[0-9a-fA-F]{6,}\b"
    r"|(?<=\d)(?:"
    rf"\d{{3}}[-/]\d\d[-/]\d\d[T ,]+{_CLOCK}{_ZONE}"
    rf"|\d?:\d\d(?::\d\d(?:[.,]\d+)?(?:\s?[AaPp][Mm]\b)?{_ZONE}|\s?[AaPp][Mm]\b)"
    rf"|\d?[ /-]{_MONTH}[ /-]\d{{2,4}}[ ,:]+{_CLOCK}{_ZONE}"
    rf"|\d?/\d\d?/(?:19|20)\d\d\b[ ,]+{_CLOCK}{_ZONE}"
    r"|\d{7}[T_-]\d{6}(?:\.\d+)?Z?\b"
    r"|(?<=1)[4-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b"
    r"|\d*(?:h(?:\d+m)?|m)\d+(?:\.\d+)?s\b|\d*h\d+m\b"
    rf"|\d*(?:\.\d+)?\s?{_UNIT}(?:\s?\d+(?:\.\d+)?\s?{_UNIT})*"
    r")"
    r"|[0-9a-fA-F]{7}(?:[0-9a-fA-F]{4,})?\b)"
)
_IDENTIFIES: Final = re.compile(r"(?=[0-9-]*[A-Fa-fx])[0-9A-Fa-fx-]+\Z")  # of these matches, an id or a number in hex
_DECIMALS: Final = re.compile(r"\d+(?:[eE]\d*)?\Z")


def _number(match: re.Match[str]) -> str:
    text = match.group()
    if text.isalpha():
        return text  # a long word that happens to use only the letters a to f
    start = match.start()
    if start > 1 and match.string[start - 1] == "." and match.string[start - 2].isdecimal() and _DECIMALS.match(text):
        return text  # the decimals of a measured number, such as a loss
    if len(text) == ID_LENGTH and text.isalnum() and (not text.islower() or match.string[start - 1 : start] == "#"):
        return text  # a count, a check sum in capitals, or a colour
    return "<…>"


def _chosen(match: re.Match[str]) -> bool:
    """Return whether this is a whole or a quoted duration that nothing says was measured, as `(5s)`, `in 5s`."""
    text, before = match.group(), match.start()
    if not any(letter in text for letter in "smh") or ":" in text:
        return False
    if "." in text:
        return match.string.endswith(('"', "'", "["), 0, before)
    return not match.string.endswith(("(", "in ", "took "), 0, before)


def _number_of_choice(match: re.Match[str]) -> str:
    return match.group() if _chosen(match) else _number(match)


def _number_of_artifact(match: re.Match[str]) -> str:
    return match.group() if _IDENTIFIES.match(match.group()) else _number_of_choice(match)


def _names(match: re.Match[str]) -> str:
    """Return a temporary path with the parts masked that are made up each time."""
    return "/".join("<…>" if _MADE_UP.match(part) else part for part in match.group().split("/"))


def _json_number(match: re.Match[str]) -> str:
    start = match.start()
    key = match.string[max(0, start - KEY_MAX) : start].rpartition('"')[2]
    if _TIME_KEY.search(key) is None or _SETTING.search(key) is not None:
        return match.group()
    return f'":{match[1]}…'


HARNESS: Final = ("ID: ", "Original token count: ", "sh: line ")  # what the patterns of a harness start with


def without_harness(text: str) -> str:
    """Return the text with what a harness adds around an answer masked."""
    if "ID: " in text:
        text = _SHORT_ID.sub("ID: …", text)
    if "Original token count: " in text:
        text = _TOKEN_COUNT.sub("Original token count: …", text)
    if "sh: line " in text:
        text = _SHELL_LINE.sub("sh: line …", text)
    return text


def _mask(text: str, *, produced: bool = False, artifact: bool = False) -> str:
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "/" in text:
        text = _TEMPORARY.sub(_names, text)
    if '":' in text:
        text = _JSON_NUMBER.sub(_json_number, text)  # one character: no mask is longer than what it hides
    text = without_harness(text)
    text = _NAMED_DATE.sub("<…>", text)
    text = _PROCESS.sub("<pid>", text)
    text = _TOKEN.sub("_<…>", text)
    text = _NUMBER.sub(_number_of_artifact if artifact else _number_of_choice if produced else _number, text)
    return " ".join(text.split())


SEARCHED: Final = (
    ("ansi", _ANSI.pattern), ("temporary", _TEMPORARY.pattern), ("json", _JSON_NUMBER.pattern),
    ("date", _NAMED_DATE.pattern), ("process", _PROCESS.pattern), ("token", _TOKEN.pattern),
    ("number", _NUMBER.pattern),
)  # fmt: skip
"""The patterns of which `tables` makes automata, in their order."""
ASKED: Final = (
    ("time_key", rf"[\s\S]*?{_TIME_KEY.pattern}"),
    ("setting", rf"[\s\S]*?{_SETTING.pattern}"),
    ("decimals", _DECIMALS.pattern),
)
"""And those of which only one answer counts: whether they are found."""


def _compiled() -> ModuleType | None:
    try:
        return import_module("streamproc.fingerprint.scan")
    except ModuleNotFoundError:
        return None


scan: Final = _compiled()
"""`scan.pyx`, where it was compiled: it runs automata of these patterns, and does all that follows from the masks."""
mask: Final[Callable[..., str]] = _mask if scan is None else scan.mask
"""Return the text with all variable parts replaced by placeholders and white space folded; `produced` says that an
agent has chosen its words, `artifact` that it is a file or a patch as well."""


def mask_ends(text: str, **how: bool) -> tuple[str, str, str]:
    """Return the masked head, unmasked middle and masked tail of a very long text, which bounds the time."""
    if len(text) <= 2 * END_MAX:
        return mask(text, **how), "", ""
    head, tail = (mask(end, **how) for end in (text[:END_MAX], text[-END_MAX:]))
    return head, text[END_MAX:-END_MAX], tail
