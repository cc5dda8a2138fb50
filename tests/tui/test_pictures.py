"""The pictures in docs/watching.md: small, self-contained, and what the screens show now."""

from __future__ import annotations

import html
import re

import pytest

from docs import tui_picture


def committed(name: str) -> str:
    """Return a picture as the page shows it."""
    return (tui_picture.IMAGES / f"{name}.svg").read_text(encoding="utf-8")


def words(picture: str) -> list[str]:
    """Return the texts of a picture; lines that are drawn in several pieces, in their order."""
    texts = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    return " ".join(html.unescape(text).replace("\xa0", " ") for text in texts).split()


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen shows the reader's time."""
    monkeypatch.setenv("TZ", "UTC")
    tui_picture.time.tzset()


async def test_the_pictures_show_what_the_screens_show(in_utc: None) -> None:
    for name, picture in (await tui_picture.drawn()).items():
        drawn = committed(name)
        assert words(drawn) == words(picture), "run `.venv/bin/python docs/tui_picture.py`"
        assert len(drawn) < 200_000
        assert not re.findall(r"url\(['\"]?http|href|@font-face|<script", drawn)
