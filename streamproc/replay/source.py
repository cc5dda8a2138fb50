"""Read raw events from JSONL: files, `.gz` files, standard input."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import xxhash

from streamproc.errors import InvalidEvent, Problem
from streamproc.fingerprint import HashKey, fingerprint, plain_turn
from streamproc.model.raw_events import RawEvent, parse_line, parse_raw, read_json
from streamproc.model.unknown_fields import UnknownFields
from streamproc.model.wire import Event

STDIN = "-"

T = TypeVar("T")


class Line(NamedTuple):
    """One event of a file and its line number (from 1)."""

    number: int
    raw: RawEvent


class Source:
    """The events of one file, in file order. After reading, `bad` counts the skipped lines.

    An event without an id gets one derived from its run and its position in the run, so a scan of a file and the
    published file have the same event ids, and a file that is published twice is recognised. If a run continues in
    another file, pass the same `ordinals` (the count of events of each run) to both sources. Sources may also share
    `unknown_fields`; a strict one refuses lines with unknown fields.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        lenient: bool = False,
        ordinals: Counter[str] | None = None,
        unknown_fields: UnknownFields | None = None,
    ) -> None:
        self.path = str(path)
        self.lenient = lenient
        self.lines = self.bad = 0
        self.unknown_fields = UnknownFields() if unknown_fields is None else unknown_fields
        self._ordinals: Counter[str] = Counter() if ordinals is None else ordinals

    def __iter__(self) -> Iterator[Line]:
        """Raise `InvalidEvent` with file and line at the first bad line, unless lenient; `OSError` for the file."""
        for number, raw in self._read_each(self._raw):
            yield Line(number, raw)

    def fingerprints(self, key: HashKey | None = None) -> Iterator[Event]:
        """Yield the events fingerprinted, as `fingerprint` does for this process. Raises the same."""

        def read(line: bytes) -> Event:
            data = read_json(line)
            turn = plain_turn(data, key, local=True)
            if turn is None:
                return fingerprint(self._checked(parse_raw(data)), key=key, local=True)
            ordinal = self._ordinal(data["run_id"])
            if not turn.event_id:
                turn.event_id = line_event_id(data["run_id"], ordinal)
            return turn

        for _, event in self._read_each(read):
            yield event

    def _read_each(self, read: Callable[[bytes], T]) -> Iterator[tuple[int, T]]:
        """Yield the number of each line, and what `read` makes of it."""
        for number, line in self.numbered():
            try:
                found = read(line)
            except InvalidEvent as error:
                if not self.lenient:
                    raise self._placed(error, number) from None
                self.bad += 1
                continue
            yield number, found

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, with their numbers."""
        with _opened(self.path) as stream:
            for number, line in enumerate(stream, start=1):
                self.lines = number
                if not line.isspace():
                    yield number, line

    def _raw(self, line: bytes) -> RawEvent:
        return self._checked(parse_line(line))

    def _checked(self, raw: RawEvent) -> RawEvent:
        """Count the unknown fields, and return the event with an id."""
        self.unknown_fields.add(raw)
        ordinal = self._ordinal(raw.run_id)
        return raw if raw.event_id else raw.model_copy(update={"event_id": line_event_id(raw.run_id, ordinal)})

    def _ordinal(self, run_id: str) -> int:
        ordinal = self._ordinals[run_id]
        self._ordinals[run_id] = ordinal + 1
        return ordinal

    def _placed(self, error: InvalidEvent, number: int) -> InvalidEvent:
        place = f"{'standard input' if self.path == STDIN else self.path}:{number}"
        return InvalidEvent([replace(problem, place=place) for problem in error.problems])


def line_event_id(run_id: str, ordinal: int) -> str:
    """Return the id of the event at this position (from 0) of a run in a file."""
    return xxhash.xxh3_128_hexdigest(f"{run_id}\0{ordinal}".encode("utf-8", "surrogatepass"))


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as stream:
        if stream.peek(2)[:2] != b"\x1f\x8b":  # a pipe, such as /dev/fd/63, cannot seek
            yield stream
            return
        with gzip.open(stream, "rb") as decompressed:
            try:
                yield decompressed  # type: ignore[misc]
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                problem = Problem("file", f"damaged gzip: {error}", "copy the file again", path)
                raise InvalidEvent([problem]) from None
