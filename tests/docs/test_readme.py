"""The README: short, with a picture and figures that are those of their sources."""

from __future__ import annotations

import html
import re

import pytest

from docs import generate
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURE = ROOT / "docs" / "images" / "demo.svg"
REDRAW = "run `.venv/bin/python docs/picture.py`"


def test_it_is_short() -> None:
    assert README.count("\n") <= 130


def test_its_figures_are_cells_of_the_tables() -> None:
    shown = re.findall(r"^\| (.+) \| (.+) \| `make (\w+)`, ", README, re.MULTILINE)
    assert len(shown) == len(generate.HEADLINES) == 5

    for headline, (what, figure, command) in zip(generate.HEADLINES, shown, strict=True):
        table = generate.TABLES[headline.page].read_text(encoding="utf-8").splitlines()
        rows = [{cell.strip() for cell in line.split(" | ")} for line in table if line.startswith("| ")]
        found = re.fullmatch("(.+)".join(map(re.escape, re.split("<.+?>", headline.figure))), figure)
        assert found is not None
        assert what == headline.what
        assert command == {"quality": "quality", "performance": "bench"}[headline.page]
        assert [row for row in rows if set(found.groups()) <= row], figure


def test_its_figures_name_the_machine_of_both_tables() -> None:
    for page in ("quality", "performance"):
        [machine] = re.findall(r"^Machine: (.+)\.$", (ROOT / "docs" / f"{page}.md").read_text("utf-8"), re.MULTILINE)
        assert machine in README


def test_its_picture_is_small_and_loads_nothing() -> None:
    picture = PICTURE.read_text(encoding="utf-8")

    assert "](docs/images/demo.svg)" in README
    assert len(picture) < 200_000
    assert not re.findall(r"url\(['\"]?http|href", picture)
    assert "<script" not in picture


@pytest.fixture(scope="module")
def drawn() -> list[str]:
    """The lines of the picture, as text."""
    texts = re.findall(r'<text [^>]*\by="([\d.]+)"[^>]*>(.*?)</text>', PICTURE.read_text(encoding="utf-8"))
    lines: dict[str, str] = {}
    for y, text in texts:
        lines[y] = f"{lines.get(y, '')} {html.unescape(text)}".replace("\xa0", " ")
    return [re.sub(" +", " ", line) for line in lines.values()]


def test_its_picture_shows_the_halts_of_a_scan(drawn: list[str]) -> None:
    with trajectory_file() as path:
        halts = {}
        for decision in Scan([Source(path)], load_policy()):
            if decision.severity == "halt":
                halts.setdefault(decision.run_id, decision)

    assert len(halts) == 10
    for run_id, halt in halts.items():
        [number] = [number for number, line in enumerate(drawn) if run_id in line]
        text = " ".join(drawn[number : number + 2])
        assert f" {halt.trigger.turn} of " in text, REDRAW
        assert halt.code in text, REDRAW
        assert halt.message[:46] in text, REDRAW  # as much as a narrow column shows


def test_its_picture_shows_no_false_halt(drawn: list[str]) -> None:
    assert [line for line in drawn if re.search("All 15 runs that (had )?solved their task were left alone", line)]
