"""Files with raw turns, as `scan` and `publish` read them: with a progress bar, and with every error in words."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamproc.cli.terminal import fail, note, progress, watched

if TYPE_CHECKING:
    from streamproc.replay.source import Source

TOLD_EVERY = 256  # lines between two movements of the progress bar
BLOCK_BYTES = 1 << 20

Files = Annotated[
    list[str], typer.Argument(help="Raw turns, one JSON object a line; .gz is read as it is, - is standard input.")
]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip lines that cannot be used, and count them.")]


@contextmanager
def opened(files: list[str], lenient: bool, title: str) -> Iterator[list[Source]]:
    """The files as sources, under a progress bar of this title. Afterwards it is told what was skipped."""
    from streamproc.replay.source import Line, Source

    with progress(title, _lines_in(files)) as bar:

        class Watched(Source):
            def __iter__(self) -> Iterator[Line]:
                for found in super().__iter__():
                    if found.number % TOLD_EVERY == 0:
                        bar.advance(TOLD_EVERY)
                    yield found

        ordinals: Counter[str] = Counter()
        sources: list[Source] = [Watched(path, lenient=lenient, ordinals=ordinals) for path in files]
        try:
            yield sources
        except OSError as error:
            if error.filename is None:
                raise  # not about one of the files
            where = f"{error.filename}: {error.strerror}"
            raise fail(f"{where}. Give files with raw turns, or - for standard input") from None
    for source in sources:
        if source.bad:
            note(f"{source.path}: skipped {source.bad} of {source.lines} lines that cannot be used")
        if source.unknown_fields:
            note(f"{source.path}: ignored {source.unknown_fields} fields that nobody knows")


def _lines_in(files: list[str]) -> int | None:
    """How many lines there are to read, for the progress bar of a person; unknown for standard input."""
    if not watched() or "-" in files:
        return None
    count = 0
    for name in files:
        try:
            with gzip.open(name) if name.endswith(".gz") else Path(name).open("rb") as stream:
                while block := stream.read(BLOCK_BYTES):
                    count += block.count(b"\n")
        except (OSError, EOFError):
            return None  # reading it in earnest will say what is wrong
    return count
