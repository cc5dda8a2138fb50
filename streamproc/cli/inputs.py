"""Open files of raw turns for `scan`, `publish` and `baseline`, with a progress bar and readable errors."""

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

BAR_STEP_LINES = 256  # lines between two updates of the progress bar
BLOCK_BYTES = 1 << 20

Files = Annotated[
    list[str],
    typer.Argument(help="Files of raw turns, one JSON object a line; .gz files are decompressed, - is standard input."),
]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip and count lines that cannot be used.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse events with unknown fields.")]


@contextmanager
def opened(files: list[str], lenient: bool, title: str, *, strict: bool = False) -> Iterator[list[Source]]:
    """Yield the files as sources, under a progress bar with this title.

    On exit, notes on standard error report skipped lines and unknown fields.
    """
    from streamproc.model.unknown_fields import UnknownFields
    from streamproc.replay.source import Source

    with progress(title, _lines_in(files)) as bar:

        class Watched(Source):
            def numbered(self) -> Iterator[tuple[int, bytes]]:
                for number, line in super().numbered():
                    if number % BAR_STEP_LINES == 0:
                        bar.advance(BAR_STEP_LINES)
                    yield number, line

        ordinals: Counter[str] = Counter()
        unknown_fields = UnknownFields(strict=strict)
        sources: list[Source] = [
            Watched(path, lenient=lenient, ordinals=ordinals, unknown_fields=unknown_fields) for path in files
        ]
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
    for sentence in unknown_fields.summary():
        note(sentence)


def _lines_in(files: list[str]) -> int | None:
    """Count the lines of the files for the progress bar. None without a terminal, and for standard input."""
    if not watched() or "-" in files:
        return None
    count = 0
    for name in files:
        try:
            with gzip.open(name) if name.endswith(".gz") else Path(name).open("rb") as stream:
                while block := stream.read(BLOCK_BYTES):
                    count += block.count(b"\n")
        except (OSError, EOFError):
            return None  # reading the file for the scan reports what is wrong
    return count
