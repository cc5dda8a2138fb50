"""What the command line says and where: results on standard output, everything about them on standard error."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars, TaskID

UNUSABLE = 2  # exit code: the command or its input could not be used
PLAIN_WIDTH = 120  # columns of a table that goes to a file or a pipe


def examples(*lines: str) -> str:
    """The epilogue of a command's ``--help``."""
    return "\n\n".join(("Examples:" if len(lines) > 1 else "Example:", *lines))


def _console(stderr: bool) -> Console:
    from rich.console import Console  # 50 ms that a JSONL scan need not pay

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else PLAIN_WIDTH)


def out() -> Console:
    """Where results go."""
    return _console(stderr=False)


def err() -> Console:
    """Where notes, progress and errors go."""
    return _console(stderr=True)


def watched() -> bool:
    """Whether a person watches the progress of this command."""
    return sys.stderr.isatty()


def line(text: str) -> None:
    """Print one line of results: no wrapping, and no colour where nobody sees it."""
    typer.echo(text)


def paint(text: str, colour: str, *, bold: bool = False) -> str:
    """Text in a colour, unless `NO_COLOR` is set; colours do not reach files and pipes."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, fg=colour, bold=bold)


def clean(text: str) -> str:
    """Text of strangers (run ids, nodes, messages) without what could steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def note(text: str) -> None:
    """Say something about the work on standard error."""
    typer.echo(text, err=True)


def complain(text: str) -> None:
    """Say what went wrong on standard error."""
    typer.echo(f"{paint('error:', 'red')} {text}", err=True)


def quiet_kafka() -> None:
    """Kafka clients log each failed connection; a command says it once, in words."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def fail(text: str, code: int = UNUSABLE) -> typer.Exit:
    """Say what went wrong, where and what to do; raise what this returns."""
    complain(text)
    return typer.Exit(code)


class ProgressReporter(Protocol):
    """How far some work is, in its own unit."""

    def advance(self, more: int) -> None:
        """So much more is done."""
        ...


class _Silent:
    def advance(self, more: int) -> None:
        """Nobody watches."""


class _Bar:
    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def advance(self, more: int) -> None:
        self._bars.advance(self._task, more)


@contextmanager
def progress(title: str, total: int | None) -> Iterator[ProgressReporter]:
    """A progress bar on standard error where a person watches, else nothing. `total` in the work's own unit."""
    if not watched():
        yield _Silent()
        return
    from rich.progress import BarColumn, Progress as Bars, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Bars(*columns, console=err(), transient=True) as bars:
        yield _Bar(bars, bars.add_task(title, total=total))
