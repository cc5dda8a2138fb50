"""Draws docs/images/demo.svg from a real run of `streamproc demo`: the last frame of its screen, and its summary.

    .venv/bin/python docs/picture.py

`tests/docs/test_picture.py` compares the halts in the picture with those of `streamproc scan` on the same runs.
"""
# ruff: noqa: INP001

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from streamproc.demo.display import Screen
from streamproc.demo.scenario import run_demo
from streamproc.demo.summary import sentences

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streamproc.demo.scenario import DemoOutcome

PICTURE: Final = Path(__file__).with_name("images") / "demo.svg"
WIDTH: Final = 132  # columns
PAUSE_S: Final = 0.1  # between two turns of an agent, as in the command
NO_FONT: Final = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's SVG without fonts from elsewhere: a picture in a page cannot load any."""


def draw(frame: RenderableType, outcome: DemoOutcome) -> str:
    """The picture, as SVG."""
    console = Console(record=True, width=WIDTH, force_terminal=True, file=io.StringIO(), highlight=False)
    console.print(Text.assemble(("$ ", "dim"), ("streamproc demo", "bold")))
    console.print(frame)
    console.print()
    for text in sentences(outcome):
        console.print(Text(text))
    return console.export_svg(title="streamproc demo", code_format=NO_FONT, unique_id="demo")


def main() -> None:
    """Run the demo, and draw what it shows."""
    console = Console(width=WIDTH, force_terminal=True, file=io.StringIO())
    screen = Screen(console)
    outcome = run_demo(screen, PAUSE_S)
    if surprises := list(outcome.surprises()):
        sys.exit("\n".join(surprises))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(screen._frame(), outcome), encoding="utf-8")
    sys.stdout.write(f"wrote {PICTURE} ({PICTURE.stat().st_size} bytes)\n")


if __name__ == "__main__":
    main()
