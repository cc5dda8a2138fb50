"""Draw docs/images/demo.svg: what `streamproc demo` shows in a terminal, its last progress screen and its summary.

    .venv/bin/python docs/picture.py

`tests/docs/test_readme.py` compares the halts in the picture with those of `streamproc scan` on the same runs.
"""
# ruff: noqa: INP001

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

PICTURE: Final = Path(__file__).with_name("images") / "demo.svg"
COMMAND: Final = "streamproc demo"
COLUMNS, ROWS = 124, 60
PROGRESS_LINES: Final = 4  # of a progress screen: counts, turns, runs and their legend
END: Final = "What to do next"  # the picture ends before it
REDRAWN: Final = re.compile(r"(?:\r?\x1b\[(?:\d*A|2K|\?25[lh]))+")  # where a terminal erases the screen before
NO_FONT: Final = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's SVG without fonts from elsewhere: a picture in a page cannot load any."""


def shown() -> str:
    """Run the demo in a terminal and return everything that it prints."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    program = Path(sys.executable).with_name("python")
    environ = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    command = [program, "-m", *COMMAND.split()]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                some = os.read(ours, 65_536)
            except OSError:  # Linux: the other side has closed the terminal
                break
            if not some:
                break
            printed += some
    if process.returncode:
        sys.exit(f"{printed.decode()}\n`{COMMAND}` exited with {process.returncode}")
    return printed.decode().replace("\r\n", "\n")


def draw(printed: str) -> str:
    """Return the picture of a terminal that has shown this, as SVG."""
    *_, progress, summary = [screen for screen in REDRAWN.split(printed) if screen.strip()]
    console = Console(record=True, width=COLUMNS, force_terminal=True, file=io.StringIO(), highlight=False)
    console.print(Text.assemble(("$ ", "dim"), (COMMAND, "bold")))
    for line in [
        *progress.strip("\n").split("\n")[:PROGRESS_LINES],
        "",
        *summary.partition(END)[0].strip().split("\n"),
    ]:
        console.print(Text.from_ansi(line))
    return console.export_svg(title=COMMAND, code_format=NO_FONT, unique_id="demo")


def main() -> None:
    """Run the demo, and draw it."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(shown()), encoding="utf-8")
    sys.stdout.write(f"wrote {PICTURE} ({PICTURE.stat().st_size} bytes)\n")


if __name__ == "__main__":
    main()
