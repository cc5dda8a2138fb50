"""Terminal output: results go to standard output; notes, progress and errors go to standard error.

A progress bar is erased before anything is printed to the same terminal. Text for people is folded at the terminal's
width; text for files and pipes is not. Unprintable characters are escaped everywhere, in JSON as JSON does it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

import typer

from streamproc.model.escaping import INDENT, LogFormatter, escape, escape_json, indented

if TYPE_CHECKING:
    import msgspec
    from rich.console import Console

UNUSABLE: Final = 2  # exit code: the command or its input cannot be used
PLAIN_WIDTH: Final = 120  # columns of a table in a file or a pipe
COLOURS: Final = {"halt": "red", "warn": "yellow", "info": "cyan"}  # by severity

_STYLE = re.compile(r"(\x1b\[(?:0|1|22|3[0-7])m)")  # what `paint` writes; any other escape sequence is foreign
_muted = False
_WORD = re.compile(r" *[^ ]+")  # with the spaces before it


def examples(*lines: str) -> str:
    """Return the epilogue of a command's ``--help``."""
    return "\n\n".join(("Examples:" if len(lines) > 1 else "Example:", *lines))


def _console(stderr: bool) -> Console:
    from rich.console import Console  # takes 50 ms to import; a JSONL scan does without

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else PLAIN_WIDTH)


def out() -> Console:
    """Return a console on standard output."""
    _erase_bar()
    return _console(stderr=False)


def watched() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr.isatty()


def columns(stream: TextIO) -> int | None:
    """Return the width of the terminal behind a stream; None for a file or a pipe."""
    if not stream.isatty():
        return None
    if (wanted := os.environ.get("COLUMNS", "")).isdecimal():
        return int(wanted) or None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def fold(text: str, hang: int = 0, width: int | None = None) -> str:
    """Break text between words at the terminal's width, and indent continuation lines by `hang` columns.

    A word that is longer than a line stays whole, so that an id can be copied.
    """
    width = width or columns(sys.stdout)
    if width is None:
        return text
    from rich.cells import cell_len

    lines = []
    for paragraph in text.split("\n"):
        current, used = "", 0
        for word in _WORD.findall(paragraph):
            wide = cell_len(_STYLE.sub("", word))
            if current and used + wide > width:
                lines.append(current)
                current = " " * hang + word.lstrip(" ")
                used = cell_len(_STYLE.sub("", current))
            else:
                current, used = current + word, used + wide
        lines.append(current)
    return "\n".join(lines)


def line(text: str) -> None:
    """Print one line of results unfolded; colours reach terminals only."""
    if sys.stdout.isatty():
        _erase_bar()
    typer.echo(printable(text))


def json_line(text: str) -> None:
    """Print a JSON text of one line, which stays the same value."""
    if sys.stdout.isatty():
        _erase_bar()
    typer.echo(escape_json(text))


def json_row(row: msgspec.Struct) -> None:
    """Print a record as JSON on one line."""
    import msgspec

    json_line(msgspec.json.encode(row).decode())


def say(text: str, hang: int = 0, *, prose: bool = False) -> None:
    """Print results for people, folded at the terminal's width. `prose` is folded regardless of its own line breaks."""
    if prose and columns(sys.stdout):
        text = " ".join(text.split())
    line(fold(printable(text), hang))


def paint(text: str, colour: str, *, bold: bool = False) -> str:
    """Colour a text, unless `NO_COLOR` is set. Files and pipes get it without colours."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, fg=colour, bold=bold)


def clean(text: str) -> str:
    """Escape untrusted text, such as a run id, for a part of a line: it brings neither colours nor line breaks."""
    return escape(text)


def printable(text: str) -> str:
    """Escape what no caller has escaped, except line breaks and the colours of `paint`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(part if number % 2 else escape(part, keep="\n") for number, part in enumerate(_STYLE.split(text)))


@contextmanager
def without_notes() -> Iterator[None]:
    """Leave out remarks inside of this; errors are printed all the same."""
    global _muted  # a process has one standard error
    before, _muted = _muted, True
    try:
        yield
    finally:
        _muted = before


def note(text: str) -> None:
    """Print a remark about the work on standard error; every line but the first is indented."""
    if not _muted:
        _to_stderr(text)


def _to_stderr(text: str) -> None:
    _erase_bar()
    width = columns(sys.stderr)
    text = printable(text).replace("\n", "\n  ")
    typer.echo(fold(text, 2, width) if width else text, err=True)


def complain(text: str) -> None:
    """Print an error on standard error."""
    _to_stderr(f"{paint('error:', 'red')} {text}")


def report_bug() -> None:
    """Print the traceback of the current exception on standard error, which a bug report needs."""
    _erase_bar()
    typer.echo(indented(traceback.format_exc().rstrip("\n")).removeprefix(INDENT), err=True)


def escape_logs() -> None:
    """Escape the log lines of libraries, which Python prints on standard error if a command sets up no log."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogFormatter())


def quiet_kafka() -> None:
    """Silence the Kafka client's log: it reports each failed connection, and a command reports it once."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def fail(text: str, code: int = UNUSABLE) -> typer.Exit:
    """Print an error that names the thing, the place and the remedy; raise what this returns."""
    complain(text)
    return typer.Exit(code)


class ProgressReporter:
    """Receives the progress of some work, in the work's own unit, and shows nothing: there may be no terminal."""

    def advance(self, more: int) -> None:
        """Add `more` units to what is done."""


class _Bar(ProgressReporter):
    """A progress bar on standard error. It is drawn while work advances, and erased for every line of output."""

    drawn: _Bar | None = None
    """The bar on the screen, of which there is at most one."""

    def __init__(self, title: str, total: int | None) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        shown = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        # No redirection: with it, results would be written through the console of standard error.
        self._bars = Progress(
            *shown, console=_console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._task = self._bars.add_task(title, total=total)

    def advance(self, more: int) -> None:
        self._bars.advance(self._task, more)
        self._bars.start()  # draws it again if a line of output has erased it
        _Bar.drawn = self

    def erase(self) -> None:
        self._bars.stop()
        _Bar.drawn = None


def _erase_bar() -> None:
    if _Bar.drawn is not None:
        _Bar.drawn.erase()


@contextmanager
def progress(title: str, total: int | None) -> Iterator[ProgressReporter]:
    """Show a progress bar on standard error if that is a terminal. `total` is in the work's own unit."""
    if not watched() or os.environ.get("TERM") == "dumb":
        yield ProgressReporter()
        return
    bar = _Bar(title, total)
    bar.advance(0)
    try:
        yield bar
    finally:
        bar.erase()
