"""Seeded malformed inputs: random bytes, and valid inputs with changed bytes, structure or text."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

DEEP: Final = 400
NASTY: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30,
    0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "r", "0", "-1", "NaN", "1e999", "\x00", "\ud800",
    "é\U0001f600", "x" * 300, "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "turn", "run.started",
    [], [[]], {}, {"": None}, [0] * 50, {"a": {"b": [1, {"c": "d"}]}},
)  # fmt: skip
TEXTS: Final = (
    b"1e99999", b"-", b"9" * 5_000, b"0.1e-9999", b"\\ud800", b"\\u0000", b"NaN", b"Infinity", b"[" * 5_000,
    b'{"a":' * 5_000, b"\xff", b"\x00", b"\xed\xa0\x80", b'"', b"\\", b"}", b"]", b",", b":", b"null",
    b"\xef\xbb\xbf", b"\n", b"\x1b[31m",
)  # fmt: skip


def inputs(
    rng: random.Random, samples: Sequence[bytes], count: int, *, msgpack: bool = False, restructured: bool = True
) -> Iterator[bytes]:
    """Yield `count` inputs derived from valid JSON or MessagePack. Not `restructured`: change only bytes."""
    for number in range(count):
        if number % 10 == 0:
            yield rng.randbytes(rng.randrange(64))
        else:
            sample, other = rng.choice(samples), rng.choice(samples)
            yield changed(rng, sample, other, msgpack=msgpack, restructured=restructured and number % 10 >= 4)


def changed(rng: random.Random, sample: bytes, other: bytes, *, msgpack: bool, restructured: bool) -> bytes:
    """Return the sample with a changed structure, else with changed bytes, some of them those of another sample."""
    return _restructured(rng, sample, msgpack=msgpack) if restructured else _with_changed_bytes(rng, sample, other)


def _with_changed_bytes(rng: random.Random, sample: bytes, other: bytes) -> bytes:
    """Return the sample with some bytes changed."""
    data = bytearray(sample)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(data) + 1)
        length = rng.randrange(1, 9)
        match rng.randrange(12):
            case 0:
                data[place:] = b""
            case 1:
                data[place : place + length] = b""
            case 2:
                data[place:place] = rng.randbytes(length)
            case 3:
                data[place:place] = rng.choice(TEXTS)
            case 4:
                data[place : place + length] = rng.choice(TEXTS)
            case 5:
                data[place:] = other[rng.randrange(len(other) + 1) :]
            case 6:
                data[place:place] = data[place : place + 40]
            case 7 | 8:
                data[place : place + length] = rng.randbytes(len(data[place : place + length]))
            case _:  # the same length, and another number
                data[place : place + 1] = bytes(
                    (one + rng.choice((-1, 1, 128, rng.randrange(256)))) % 256 for one in data[place : place + 1]
                )
    return bytes(data)


def _restructured(rng: random.Random, sample: bytes, *, msgpack: bool) -> bytes:
    """Return the sample with a changed structure."""
    try:
        value = msgspec.msgpack.decode(sample, strict=False) if msgpack else json.loads(sample)
    except (ValueError, msgspec.DecodeError):
        return sample
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _changed(rng, value)
    if msgpack:
        try:
            return msgspec.msgpack.encode(value)
        except (OverflowError, TypeError, ValueError, RecursionError):  # not encodable
            return sample[: rng.randrange(len(sample))]
    text = json.dumps(value)
    if isinstance(value, dict) and value and rng.random() < 0.1:  # a duplicate key
        twice = {rng.choice(list(value)): rng.choice(NASTY)}
        text = text[:-1] + ", " + json.dumps(twice)[1:]
    return text.encode()


def _changed(rng: random.Random, value: Any) -> Any:
    """Return the value with one part changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        match rng.randrange(12):
            case 0:
                return {name: one for name, one in value.items() if name != key}
            case 1:
                return {**value, rng.choice((str(key) + "x", "", "w", "type", "run_id", "at")): rng.choice(NASTY)}
            case _:
                return {**value, key: _changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        match rng.randrange(8):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return value[:place] + [value[place]] * rng.choice((2, 40)) + value[place:]
            case _:
                return [*value[:place], _changed(rng, value[place]), *value[place + 1 :]]
    if rng.random() < 0.02:
        nested: Any = value
        for _ in range(DEEP):
            nested = [nested] if rng.random() < 0.5 else {"a": nested}
        return nested
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.4:
        return value + rng.choice((-1, 1, 2**32, 2**53, -value - 1))
    return rng.choice(NASTY)
