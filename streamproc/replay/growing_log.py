"""A log that is still written: its lines are yielded as they come."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from streamproc.importers import LogFile, LogRow
from streamproc.importers.log_bytes import bounded_line, is_compressed, open_regular, read_beside, without_mark
from streamproc.importers.log_file import event_files

POLL_S: Final = 0.25  # between two looks at a log
IDLE_S: Final = 3_600.0  # a log without a change for so long is read to its end, and again when it changes
WRITTEN_S: Final = 2.0  # a file of a directory that is no JSON is still being written for so long
LINES: Final = (".jsonl", ".ndjson")


class GrowingLog(LogFile):
    """A log whose lines, or files of a directory, are followed until `stop`.

    A file that is replaced (rotated) or shortened is read again from its start. An incomplete last line is held back
    until it is complete, or until `stop`. Compressed files and documents are read once. `on_end` is called when
    everything that is there was read, for the first time.
    """

    def __init__(self, path: str, stop: threading.Event, on_end: Callable[[], None], *, lenient: bool = False) -> None:
        super().__init__(path, lenient=lenient)
        self._stop, self._on_end = stop, on_end
        self._at_end = False

    def is_document(self) -> bool:
        """Whether the file is one JSON value. A session of one line so far is none."""
        return not self.path.lower().endswith(LINES) and super().is_document()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        with open_regular(self.path) as stream:
            compressed = is_compressed(stream.peek(4)[:4])
        if compressed:
            yield from super().lines()
            return
        while True:
            with open_regular(self.path) as stream:
                yield from self._lines_of(without_mark(stream))
            if self._over():
                return

    def _lines_of(self, stream: BufferedReader) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a file until it is replaced or shortened, or until `stop`."""
        number, begun = 1, b""
        while True:
            line = bounded_line(stream, f"{self.name}:{number}", len(begun))
            if line.endswith(b"\n"):
                line, begun = begun + line, b""
                if not line.isspace():
                    yield number, line
                number += 1
            elif line:
                begun += line
            elif not self._has_more(stream):
                break
        if begun and not begun.isspace():
            yield number, begun

    def _has_more(self, stream: BufferedReader) -> bool:
        """Wait until a file has grown; False if it was replaced or shortened, or at `stop`."""
        self._reached_end()
        opened = os.fstat(stream.fileno())
        while True:
            over = self._over()  # before the look at the file: what was written until then is read
            try:
                now = os.stat(self.path)  # noqa: PTH116  # four times a second for each log
            except FileNotFoundError:
                now = opened  # it is being rotated, or gone
            if (now.st_ino, now.st_dev) != (opened.st_ino, opened.st_dev):
                return stream.peek(1) != b""  # what was written before it was replaced
            if now.st_size < stream.tell():
                return False
            if now.st_size > stream.tell():
                return True
            if over:
                return False
            self._stop.wait(POLL_S)

    def _over(self) -> bool:
        """Whether to stop: when told so, or when nothing has changed for long."""
        if self._stop.is_set():
            return True
        try:
            return time.time() - Path(self.path).stat().st_mtime > IDLE_S
        except FileNotFoundError:
            return False  # it is being rotated, or gone

    def _reached_end(self) -> None:
        if not self._at_end:
            self._at_end = True
            self._on_end()

    def _events(self) -> Iterator[LogRow]:
        last = -1
        while True:
            for number, path in event_files(Path(self.path)):
                if number <= last:
                    continue
                try:
                    row = LogRow(number, read_beside(path))
                except ValueError:
                    if time.time() - path.stat().st_mtime < WRITTEN_S:
                        break  # it is being written
                    self.bad_lines += 1
                    continue
                last = number
                yield row
            self._reached_end()
            if self._stop.wait(POLL_S):
                return
