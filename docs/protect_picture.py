"""Draw docs/images/protect.svg: a real session of Claude Code whose model asks for the same call for ever, and its
report.

    .venv/bin/python -m docs.protect_picture      # the CLI of `make live`, which installs it

`tests/docs/test_protect_picture.py` compares it with the recorded events of such a session.
"""
# ruff: noqa: INP001

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from docs.picture import NO_FONT
from tests.live.real.clis import CLIS
from tests.live.real.fake_model import FakeModel
from tests.live.real.packages import install
from tests.live.real.scenarios import Play
from tests.live.real.worlds import World

PICTURE: Final = Path(__file__).with_name("images") / "protect.svg"
COLUMNS: Final = 112
REPORT: Final = "## What repeated"  # the part of the report that is shown
TITLE: Final = "streamproc protect claude"


def shown() -> list[tuple[str, str]]:
    """Return the commands of a user, and what each has printed."""
    cli = CLIS["claude"]
    with tempfile.TemporaryDirectory(prefix="sp-") as folder, FakeModel().serving() as model:
        here = World(Path(folder), install())
        model.plays["picture"] = Play("fails", here.work)
        address = f"{model.address}/picture"
        here.home.mkdir()
        here.work.mkdir()
        protected = here.streamproc("protect", "claude").replace(str(here.home), "~")
        done = here.session(cli.command(address), cli.variables(address))
        said = next(line for line in done.output.splitlines() if "LOOP" in line)
        [session] = here.sessions(cli)
        listed = here.streamproc("runs")
        report = here.streamproc("report", session["session_id"], "--format", "md", "-o", "-")
        removed = here.streamproc("protect", "claude", "--remove").replace(str(here.home), "~")
        here.end_up()
    return [
        ("streamproc protect claude", protected),
        ("streamproc protect run -- claude -p 'Do the work.' --allowedTools Bash; echo $?", f"{said}\n{done.code}"),
        ("streamproc runs", listed),
        (f"streamproc report {session['session_id'][:8]}… --format md -o -", REPORT + _table(report)),
        ("streamproc protect claude --remove", removed),
    ]


def _table(report: str) -> str:
    return report.partition(REPORT)[2].partition("\n## ")[0].rstrip()


def draw(steps: list[tuple[str, str]]) -> str:
    """Return the picture of a terminal that has shown this, as SVG."""
    console = Console(record=True, width=COLUMNS, force_terminal=True, file=io.StringIO(), highlight=False)
    for command, printed in steps:
        console.print(Text.assemble(("$ ", "dim"), (command, "bold")))
        console.print(Text(re.sub(r"\n{2,}", "\n", printed.strip())))
        console.print()
    return console.export_svg(title=TITLE, code_format=NO_FONT, unique_id="protect")


def main() -> None:
    """Run the session, and draw it."""
    PICTURE.write_text(draw(shown()), encoding="utf-8")
    sys.stdout.write(f"wrote {PICTURE} ({PICTURE.stat().st_size} bytes)\n")


if __name__ == "__main__":
    main()
