"""Several logs that are still written, read as they grow.

The importer of each log stays suspended in its loop over the lines, so each line is read and parsed once, however long
a session gets: of a log of 100 MB that grows by a line, that line is read. Each log has a thread for that, which sleeps
while nothing is written. A log that is one JSON document is replaced by its tool at each step: it is read again from
the start, in time proportional to its size, and the events that were yielded before are left out. The last event of
such a log is held back until there is another one: its results may not be there yet.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from streamproc.errors import InvalidEvent
from streamproc.fingerprint import HashKey
from streamproc.importers import FORMATS, Format, Import
from streamproc.importers.discovery import log_paths
from streamproc.importers.log_file import STDIN
from streamproc.model.unknown_fields import UnknownFields
from streamproc.replay.growing_log import POLL_S, GrowingLog
from streamproc.replay.shared_import import OwnedImport, SharedState
from streamproc.replay.source import LogEvent, LogOpener, Source

QUEUED_MAX: Final = 1_024  # events that were read and not yet stepped
LOOK_S: Final = 0.5  # between two looks for new logs, and for changes of logs that are read to their ends
HELD_S: Final = 600.0  # a document that was written so recently may get results for its last event


class Found(NamedTuple):
    """An event of a log, or why the log cannot be read further."""

    source: int
    event: LogEvent | None
    error: Exception | None = None


class FollowedLog:
    """A log, and the thread that reads it."""

    def __init__(self, path: str, number: int) -> None:
        self.path, self.number = path, number
        self.events = 0  # that were yielded
        self.held: LogEvent | None = None
        self.signature: tuple[int, int, int] | None = None  # when it was read to its end
        self.reading = OwnedImport()
        self.caught_up, self.ended = threading.Event(), threading.Event()

    def changed(self) -> bool:
        """Whether a log that was read to its end is another one now."""
        return self.ended.is_set() and self.signature != signature_of(self.path)


class Followed:
    """Logs that grow, and new ones that the same paths mean.

    `sources` has them in the order in which they were found. With `since`, in seconds since 1970, older logs are left
    out until they change.
    """

    def __init__(
        self,
        paths: Sequence[str],
        key: HashKey | None,
        *,
        format_name: str | None = None,
        formats: Sequence[Format] = FORMATS,
        lenient: bool = False,
        strict: bool = False,
        since: float = 0.0,
        exclude: Sequence[str] = (),
    ) -> None:
        self.sources: list[Source] = []
        self.unknown_fields = UnknownFields(strict=strict)
        self.problems: dict[str, None] = {}
        """Sentences about logs that cannot be read, each once. Take them with `popitem`."""
        self.caught_up = False
        """Whether everything that was there at the start was read."""
        self._paths, self._key, self._since = list(paths), key, since
        self._format_name, self._formats, self._lenient = format_name, formats, lenient
        self._exclude = exclude
        self._owners: dict[int, str] = {}
        self._agents: dict[str, str] = {}
        self._ordinals_of = LogOpener().ordinals
        self._logs: dict[str, FollowedLog] = {}
        self._queue: queue.Queue[Found] = queue.Queue(QUEUED_MAX)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def events(self) -> Iterator[tuple[int, list[LogEvent]]]:
        """Yield the events of the logs that are there, log by log, then those that are written, as they come.

        Also yields empty lists while nothing happens. Ends after `end`.
        """
        for path in self._found():
            yield from self._first(path)
        self.caught_up = True
        looked = time.monotonic()
        while not self._stop.is_set():
            yield from self._queued(POLL_S)
            yield 0, []
            if time.monotonic() - looked >= LOOK_S:
                self._look()
                looked = time.monotonic()

    def end(self) -> None:
        """End `events` soon. A signal handler may call it."""
        self._stop.set()

    def rest(self) -> Iterator[tuple[int, list[LogEvent]]]:
        """Yield the events that are left after `end`: turns that still wait for results are judged without."""
        for thread in self._threads:
            while thread.is_alive():
                yield from self._queued(POLL_S)
        yield from self._queued(0.0)
        for log in self._logs.values():
            if log.held is not None:
                yield log.number, [self._identified(log, log.held)]
                log.held = None

    def reading(self) -> Import:
        """Return what was read of all logs together."""
        whole = Import(lenient=self._lenient)
        for log in self._logs.values():
            SharedState(whole).add(log.reading.tallies, log.reading.notes)
        return whole

    def _found(self) -> list[str]:
        """Return the logs that the paths mean now and that are not followed yet."""
        found: dict[str, None] = {}
        for path in self._paths:
            with suppress(InvalidEvent, OSError):  # none yet
                found |= dict.fromkeys(log_paths([path], exclude=self._exclude))
        new = [path for path in found if path not in self._logs and path != STDIN]
        return [path for path in new if (now := signature_of(path)) is not None and now[0] >= self._since * 1e9]

    def _first(self, path: str) -> Iterator[tuple[int, list[LogEvent]]]:
        """Begin to read a log, and yield what is there."""
        log = self._begin(path)
        while log is not None and not log.caught_up.is_set() and not self._stop.is_set():
            yield from self._queued(POLL_S)
        yield from self._queued(0.0)

    def _look(self) -> None:
        for path in self._found():
            self._begin(path)
        for log in list(self._logs.values()):
            if log.changed():
                self._begin(log.path)

    def _begin(self, path: str) -> FollowedLog | None:
        """Read a log, from its start; events that were yielded before are left out."""
        log = self._logs.get(path) or FollowedLog(path, len(self._logs))
        log.reading = OwnedImport(agents=self._agents, lenient=self._lenient, owner=path, owners=self._owners)
        opener = LogOpener(self._format_name, self._formats, self._lenient, self.unknown_fields, log.reading)
        opener.ordinals = self._ordinals_of
        growing = GrowingLog(path, self._stop, log.caught_up.set, lenient=self._lenient)
        log.signature = signature_of(path)
        try:
            if not growing.sample().rows:
                return None  # nothing is written yet
            source = opener.source(growing)
        except (InvalidEvent, OSError) as error:
            log.ended.set()  # it is tried again when it changes: it may be half written
            if path not in self._logs:
                self.problems[str(error)] = None
                self._keep(log, Source(growing))
            return None
        self._keep(log, source)
        log.ended.clear()
        whole = growing.is_document()
        growing.release()
        thread = threading.Thread(target=self._read, args=(log, source, whole), daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()
        return log

    def _keep(self, log: FollowedLog, source: Source) -> None:
        if log.path in self._logs:
            self.sources[log.number] = source
        else:
            self._logs[log.path] = log
            self.sources.append(source)

    def _read(self, log: FollowedLog, source: Source, whole: bool) -> None:
        """Queue the events of a log. The main function of its thread."""
        skipped, count = log.events, 0
        held = whole and log.signature is not None and time.time() - log.signature[0] / 1e9 < HELD_S
        last: LogEvent | None = None
        try:
            for found in source.read_without_ids(self._key):
                count += 1
                if count <= skipped:
                    continue
                ready, last = (last, found) if held else (found, None)
                if ready is not None:
                    log.events += 1
                    self._queue.put(Found(log.number, ready))
        except (InvalidEvent, OSError) as error:
            self._queue.put(Found(log.number, None, error))
        log.held = last
        if not whole:
            log.signature = signature_of(log.path)
        log.ended.set()
        log.caught_up.set()

    def _queued(self, wait_s: float) -> Iterator[tuple[int, list[LogEvent]]]:
        """Yield what is queued; wait for the first event."""
        while True:
            try:
                found = self._queue.get(timeout=wait_s) if wait_s else self._queue.get_nowait()
            except queue.Empty:
                return
            wait_s = 0.0
            if found.error is not None:
                self.problems[str(found.error)] = None
            elif found.event is not None:
                log = self._logs[self.sources[found.source].path]
                yield found.source, [self._identified(log, found.event)]

    def _identified(self, log: FollowedLog, found: LogEvent) -> LogEvent:
        self.sources[log.number].identify(found.event, found.raw["run_id"])
        return found


def signature_of(path: str) -> tuple[int, int, int] | None:
    """Return what changes when a file does; None if there is none."""
    try:
        now = Path(path).stat()
    except OSError:
        return None
    return now.st_mtime_ns, now.st_size, now.st_ino
