"""Where a command's results go: standard output, or a file."""

from __future__ import annotations

import errno
import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final, Literal, TextIO

import typer

from streamproc.cli.terminal import columns, fail, fold, json_line, line, printable
from streamproc.model.escaping import escape_json

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what writing to a full disk raises, without a file's name

OutputFile = Annotated[
    str | None, typer.Option("--output", "-o", help="Write results to this file. Default: standard output.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the summary, and no notes.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more of each result.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")]
TextOrJsonl = Annotated[
    Literal["text", "jsonl"],
    typer.Option("--format", help="text: a readable report; jsonl: one control event a line, in log order."),
]


class Output:
    """Prints lines of results: folded and coloured in a terminal, as they are in a file or a pipe."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def text(self, text: str, hang: int = 0) -> None:
        """Print a text for people; continuation lines hang by so many columns."""
        if self._stream is None:
            line(fold(text, hang) if columns(sys.stdout) else text)
        else:
            typer.echo(printable(text), file=self._stream, color=False)

    def json(self, text: str) -> None:
        """Print a JSON text of one line."""
        if self._stream is None:
            json_line(text)
        else:
            typer.echo(escape_json(text), file=self._stream)


@contextmanager
def output_to(path: str | None) -> Iterator[Output]:
    """Yield where results go. An existing file is replaced."""
    if path is None:
        yield Output(None)
        return
    with written_file(path), Path(path).open("w", encoding="utf-8") as stream:
        yield Output(stream)


@contextmanager
def written_file(path: str | Path, option: str = "-o") -> Iterator[None]:
    """Write a file inside of this. If it cannot be opened, or the disk is full, exit with a message."""
    try:
        yield
    except OSError as error:
        names = (str(path), str(Path(path)))  # which differ for an empty one
        opening = error.filename is not None and str(error.filename) in names
        if not opening and (error.filename is not None or error.errno not in FULL):
            raise
        raise fail(f"{path}: {error.strerror}. Name a file that can be written with {option}") from None


def refuse_logs(outputs: Iterable[str | Path | None], logs: Sequence[str]) -> None:
    """Exit with a message if one of these files, which are about to be written, is or becomes one of the logs."""
    from streamproc.errors import InvalidEvent
    from streamproc.importers.discovery import LOG_NAME, log_paths

    for output in outputs:
        if output is None or str(output) == "-":
            continue
        path = Path(os.path.realpath(output))  # unlike `resolve`, also of a link to itself
        found = LOG_NAME.search(path.name) is not None and any(_holds(log, path) for log in logs)
        if not found and path.is_file():
            with suppress(InvalidEvent):  # reading the logs says what is wrong
                found = any(Path(log).resolve() == path for log in log_paths(logs))
        if found:
            raise fail(f"{output}: is one of the logs that are read, and would be replaced. Name another file")


def _holds(log: str, path: Path) -> bool:
    """Whether a file of this path would be found by reading a directory or a pattern."""
    place = Path(log).resolve()
    return (place.is_dir() and place in path.parents) or (glob.has_magic(log) and path.match(str(place)))
