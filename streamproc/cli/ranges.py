"""Options of the commands that look at a part of the log, and of those that print records."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from streamproc.cli.output import written_file
from streamproc.cli.terminal import fail, note
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.kafka.reading import Extent, TopicReader
    from streamproc.replay.window import Selection

Run = Annotated[str | None, typer.Option(help="Only this run.", show_default=False)]
Workflow = Annotated[str | None, typer.Option(help="Only runs of this workflow.", show_default=False)]
User = Annotated[str | None, typer.Option(help="Only runs of this user.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every run in the log.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Only decisions made since then: RFC 3339, or milliseconds since 1970. Default: the log's beginning.",
        show_default=False,
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", help="Only decisions made until then. Default: the log's end.", show_default=False),
]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        help="Only decisions on these records of the turns topic: PARTITION:BEGIN-END, the end excluded. Repeatable.",
        metavar="P:BEGIN-END",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the result to this file.", dir_okay=False, show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no result; only set the exit code.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print everything, without a limit.")]

OFFSETS = re.compile(r"(\d+):(\d+)-(\d+)\Z")


class LogRange(NamedTuple):
    """The part of a log that options choose."""

    selection: Selection
    from_ms: int | None
    to_ms: int | None
    offsets: dict[int, Extent]


def log_range(
    run: str | None, workflow: str | None, user: str | None, since: str | None, until: str | None,
    offsets: list[str] | None,
) -> LogRange:  # fmt: skip
    """Return what these options choose. Exits with a message for one that cannot be read."""
    from streamproc.importers import FORMATS
    from streamproc.importers.discovery import names
    from streamproc.replay.window import Selection

    if since in names(FORMATS):
        raise fail(f"--from {since}: a time is expected here; the format of logs is --log-format {since}")
    return LogRange(
        Selection(run, workflow, user), time_ms("--from", since), time_ms("--to", until), read_offsets(offsets or ())
    )


def time_ms(option: str, text: str | None) -> int | None:
    """Return the time that an option names, in epoch ms. Exits with a message for one that cannot be read."""
    from pydantic import TypeAdapter, ValidationError

    from streamproc.model.raw_events import TimeMs

    if text is None:
        return None
    try:
        at_ms: int = TypeAdapter(TimeMs).validate_python(int(text) if text.isdigit() and len(text) < 20 else text)
    except ValidationError as error:
        what = error.errors()[0]["msg"].removeprefix("Value error, ")
        remedy = "Give RFC 3339, such as 2026-01-31T12:00:00Z, or milliseconds since 1970"
        raise fail(f"{option} {text}: {what}. {remedy}") from None
    return at_ms


def read_offsets(texts: list[str] | tuple[()]) -> dict[int, Extent]:
    """Return the offsets to look at, by partition."""
    from streamproc.kafka.reading import Extent

    found: dict[int, Extent] = {}
    for text in texts:
        match = OFFSETS.match(text)
        if match is None or int(match[2]) >= int(match[3]):
            raise fail(f"--offsets {text}: expected PARTITION:BEGIN-END with BEGIN below END, such as 0:1200-1300")
        if int(match[1]) in found:
            raise fail(f"--offsets {text}: partition {match[1]} is given twice; give one range for each partition")
        found[int(match[1])] = Extent(int(match[2]), int(match[3]))
    return found


@contextmanager
def output_to(path: Path | None, *, quiet: bool = False) -> Iterator[None]:
    """Send standard output to a file, or nowhere. Exits with a message for a file that cannot be written."""
    if path is None and not quiet:
        yield
        return
    path = path or Path(os.devnull)
    with written_file(path), path.open("w", encoding="utf-8") as file, redirect_stdout(file):
        yield


def note_strays(reader: TopicReader) -> None:
    """Say which records of the turns topic were passed over because they are not at home, and why."""
    if reader.strays:
        note(
            f"passed over {plural(reader.strays, 'record')} outside of the home partition of their run, as workers do: "
            f"{reader.why_strays()}"
        )
