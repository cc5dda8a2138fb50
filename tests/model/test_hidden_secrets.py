"""No secret survives, however it is written and whatever surrounds it: shapes, disguises and surroundings by chance."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from urllib.parse import unquote, unquote_plus

import pytest

from streamproc.model.plain_text import plain
from streamproc.model.redaction import redact, redact_name, redact_text
from tests.model.hidden_secrets import DISGUISES, NAMED_SURROUNDINGS, SURROUNDINGS, Hidden, hidden

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

TRIES = 24  # of each shape
PART = 8  # characters: a rest of a secret that is as long is a leak
WHOLE = 20_000
ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2}))")


def readings(shown: str) -> Iterator[str]:
    """Yield what a person or a program reads in a text."""
    unescaped = ESCAPE.sub(lambda escape: chr(int(escape[escape.lastindex or 0], 16)), shown)
    unescaped = unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for reading in (shown, unescaped, unquote_plus(shown), unquote(unquote(shown))):
        yield plain(reading).casefold()
    try:
        yield plain(unescaped.encode("latin-1").decode()).casefold()
    except UnicodeError:
        return


def survives(secret: str, shown: str) -> bool:
    plainly = plain(secret).casefold()
    size = min(PART, len(plainly))
    parts = [plainly[n : n + size] for n in range(len(plainly) - size + 1)]
    return any(part in reading for reading in set(readings(shown)) for part in parts)


def cases(seed: int) -> list[Hidden]:
    chance = random.Random(seed)
    return [hide(chance) for hide in hidden() for _ in range(TRIES)]


@pytest.mark.parametrize("seed", range(2))
def test_no_hidden_secret_survives(seed: int) -> None:
    found = cases(seed)
    assert [one for one in found if survives(one.secret, redact_text(one.text, WHOLE))] == []
    assert [one for one in found[:: TRIES // 4] if survives(one.secret, redact(one.text, WHOLE))] == []
    assert [one for one in found[:: TRIES // 4] if survives(one.secret, redact_name(one.text))] == []


def test_every_disguise_and_surrounding_is_tried() -> None:
    found = cases(0)
    assert {one.disguise.rpartition(", ")[0] for one in found} == set(DISGUISES)
    assert {one.surrounding.rpartition(", ")[0] for one in found} == {*SURROUNDINGS, *NAMED_SURROUNDINGS}


@pytest.mark.parametrize("text", [
    r"b'\x89PNG\x1a\x00aB3\x00dE5\x01fGh7\x02iJk9\x03lMn2\x04oPq4'",
    r'{"title": "Caf\u00e9 \u2013 men\u00fc", "id": "5f2d9c7a1b3e4d6f8a0c2e4b6d8f0a1c3e5b7d9f"}',
    "https://de.wikipedia.org/wiki/Zw%C3%B6lf?search=a+b+c&title=Spezial%3ASuche", "| token | string | required |",
    "| password | varchar(255) | not null |", "ls | grep token | wc -l | sort", 'os.environ.get("API_KEY", "default")',
    "except NoCredentialsError:\n        print('no file')", "if not password:\n        return None",
    "C:\\x64\\bin\\uninstall.exe", "the price — 5½ € — is 100 % correct ™",
])  # fmt: skip
def test_what_looks_alike_stays(text: str) -> None:
    assert redact_text(text) == text
    assert redact_name(text) == text


def test_what_is_no_secret_stays_as_it_is_written() -> None:
    assert redact_text("café — ½ password: Kq7hunter2x") == "café — ½ password: <redacted>"
    assert redact_text("a%20b\nq=password%3DKq7hunter2x") == "a%20b\nq=password=<redacted>"
