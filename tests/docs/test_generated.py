"""The generated parts of the documentation agree with the code."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from benchmarks.table import shown
from docs import generate
from docs.detector_markdown import markdown
from streamproc.cli.detector_page import read_page
from streamproc.cli.measured_figures import BUILT_IN, SOURCES
from streamproc.detectors import BY_CODE
from streamproc.model import raw_events
from streamproc.model.budgets import BUDGETS
from streamproc.model.wire import TYPED
from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def made() -> dict[Path, str]:
    return generate.pages()


def test_generated_pages_agree_with_the_code(made: dict[Path, str]) -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, f"run `.venv/bin/python docs/generate.py`; it changes {', '.join(stale)}"


def test_an_unknown_part_is_an_error() -> None:
    with pytest.raises(KeyError, match="weather"):
        generate.fill("<!-- made:weather:begin -->\n<!-- made:weather:end -->\n")


def test_a_generated_part_goes_between_its_marks() -> None:
    page = "before\n<!-- made:budgets:begin -->\nold\n<!-- made:budgets:end -->\nafter\n"

    filled = generate.fill(page)

    assert filled.startswith("before\n<!-- made:budgets:begin -->\n| budget |")
    assert filled.endswith("<!-- made:budgets:end -->\nafter\n")
    assert "old" not in filled
    assert all(budget.name in filled for budget in BUDGETS)


@pytest.mark.parametrize("model", [
    raw_events.RawTurn, raw_events.RawRunStarted, raw_events.RawRunFinished, raw_events.RawOperatorStop,
    raw_events.RawOperatorResume, raw_events.RawHaltAcknowledged, raw_events.RawFeedback, raw_events.ToolCall,
    raw_events.TestReport, raw_events.ErrorReport, raw_events.UsageReport,
])  # fmt: skip
def test_every_field_is_explained(model: type[BaseModel]) -> None:
    text = (ROOT / "docs" / "publishing.md").read_text(encoding="utf-8")
    names = {field.alias or name for name, field in model.model_fields.items()}

    assert not {name for name in names if f"`{name}`" not in text and f'"{name}"' not in text}


def test_every_type_of_event_is_explained() -> None:
    text = (ROOT / "docs" / "publishing.md").read_text(encoding="utf-8")

    assert not {kind.type for kind in TYPED if f"`{kind.type}`" not in text and kind.type != "turn"}


def test_the_page_of_a_detector_shows_its_limits_and_the_results_of_its_examples() -> None:
    text = markdown(read_page(BY_CODE["STALL001"]))
    played = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)

    assert "| `halt` | 2 |" in text
    assert "| `iteration` | iterations of the cycle so far |" in text  # of its evidence
    assert any("→ halt: coder left its artifact unchanged" in text for text in played)
    assert any(text.endswith("→ nothing\n") for text in played)


def test_the_figures_of_the_plan_are_cells_of_the_table(made: dict[Path, str]) -> None:
    figures = json.loads(made[BUILT_IN])["figures"]
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")

    assert json.loads(BUILT_IN.read_text(encoding="utf-8"))["figures"] == figures
    for one in SOURCES:
        [row, *_] = [line for line in table.splitlines() if re.match(rf"\| {one.what}", line)]
        cell = row.split(" | ")[1].strip()
        assert cell.startswith(f"{shown(figures[one.field] / one.factor)} "), one.field


def test_a_changed_table_changes_the_figures_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    table = generate._figures("performance")

    monkeypatch.setattr(generate, "_figures", lambda _: re.sub(r"[\d ]+ turns/s", " 12 300 turns/s", table))
    assert json.loads(generate.plan_figures())["figures"]["turns_per_second"] == 12_300

    monkeypatch.setattr(generate, "_figures", lambda _: table.replace("one worker, processor time per event", ""))
    with pytest.raises(ValueError, match="0 figures for one worker, processor time per event; run the whole"):
        generate.plan_figures()


def test_each_extra_is_on_the_page_about_them() -> None:
    project = tomllib.loads((generate.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (generate.ROOT / "docs" / "install.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z0-9-]+)`", page.partition("| extra |")[2].replace(" | ", "\n")))
    assert set(project["optional-dependencies"]) <= named
