"""The picture of a protected session shows what the recorded events of one get."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from streamproc.live.judge import Judge
from streamproc.live.sessions import CliSessions
from streamproc.live.store import LiveLog
from streamproc.policy import load_policy
from tests.docs.pages import ROOT

PICTURE = (ROOT / "docs" / "images" / "protect.svg").read_text(encoding="utf-8")
REDRAW = "run `.venv/bin/python -m docs.protect_picture`"


def drawn() -> str:
    texts = re.findall(r"<text [^>]*>(.*?)</text>", PICTURE)
    return re.sub(r"\s+", " ", " ".join(html.unescape(text) for text in texts).replace("\xa0", " "))


def test_it_is_small_and_loads_nothing() -> None:
    assert len(PICTURE) < 50_000
    assert not re.findall(r"url\(['\"]?http|href|<script", PICTURE)


def test_it_shows_the_halt_of_the_recorded_session(tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "live.db")
    sessions = CliSessions(Judge(load_policy("standard"), log))
    [recorded] = (ROOT / "tests" / "live" / "recorded").glob("claude-*-fails.jsonl")
    for line in recorded.read_text(encoding="utf-8").splitlines():
        sessions.answer("claude", json.loads(line))
    log.close()
    [session] = sessions.known.values()
    assert session.stopped is not None
    shown = drawn()
    assert f"{session.stopped.code}: {session.stopped.message}" in shown, REDRAW
    assert "; echo $? " in shown
    assert "in between. 75 " in shown, REDRAW
    assert "removed our hooks" in shown
