"""Texts for the masks: of the samples, of fragments that patterns are made of, mutated, and hard ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Final

from streamproc.fingerprint.hash import canonical
from streamproc.fingerprint.mask import END_MAX
from streamproc.model.raw_events import RawTurn
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file

FRAGMENTS: Final = (
    "Mon", "Tues", "Thurs", "Wednesday", "Sat", "Jan", "January", "Feb", "May", "Sept", "December", " ", "  ", "\t",
    "\n", ",", ".", ":", "-", "/", "_", "T", "Z", "UTC", "+01:00", "-0500", "AM", "pm", "1", "9", "12",
    "123", "2025", "1999",
    "20251109", "101112", "1750000000", "1750000000123", "0x", "deadbeef", "abcdefabcdef", "0a1b2c3d4e5f6",
    "12345678-1234-1234-1234-123456789abc", "h", "m", "s", "ms", "µs", "sec", "seconds", "min", "hours", "pid", "PID",
    "tid", "process", "Thread", "=", "#", "/tmp/", "/var/tmp/", "/private/tmp/", "/dev/shm/x", "\x1b[31m",
    "/tmp/tmpab12/", "tmp", "pytest-7", "run1a/", "/tmp/jest-aBcDeF", "-GhIjKl", "/a.py", "(5s)", " in 5s",
    "took 12 ms", "Nov 9 07:10", "Sat Jan 31 12:00:00 2026", "9 Nov 2025 10:11:12", " 10:11:12", "2025-11-09",
    "\x1b]0;t\x07",
    "\x1b", "req_011CSHoEeqs5C35K2UU1BMFE", "chatcmpl-9qZabcdefghijklmnop12", "x", "(", ")", "'", "<", ">", "~", "Z9",
    # what a harness adds
    "ID: ", "Chunk ID: ", "3f2a1b", "b7c3f0a", "\nWall time: ", "Original token count: ", "sh: line ", "bash: line 12:",
    "zsh", "build.", "commit ", '"', '":', '"durationMs":', '"elapsed": ', '"took":1', '"x_ms":', '"timeout_ms":', "\\",
    "1e-05", "0.", "12345678", "1A2B3C4D", "1a2b3c4d", "#1a2b3cff",
    # subjects and words
    "Foo", ", ", "[x]", "✓", "✅", "@", "views.py", "and so on it goes ",
    # beyond ASCII: digits, letters, marks, spaces, letters that (?i) folds, halves of surrogate pairs
    "é", "中", "…", "\u00a0", "\u200b", "\x1c", "\x85", "\u2028", "\u3000", "া", "١٢", "①", "²", "\u200d", "\ud800",
    "\udfff", "\0", "ß", "İ", "\u0131", "\u017f", "\u212a", "\ufb01", "\U0001d7d9", "\U0001f600",
)  # fmt: skip

HARD: Final = (
    "1", "f", "1:", "a1", "1m", "1s ", "1s 1", "1 ", " ", "Mon ", "Mon,  Jan. ", "Jan 1, ", "Jan" + " " * 97, "_",
    "_1a",     "-" + "1" * 20, "\x1b[", "\x1b]", "\x1b]" + "a" * 14, "/tmp/", "/tmp/-_", "/", "pid ",
    "pid" + "=" * 97, "1.",
    "1:11:11 ", "2025-11-09" + "," * 90, "9 Nov 2025" + "," * 90, "1.1 s 1.1 ", "1m1s pid ", "1 h 1 ", '":1', '_ms":1',
    '":', "ID: 1a", "ID: ", "Chunk ID: 12345", "bash: line 1", "sh: line ", "1a2b3c4", "ab-", "é", "\u00a0", "…", "[x]",
    "✓", "A ", "\ud800", "\U0001d7d9",
    "\x1b[31mSun Nov 9 07:10:55 2025 pid 123 /tmp/x ",
)  # fmt: skip
"""Texts that are hard if they are repeated: many starts, long tails that fail."""


@cache
def sample_texts() -> tuple[str, ...]:
    """Return every text of the sample turns, once."""
    found: dict[str, None] = {}
    with trajectory_file() as path:
        for line in Source(path):
            if isinstance(line.raw, RawTurn):
                values = [line.raw.output, *(call.result for call in line.raw.tool_calls)]
                found |= dict.fromkeys(canonical(value) for value in values if value)
    return tuple(found)


def hard_texts(size: int) -> Iterator[str]:
    for part in HARD:
        yield (part * (size // len(part) + 1))[:size]


def long_texts() -> Iterator[str]:
    """Yield texts that end at the limits of what is masked and compared."""
    for length in (199, 200, 1_499, 1_500, 11_999, 12_000, 12_001, END_MAX, 2 * END_MAX, 2 * END_MAX + 1):
        for part in ("word é 12:00 pid 7 … ", "1s,", "\ud800x ", "\U0001f600 a b"):
            yield (part * (length // len(part) + 1))[:length]


def mutated_texts(seed: int, count: int) -> Iterator[str]:
    """Yield fragments put together, and pieces of the samples with fragments put in."""
    dice = random.Random(seed)
    samples = sample_texts()
    for number in range(count):
        if number % 2:
            text = dice.choice(samples)
            start = dice.randrange(len(text))
            text = text[start : start + dice.choice((80, 300, 2_000))]
            for _ in range(dice.randrange(1, 5)):
                place = dice.randrange(len(text) + 1)
                text = text[:place] + dice.choice(FRAGMENTS) + text[place + dice.randrange(3) :]
            yield text
        else:
            between = dice.choice(("", "", " "))
            yield between.join(dice.choices(FRAGMENTS, k=dice.choice((6, 14, 24, 200 if number % 40 == 0 else 3))))
