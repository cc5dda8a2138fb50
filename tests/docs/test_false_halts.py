"""What docs/false_halts.md names as keeping a false halt away exists."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.quality.traces import HONEST, name_of
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "false_halts.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count(" | ") == 3]
KEEPERS = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row.rpartition(" | ")[2])})


def known() -> set[str]:
    golden = ("honest", "honest_gate", "honest_texts", "waiting")
    titles = {trace["title"] for one in golden for trace in json.loads((ROOT / f"tests/golden/{one}.json").read_text())}
    tests = (re.findall(r"def (test_\w+)", file.read_text("utf-8")) for file in (ROOT / "tests").rglob("test_*.py"))
    return titles | {name_of(kind) for kind in HONEST} | {name for names in tests for name in names}


def test_each_keeper_exists() -> None:
    assert len(KEEPERS) > 80
    assert [name for name in KEEPERS if name not in known()] == []


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith("| what")])
def test_each_false_halt_is_kept_away(row: str) -> None:
    assert "`" in row.rpartition(" | ")[2]
