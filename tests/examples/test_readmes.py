"""The examples' READMEs show the output of their scripts, and their policies explain every line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from streamproc.policy import load_policy
from tests.docs.commands import agrees
from tests.docs.pages import blocks, links
from tests.examples.playing import ROOT, printed, scanned

SCRIPTS = sorted((ROOT / "examples").glob("*/run.py"))
POLICIES = [path for script in SCRIPTS for path in sorted(script.parent.glob("*.yaml"))]
named = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)


@named
def test_a_page_shows_what_its_script_prints(script: Path) -> None:
    name = script.parent.name
    command = f"$ python examples/{name}/run.py\n"
    shown = [block.text for block in blocks(script.parent / "README.md") if block.text.startswith(command)]
    assert shown, "show the script and what it prints in a console block"
    for text in shown:
        assert agrees(text.removeprefix(command), printed(name)), printed(name)


@named
def test_a_script_needs_nothing_but_the_package(script: Path) -> None:
    found = re.findall(r"^(?:from|import) (\w+)", script.read_text("utf-8"), re.MULTILINE)
    assert set(found) <= {"streamproc", *sys.stdlib_module_names}


@named
def test_its_turns_can_be_scanned(script: Path) -> None:
    if (script.parent / "turns.jsonl").exists():
        assert scanned(script.parent.name)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_every_line_of_a_policy_has_a_comment(path: Path) -> None:
    load_policy(path)
    assert [line for line in path.read_text("utf-8").splitlines() if line.strip() and "# " not in line] == []


@named
def test_the_readme_names_the_example(script: Path) -> None:
    assert f"examples/{script.parent.name}/README.md" in links(ROOT / "README.md")
