"""Commands in a pseudo-terminal, and the screen that they leave."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import NamedTuple

import pyte

from tests.programs import clean_environment

SCREEN_COLUMNS = 2_000  # more than any terminal: a line that is too long shows as one line, not as two
SCREEN_ROWS = 5_000


class Terminal(NamedTuple):
    """What a command wrote to its terminal, and the lines on the screen afterwards."""

    written: str
    lines: list[str]
    exit_code: int


def in_terminal(*arguments: object, columns: int, code: str = "", typed: str = "", **environment: str) -> Terminal:
    """Run a command, or Python `code`, in a terminal of this width with both output streams on it, and what is typed
    as its input; without that, its input is empty."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    unwanted = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERMINAL_WIDTH")
    kept = {name: value for name, value in clean_environment().items() if name not in unwanted}
    process = subprocess.Popen(
        [sys.executable, *(("-c", code) if code else ("-m", "streamproc")), *map(str, arguments)],
        env=kept | {"TERM": "xterm-256color"} | environment,
        stdin=writer if typed else subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    os.write(reader, typed.encode())
    written = b""
    while part := _read(reader):
        written += part
    os.close(reader)
    screen = pyte.Screen(SCREEN_COLUMNS, SCREEN_ROWS)
    pyte.ByteStream(screen).feed(written)
    # `screen.display` would visit every cell of the screen; the buffer holds only those that were written.
    rows = [screen.buffer[row] for row in range(SCREEN_ROWS)]
    lines = ["".join(row[column].data for column in range(max(row, default=-1) + 1)).rstrip() for row in rows]
    while lines and not lines[-1]:
        lines.pop()
    return Terminal(written.decode(), lines, process.wait(60))


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # Linux: every process has closed the terminal
        return b""
