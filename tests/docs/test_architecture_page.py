"""The page about the architecture names the files that exist, and every signal in the walk of a turn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.test_architecture import LAYERS

ROOT: Final = Path(__file__).parents[2]
CORE: Final = ROOT / "streamproc" / "core"
PAGE: Final = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_walk_of_a_turn_names_files_of_the_core_and_every_signal() -> None:
    walk = PAGE.partition("## One turn in the core\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_/]+\.py)`", walk)) - {"detectors/__init__.py"}
    signals = {f"signals/{file.name}" for file in (CORE / "signals").glob("[a-z]*.py")}

    assert not [name for name in named if not (CORE / name).is_file()]
    assert signals <= named


def test_the_list_of_layers_is_the_one_that_is_enforced() -> None:
    shown = re.search(r"```text\n(cli\n.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    layers = [names for names in reversed(LAYERS) if names != {"__main__"}]

    assert [set(line.split()) for line in shown[1].splitlines()] == layers


def test_every_room_has_a_row() -> None:
    rows = set(re.findall(r"`([a-z_]+)/`", PAGE.partition("## Rooms\n")[2].partition("\n## ")[0]))
    rooms = {folder.parent.name for folder in (ROOT / "streamproc").glob("[a-z]*/__init__.py")}

    assert rooms <= rows
