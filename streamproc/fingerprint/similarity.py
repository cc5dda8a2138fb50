"""SimHash (Charikar 2002): 64 bits that differ little between similar texts.

The 64 bit counters are packed into one big integer, so adding a feature is one addition.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise, repeat
from struct import Struct
from typing import Final

import xxhash

from streamproc.fingerprint.keyed import HashKey

SIZE_MIN: Final = 200  # characters; shorter texts also use single words, and may differ in more bits
WORD_BITS: Final = 58  # of a `word_set`
WORDS_MIN: Final = 4  # shorter texts are equal or different, never similar
PAGE_MIN: Final = 1_500  # characters; in longer texts one number more or less means little
FEATURES_MAX: Final = 128  # a sample is enough, and bounds the time
END_MAX: Final = 6_000  # characters looked at, at each end: hashing all word pairs of 24 000 would take 5 ms

_WORD: Final = re.compile(r"\w+")
# Where the rest of a word has neither digit nor sign, none of its parts has: it is searched once, from its start.
_SUBJECT: Final = re.compile(r"\[[xX]\]|[✓✔☑✅]|(?<![^\s\]✓✔☑✅])(?:\S*\d\S*|\S*\w[._/@:#-]\w\S*)|(?<=[\w,] )[A-Z]\w+")
_COUNTER_BITS: Final = 16  # enough for 65 535 features
_COUNTS: Final = Struct("<64H")
_SPREAD: Final = tuple(
    sum(1 << (_COUNTER_BITS * bit) for bit in range(8) if byte >> bit & 1) for byte in range(256)
)  # fmt: skip


def simhash(text: str, key: HashKey | None = None) -> int:
    """Return the SimHash of a text's word pairs, hashed under the key if there is one; 0 if it is too short."""
    if len(text) < SIZE_MIN:
        return 0
    words = _WORD.findall(text if len(text) <= 2 * END_MAX else text[:END_MAX] + text[-END_MAX:])
    digest = xxhash.xxh3_64_intdigest
    features = [digest(f"{a} {b}".encode("utf-8", "surrogatepass")) for a, b in pairwise(words)]
    if len(features) > FEATURES_MAX:
        # Sample by hash, not by position: an extra word at the start must not change the whole sample.
        rare = (1 << (len(features) // FEATURES_MAX).bit_length()) - 1
        features = [feature for feature in features if not feature >> 7 & rare] or features[:FEATURES_MAX]
    return voted(features, key)


def short_simhash(text: str, key: HashKey | None = None) -> int:
    """Return the SimHash of a short text's words and word pairs; 0 for a few words, and for a long text."""
    if len(text) >= SIZE_MIN:
        return 0
    words = _WORD.findall(text.lower())
    if len(words) < WORDS_MIN:
        return 0
    parts = words + [f"{a} {b}" for a, b in pairwise(words)]
    return voted([xxhash.xxh3_64_intdigest(part.encode("utf-8", "surrogatepass")) for part in parts], key)


def word_set(words: list[str], key: HashKey | None = None) -> int:
    """Return a set of a few words as a number: how many they are in the six highest bits, and below them three bits for
    each. A set with one word more has these bits and at most three others."""
    found = len(words) << WORD_BITS
    for word in words:
        bits = xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))
        bits = bits if key is None else key(bits)
        for _ in range(3):
            bits, bit = divmod(bits, WORD_BITS)
            found |= 1 << bit
    return found


def subjects(text: str) -> int:
    """Return a 32-bit hash of a text's subjects: words with a digit or a sign inside, names, and ticked items.

    A counter that rises is progress, and "views.py is fine" is said of many files in almost the same words. 0 if the
    text names no subjects, or is a page long.
    """
    if len(text) >= PAGE_MIN:
        return 0
    about = " ".join(_SUBJECT.findall(text))
    return xxhash.xxh3_64_intdigest(about.encode("utf-8", "surrogatepass")) & 0xFFFFFFFF if about else 0


def voted(features: list[int], key: HashKey | None) -> int:
    """Return the bits that most features have."""
    if not features:
        return 0
    half, value = len(features) / 2, 0
    spread = map(_spread, features) if key is None else map(_keyed_spread, features, repeat(key))
    for bit, count in enumerate(_COUNTS.unpack(sum(spread).to_bytes(_COUNTS.size, "little"))):
        if count > half:
            value |= 1 << bit
    return value


@lru_cache(maxsize=8_192)  # agents use the same words again and again; 2 MB at most
def _spread(feature: int) -> int:
    """Return a feature's 64 bits, each in a counter of its own."""
    return sum(_SPREAD[byte] << (place * 8 * _COUNTER_BITS) for place, byte in enumerate(feature.to_bytes(8, "little")))


@lru_cache(maxsize=8_192)
def _keyed_spread(feature: int, key: HashKey) -> int:
    """Return the same of a feature's keyed hash, which is most of the work."""
    return _spread(key(feature))
