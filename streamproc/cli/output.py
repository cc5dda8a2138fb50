"""Where a command's results go: standard output, or a file."""

from __future__ import annotations

import errno
import glob
import gzip
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal, cast

import typer

from streamproc.cli.terminal import fail

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what writing to a full disk raises, without a file's name

OutputFile = Annotated[
    str | None, typer.Option("--output", "-o", help="Write results to this file. Default: standard output.")
]
LinesFile = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="Write to this file, compressed if its name ends with .gz or .zst. Default: standard output.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the summary, and no notes.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more of each result.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")]
TextOrJsonl = Annotated[
    Literal["text", "jsonl"],
    typer.Option("--format", help="text: a readable report; jsonl: one control event a line, in log order."),
]


@contextmanager
def output_to(path: str | Path | None, *, quiet: bool = False) -> Iterator[None]:
    """Send standard output to a file, which is replaced, or nowhere. Exits with a message for a file that cannot be
    written."""
    if path is None and not quiet:
        yield
        return
    path = os.devnull if path is None else path
    with written_file(path), Path(path).open("w", encoding="utf-8") as file, redirect_stdout(file):
        yield


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


@contextmanager
def lines_to(path: str | None) -> Iterator[Callable[[bytes], object]]:
    """Yield how to write lines to a file, compressed as its name says, or to standard output."""
    if path is None:
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    with written_file(path), _opened(path) as stream:
        yield stream.write


def _opened(path: str) -> BinaryIO:
    if path.endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "wb", compresslevel=6))
    if path.endswith(".zst"):
        import zstandard

        return cast(BinaryIO, zstandard.open(path, "wb"))
    return Path(path).open("wb")


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
                found = any(_is_same(log, path) for log in log_paths(logs))
        if found:
            raise fail(f"{output}: is one of the logs that are read, and would be replaced. Name another file")


def _is_same(log: str, path: Path) -> bool:
    """Whether they are one file, also by hard links."""
    with suppress(OSError):
        return path.samefile(log)
    return False


def _holds(log: str, path: Path) -> bool:
    """Whether a file of this path would be found by reading a directory or a pattern."""
    place = Path(os.path.realpath(log))
    return (place.is_dir() and place in path.parents) or (glob.has_magic(log) and path.match(str(place)))
