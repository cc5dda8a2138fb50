"""Noise: variable parts of otherwise equal answers, in all masked forms, with fresh values each time."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def _moment(dice: random.Random) -> datetime:
    return _START + timedelta(milliseconds=dice.randrange(10**10))


def _iso(dice: random.Random, text: str) -> str:
    return f"[{_moment(dice).isoformat(timespec='milliseconds')}] {text}"


def _logged(dice: random.Random, text: str) -> str:
    return f"{_moment(dice):%Y-%m-%d %H:%M:%S},{dice.randrange(1000):03d} ERROR {text}"


def _clock(dice: random.Random, text: str) -> str:
    return f"{text} (at {_moment(dice):%H:%M:%S})"


def _uuid(dice: random.Random, text: str) -> str:
    return f"request {uuid.UUID(int=dice.getrandbits(128), version=4)}: {text}"


def _long_hex(dice: random.Random, text: str) -> str:
    return f"{text}\ndigest {dice.getrandbits(160):040x}"


def _address(dice: random.Random, text: str) -> str:
    return f"{text} <object at 0x{0x7F0000000000 + dice.getrandbits(36):x}>"


def _temporary(dice: random.Random, text: str) -> str:
    return f"{text}\nsee /tmp/run-{dice.getrandbits(32):08x}/out.log"


def _duration(dice: random.Random, text: str) -> str:
    return f"{text} in {dice.randrange(1, 600)}.{dice.randrange(100):02d}s"


def _process(dice: random.Random, text: str) -> str:
    return f"pid {dice.randrange(100, 60000)}: {text}"


def _coloured(dice: random.Random, text: str) -> str:
    return f"\x1b[38;5;{dice.randrange(256)}m{text}\x1b[0m"


def _spaced(dice: random.Random, text: str) -> str:
    return "".join(char * dice.randrange(1, 9) if char == " " else char for char in text) + "\n" * dice.randrange(9)


FORMS: Final[tuple[Callable[[random.Random, str], str], ...]] = (
    _iso, _logged, _clock, _uuid, _long_hex, _address, _temporary, _duration, _process, _coloured, _spaced,
)  # fmt: skip


class Noise:
    """One or two forms of noise, added to a text."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._forms = dice.sample(FORMS, dice.choice((1, 1, 2)))

    def __call__(self, text: str) -> str:
        """Return the text with fresh noise: different bytes every time, always the same meaning."""
        for form in self._forms:
            text = form(self._dice, text)
        return text
