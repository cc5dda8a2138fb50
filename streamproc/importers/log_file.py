"""Logs as files: one JSON document or one JSON value a line, plain or compressed, or a directory of events."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from streamproc.errors import InvalidEvent, Problem
from streamproc.importers.log_bytes import (
    DOCUMENT_BYTES_MAX,
    bounded,
    decompressed,
    is_compressed,
    open_regular,
    parsed_whole,
    read_beside,
    records_of,
    too_large,
)

STDIN: Final = "-"
ENDINGS: Final = re.compile(r"(\.(jsonl|ndjson|json|traj|gz|zst))+$", re.IGNORECASE)
SAMPLE_ROWS: Final = 20  # rows looked at to recognise a format
PROGRESS_LINES: Final = 256  # between two reports of progress
EVENT_FOLDER: Final = "events"  # OpenHands writes a file for each event into such a directory
EVENT_NAME: Final = re.compile(r"^(?:event-)?(\d+)(?:-.*)?\.json$")
TAIL_BYTES: Final = 1 << 16  # read from the end of a file to see what its last rows are
DAMAGED: Final = "copy the file again, or leave it out"
NOT_READ: Final = {
    b"\xff\xfe": ("its text is UTF-16", "save it as UTF-8"),
    b"\xfe\xff": ("its text is UTF-16", "save it as UTF-8"),
    b"PK\x03\x04": ("it is a zip archive", "unpack it, and give the files in it"),
    b"BZh": ("it is compressed with bzip2", "decompress it, or compress it with gzip or Zstandard"),
    b"\xfd7zXZ": ("it is compressed with xz", "decompress it, or compress it with gzip or Zstandard"),
    b"SQLite format 3\x00": ("it is an SQLite database", "leave it out"),
    b"PAR1": ("it is a Parquet file", "convert it to JSON lines"),
}  # by how a file begins
CHATDEV: Final = b"**ChatDev Starts**"
RAW_TURN: Final = re.compile(rb'^\s*\{.*"run_id"\s*:')  # of a raw turn one line is enough


class LogRow(NamedTuple):
    """A JSON value and its number in the log, from 1: its line, or its place in the list of a document."""

    number: int
    data: Any


class Sample(NamedTuple):
    """What a format is recognised by."""

    path: str
    rows: list[Any]  # the first rows: lines, or items of a list
    document: Any  # the whole document, if the file is one JSON value; None for rows
    damage: str = ""  # what is wrong if none of the first lines is JSON; not said of lines that begin an object
    remedy: str = DAMAGED  # what to do about the damage


class LogFile:
    """A file that holds a log.

    A file whose first line is JSON by itself holds rows; a file that is one JSON value is a document, whose rows are
    its items if it is a list. Standard input can be read once, after its sample was looked at.
    """

    def __init__(self, path: str | Path, *, lenient: bool = False) -> None:
        self.path = str(path)
        self.lenient = lenient
        self.bad_lines = 0
        self.required = True
        """Whether what cannot be read is an error; otherwise the rows end there, and `failure` says why."""
        self.failure: InvalidEvent | OSError | None = None
        self.cut_off = False  # whether the last line is incomplete: the log is still written, or was cut
        self._input = _Input(self.path) if self.path == STDIN or Path(self.path).is_fifo() else None
        self._document: Any = None
        self._is_document: bool | None = None
        self._raw: Any = None  # the file while it is read
        self.on_progress: Callable[[int], None] | None = None
        """Gets the number of bytes that were read since it was called last."""
        self._reported = 0

    @property
    def position(self) -> int:
        """How many bytes of the file were read; of a compressed one, as it is stored."""
        return 0 if self._raw is None or self._raw.closed else int(self._raw.tell())

    @property
    def is_stream(self) -> bool:
        """Whether the log can be read once only, as it is written: standard input, or a pipe."""
        return self._input is not None

    def release(self) -> None:
        """Forget the content of a document, which is read again when it is asked for; not that of a stream."""
        if self._input is None:
            self._document = self._is_document = None

    @property
    def name(self) -> str:
        """The path for messages."""
        return "standard input" if self.path == STDIN else self.path

    @property
    def stem(self) -> str:
        """The name of the log without its directory and its endings."""
        if self.path == STDIN:
            return "stdin"
        name = Path(self.path).resolve().name
        return ENDINGS.sub("", name) or name

    def names(self) -> Iterator[str]:
        """Yield the stem, then the stem after more and more of its path. A directory of the same name, one for each
        log, is passed over: after `instance`, `experiment/instance/instance.traj` is `experiment/instance`."""
        yield self.stem
        if self.path == STDIN:
            return
        folders = list(Path(self.path).resolve().parent.parts[1:])
        if folders and folders[-1] == self.stem:
            folders.pop()
        for place in range(len(folders) - 1, -1, -1):
            yield "/".join((*folders[place:], self.stem))

    @property
    def is_folder(self) -> bool:
        """Whether the log is a directory with a file for each event, each of which is a row."""
        return self.path != STDIN and Path(self.path).is_dir()

    def sample(self) -> Sample:
        """Return what a format is recognised by. Raises `OSError`, and `InvalidEvent` for a damaged archive."""
        if self.is_folder:
            return Sample(self.path, [row.data for row in islice(self._events(), SAMPLE_ROWS)], None)
        if self.is_document():
            document = self._document
            return Sample(self.path, document[:SAMPLE_ROWS] if isinstance(document, list) else [document], document)
        rows = []
        head = self._head(SAMPLE_ROWS)
        for line in head:
            rows += _values(line)[0]
        return Sample(self.path, rows, None) if rows or not head else Sample(self.path, rows, None, *_damage(head))

    def last_rows(self) -> list[Any]:
        """Return rows from the end of a file; none of a document, a directory, a stream or a compressed file."""
        if self.is_folder or self.is_stream or self.is_document():
            return []
        with open_regular(self.path) as raw:
            if is_compressed(raw.peek(4)[:4]):
                return []
            begin = max(0, raw.seek(0, os.SEEK_END) - TAIL_BYTES)
            raw.seek(begin)
            lines = raw.read(TAIL_BYTES).splitlines()[1 if begin else 0 :]
        rows = []
        for line in lines[-SAMPLE_ROWS:]:
            with suppress(orjson.JSONDecodeError):
                rows.append(orjson.loads(line))
        return rows

    def is_document(self) -> bool:
        """Whether the file is one JSON value, on any number of lines."""
        if self._is_document is None:
            self._is_document = not self.is_folder and self._find_document()
        return self._is_document

    def document(self) -> Any:
        """Return the JSON value of a document."""
        return self._document if self.is_document() else None

    def rows(self) -> Iterator[LogRow]:
        """Yield the rows. Raises `InvalidEvent` at a line that is no JSON, unless the file is read leniently or is not
        required; a last line that is cut off is skipped."""
        try:
            yield from self._rows()
        except (InvalidEvent, OSError) as error:
            if self.required:
                raise
            self.failure = error

    def _rows(self) -> Iterator[LogRow]:
        if self.is_folder:
            yield from self._events()
        elif not self.is_document():
            yield from self._rows_of_lines()
        elif isinstance(self._document, list):
            yield from (LogRow(number, data) for number, data in enumerate(self._document, start=1))
        else:
            yield LogRow(1, self._document)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, with their numbers, from 1."""
        with self._opened() as stream:
            lines = stream if self._input is not None else bounded(stream, self.name)
            for number, line in enumerate(lines, start=1):
                if not number % PROGRESS_LINES:
                    self._report(self.position)
                if not line.isspace():
                    yield number, line
            self._report(self.position)

    def _report(self, position: int) -> None:
        if self.on_progress is not None:
            self.on_progress(position - self._reported)
            self._reported = position

    def _rows_of_lines(self) -> Iterator[LogRow]:
        bad: tuple[int, str] | None = None
        for number, line in self.lines():
            if bad is not None:
                self._refuse(*bad)
            values, wrong = _values(line)
            for value in values:
                yield LogRow(number, value)
            bad = (number, wrong) if wrong else None
        self.cut_off = bad is not None

    def _refuse(self, number: int, what: str) -> None:
        if not self.lenient:
            remedy = "repair the line, or skip such lines with --lenient"
            raise InvalidEvent([Problem("line", what, remedy, f"{self.name}:{number}")])
        self.bad_lines += 1

    def _events(self) -> Iterator[LogRow]:
        """Yield the events of a directory in the order of their numbers; one that is no JSON is counted and skipped."""
        self.bad_lines = 0  # its sample was read before
        for number, path in event_files(Path(self.path)):
            try:
                yield LogRow(number, read_beside(path))
            except ValueError:
                self.bad_lines += 1

    def _find_document(self) -> bool:
        head = self._head(2)
        if not head or RAW_TURN.match(head[0]):
            return False
        if len(head) == 1 or head[0].strip() in (b"[", b"{"):
            try:
                self._document = parsed_whole(self._whole(), self.name)
            except orjson.JSONDecodeError:
                return False
        return self._document is not None

    def _head(self, count: int) -> list[bytes]:
        """Return the first lines that are not blank; fewer where the first one says enough."""
        if self._input is not None:
            return self._input.head(count)
        with self._opened() as lines:
            return list(islice((line for line in bounded(lines, self.name) if not line.isspace()), count))

    def _whole(self) -> bytes:
        if self._input is not None:
            return self._input.whole()
        with self._opened() as lines:
            raw: bytes = lines.read(DOCUMENT_BYTES_MAX + 1)
            return raw

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        if self._input is not None:
            yield self._input.lines()
            return
        with open_regular(self.path) as raw, decompressed(raw, self.name) as stream:
            self._raw = raw
            yield stream


class _Input:
    """Standard input or a pipe, of which the first lines can be looked at before it is read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._taken: list[bytes] = []
        self._rest: Iterator[bytes] = self._read()

    def head(self, count: int) -> list[bytes]:
        while len(found := [line for line in self._taken if not line.isspace()]) < count:
            if found and RAW_TURN.match(found[0]):
                break  # an agent may write for hours: the first turn must not wait for the second
            line = next(self._rest, None)
            if line is None:
                break
            self._taken.append(line)
        return found

    def whole(self) -> bytes:
        size = sum(map(len, self._taken))
        for line in self._rest:
            self._taken.append(line)
            size += len(line)
            if size > DOCUMENT_BYTES_MAX:
                raise too_large(self._path)
        return b"".join(self._taken)

    def lines(self) -> Iterator[bytes]:
        taken, self._taken = self._taken, []
        yield from taken
        yield from self._rest

    def _read(self) -> Iterator[bytes]:
        if self._path == STDIN:
            with decompressed(sys.stdin.buffer, "standard input") as stream:
                yield from bounded(stream, "standard input")
            return
        with Path(self._path).open("rb") as raw, decompressed(raw, self._path) as stream:
            yield from bounded(stream, self._path)


def _values(line: bytes) -> tuple[list[Any], str]:
    """Return the JSON value of a line, or the objects that stand on it, and why it cannot be read to its end."""
    try:
        return [orjson.loads(line)], ""
    except orjson.JSONDecodeError as error:
        wrong = _why_no_json(line, error)
    values: list[Any] = []
    records = records_of(line)
    for record in records if len(records) > 1 else ():
        try:
            values.append(orjson.loads(record))
        except orjson.JSONDecodeError:
            return values, wrong
    return values, "" if values else wrong


def _damage(head: list[bytes]) -> tuple[str, str]:
    """Return why the first lines are no JSON, and what to do; empty for lines that begin an object."""
    for beginning, found in NOT_READ.items():
        if head[0].startswith(beginning):
            return found
    if head[0].strip() in (b"{", b"["):
        return "it is a JSON document that is cut off or damaged", DAMAGED
    if head[0][257:262] == b"ustar":
        return "it is a tar archive", "unpack it, and give the files in it"
    if b"\0" in head[0]:
        return "it is binary, or its text is not UTF-8", "give a log in JSON and UTF-8, or leave the file out"
    if any(line.lstrip().startswith(b"{") for line in head):
        return "", ""
    if any(CHATDEV in line for line in head):
        return "it is a log of ChatDev, which is text for people", "leave it out"
    return "its first lines are no JSON", "give a log in JSON, or leave the file out"


def _why_no_json(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as wrong:
        return f"not UTF-8: {wrong.reason} at byte {wrong.start + 1}"
    return f"no JSON: {error.msg}, at character {error.colno}"


def event_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of a directory's events with their numbers, in order; empty if it holds none. What is no regular
    file of the directory itself, such as a pipe or a link, is left out."""
    events = folder / EVENT_FOLDER
    if not events.is_dir() or events.is_symlink():
        return []
    with os.scandir(events) as entries:
        found = [
            (int(match[1]), Path(entry.path))
            for entry in entries
            if (match := EVENT_NAME.match(entry.name)) and entry.is_file(follow_symlinks=False)
        ]
    return sorted(found)
