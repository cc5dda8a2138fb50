"""Open logs for `scan`, `convert`, `publish`, `stats` and `baseline`, with a progress bar and readable errors."""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamproc.cli.terminal import ProgressReporter, fail, note, progress, watched
from streamproc.errors import InvalidEvent

if TYPE_CHECKING:
    from streamproc.importers import Import
    from streamproc.model.unknown_fields import UnknownFields
    from streamproc.replay.source import LogOpener, Source

RECENT_DAYS: Final = 7
DAY_S: Final = 86_400

Files = Annotated[
    list[str],
    typer.Argument(
        help="Files, directories or patterns: raw turns, one JSON object a line, or logs that `scan` reads. "
        ".gz and .zst files are decompressed, - is standard input."
    ),
]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip and count lines that cannot be used.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse events with unknown fields.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Format of all logs: raw, or the name of another. Default: the content of each log tells.",
        metavar="FORMAT",
    ),
]


class OpenedLogs(list["Source"]):
    """The sources of a command, what they share, and the progress bar that runs."""

    def __init__(self, opener: LogOpener, paths: list[str], bar: ProgressReporter, **how: Any) -> None:
        sources, self.reading = opener.opened(paths, **how)
        super().__init__(sources)
        self._not_opened = opener.skipped
        self.unknown_fields: UnknownFields = opener.unknown_fields
        self.bar = bar
        for source in sources:
            source.log.on_progress = bar.advance

    @property
    def skipped(self) -> dict[str, InvalidEvent | OSError]:
        """Why files were skipped, or read in part, by path."""
        return self._not_opened | {one.path: one.failure for one in self if one.failure is not None}


@contextmanager
def opened(
    files: list[str],
    lenient: bool,
    title: str,
    *,
    strict: bool = False,
    format_name: str | None = None,
    quiet: bool = False,
    found: Sequence[str] = (),
    exclude: Sequence[str] = (),
    go_on: bool = False,
) -> Iterator[OpenedLogs]:
    """Yield the logs as sources, under a progress bar with this title: those of `files`, without what is excluded of
    directories and patterns, and those that were `found` already. With `go_on`, one bad file of several is skipped.

    On exit, notes on standard error report what was read, skipped lines and unknown fields, unless `quiet`.
    """
    from streamproc.model.unknown_fields import UnknownFields
    from streamproc.replay.source import LogOpener

    opener = LogOpener(format_name, lenient=lenient, unknown_fields=UnknownFields(strict=strict))
    try:
        with progress(title, _total_bytes(files, found, exclude)) as bar:
            sources = OpenedLogs(opener, files, bar, found=found, exclude=exclude, go_on=go_on)
            yield sources
    except OSError as error:
        raise unreadable(error) from None
    if not quiet:
        report_reading(sources, sources.reading, sources.unknown_fields)


def unreadable(error: OSError) -> Exception:
    """Print what is wrong with a file, and return what to raise: the error itself, if it is not about a file."""
    if error.filename is None:
        return error
    where = f"{error.filename}: {error.strerror}"
    return fail(f"{where}. Give logs of agents, or - for standard input")


def report_reading(sources: Sequence[Source], reading: Import, unknown_fields: UnknownFields) -> None:
    """Print what was read in which format, and what was not, on standard error."""
    for sentence in reading.sentences():
        note(sentence)
    for source in sources:
        if source.failure is not None:
            note(f"read in part: {_reason(source.failure, source.log.name)}")
        if source.bad:
            note(f"{source.path}: skipped {source.bad} of {source.lines} lines that cannot be used")
    for sentence in unknown_fields.summary():
        note(sentence)


def _reason(error: InvalidEvent | OSError, name: str) -> str:
    return f"{name}: {error.strerror or error}" if isinstance(error, OSError) else str(error)


def recent_logs(days: int, exclude: Sequence[str] = ()) -> list[str]:
    """Return the logs of the last days where the tools that we know keep them. Prints an error if there are none."""
    from streamproc.importers.discovery import is_excluded, log_paths

    since = time.time() - days * DAY_S
    found: dict[str, None] = {}
    for place in known_places():
        for name in sorted(glob.glob(place, recursive=True)):  # noqa: PTH207  # an absolute pattern
            with suppress(InvalidEvent):  # a directory without logs
                logs = (log for log in log_paths([name]) if not is_excluded(log, exclude))
                found |= {log: None for log in logs if _modified_s(Path(log)) >= since}
    if not found:
        looked = f"looked at {', '.join(known_places())}"
        raise fail(f"no logs of the last {days} days; {looked}. Give paths, or more days with --recent DAYS")
    return list(found)


def _modified_s(log: Path) -> float:
    """Return when a log was last written to; 0 if it is gone."""
    from streamproc.importers.log_file import EVENT_FOLDER

    try:
        return (log / EVENT_FOLDER if log.is_dir() else log).stat().st_mtime
    except OSError:
        return 0.0


def known_places() -> list[str]:
    """Return where the tools that we know keep their logs, as patterns."""
    from streamproc.importers import FORMATS

    return [str(Path.home() / place) for one in FORMATS for place in one.places]


def _total_bytes(files: list[str], found: Sequence[str], exclude: Sequence[str]) -> int | None:
    """Return the size of the logs for the progress bar. None without a terminal, and for standard input."""
    if not watched() or "-" in files:
        return None
    from streamproc.importers import LogFile
    from streamproc.importers.discovery import log_paths
    from streamproc.replay.scan import size_of

    try:
        paths = dict.fromkeys((*log_paths(files, exclude=exclude), *found))
        return sum(size_of(LogFile(path)) for path in paths) or None
    except (InvalidEvent, OSError):
        return None  # opening the logs says what is wrong
