"""A scan whose logs are read by several processes. It steps the events in the order of the logs, as one process does.

What a process sends ahead of the scan is bounded in bytes; then it waits. A log is read as if there were no other. What
it would have asked of the logs before it is checked in order: the few logs that do depend on others, such as a resumed
session that copies the records of the former one, are read again by the scan itself.
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import InvalidEvent, StreamprocError
from streamproc.fingerprint import HashKey
from streamproc.importers import FORMATS, Import
from streamproc.importers.discovery import RAW
from streamproc.policy import Policy
from streamproc.replay.scan import Scan, ScanEvent, size_of
from streamproc.replay.scan_workers import ALL_READ, LOG_READ, Chunk, LogSummary, ReadingPlan, decode_chunk, read_logs
from streamproc.replay.shared_import import SharedState
from streamproc.replay.source import ImportedSource, LogEvent, Source
from streamproc.replay.turn_log import TurnLog

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from streamproc.core.decision import Decision

AHEAD_BYTES_MAX: Final = 16 << 20  # that one process may send ahead of the scan
PARALLEL_BYTES_MIN: Final = 20 << 20  # of all logs: below, starting processes takes longer than reading
FIRST_BYTES_MAX: Final = 16 << 20  # of a first log that the scan reads itself while the processes start
JOIN_S: Final = 5.0  # for a process to end after its last log


class ParallelScan(Scan):
    """A scan with `jobs` reading processes. Its decisions are those of a `Scan` of the same sources.

    `reading` is what the sources share, as `open_logs` returns it; `secret` that of the hash key. Raises what a `Scan`
    raises, and `StreamprocError` if a process dies.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        policy: Policy,
        *,
        reading: Import,
        secret: str,
        jobs: int,
        turn_log: TurnLog | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(sources, policy, HashKey.of(secret), turn_log=turn_log)
        self._on_progress = on_progress
        self._shared = SharedState(reading)
        self._secret, self._jobs = secret, min(jobs, len(self.sources))

    def __iter__(self) -> Iterator[Decision]:
        here = int(size_of(self.sources[0].log) <= FIRST_BYTES_MAX)  # meanwhile the processes start
        with Readers(self._plan(), self._jobs, here) as readers:
            for number, source in enumerate(self.sources):
                self._shared.begin()
                for batch in self._read(source) if number < here else self._sent(number, source, readers):
                    yield from self.step(number, batch)

    def _plan(self) -> ReadingPlan:
        formats = [one.format if isinstance(one, ImportedSource) else None for one in self.sources]
        first = self.sources[0]
        strict = any(one.unknown_fields.strict for one in self.sources if not isinstance(one, ImportedSource))
        return ReadingPlan(
            paths=[one.path for one in self.sources],
            names=[RAW if one is None else one.name for one in formats],
            formats=tuple({one.name: one for one in formats if one is not None and one not in FORMATS}.values()),
            lenient=first.lenient,
            strict=strict,
            secret=self._secret,
            pack=self.turn_log is not None,
            required=[one.log.required for one in self.sources],
        )

    def _sent(self, number: int, source: Source, readers: Readers) -> Iterator[Sequence[ScanEvent | LogEvent]]:
        """Yield the events of a log in batches, as its process sends them."""
        position = events = 0
        for chunk in readers.chunks(number):
            if chunk.claims is not None and not self._shared.admit(chunk.claims):
                self._shared.withdraw()
                yield from self._again(source, events, position)
                return
            for event, run_id in zip(chunk.events, chunk.run_ids, strict=True):
                source.identify(event, run_id or event.run_id)
            events += len(chunk.events)
            yield list(map(ScanEvent, chunk.events, chunk.packed, chunk.numbers, chunk.units))
            if self._on_progress is not None:
                self._on_progress(chunk.position - position)
                position = chunk.position
            if chunk.summary:
                self._end(source, pickle.loads(chunk.summary))

    def _end(self, source: Source, summary: LogSummary) -> None:
        source.lines, source.bad = summary.lines, summary.bad
        if not isinstance(source, ImportedSource):
            source.unknown_fields.merge(summary.unknown_fields)
        self._shared.add(summary.reading.tallies, summary.reading.notes)
        if summary.problems:
            source.fail(InvalidEvent(summary.problems))
        if summary.error is not None:
            source.fail(summary.error)
        if summary.trace:
            raise RuntimeError(f"reading {source.path} failed in another process:\n{summary.trace}")

    def _again(self, source: Source, skipped: int, position: int) -> Iterator[Sequence[LogEvent]]:
        """Read a log here, without the events that were stepped already."""
        for number, found in enumerate(source.read_without_ids(self._key)):
            if number >= skipped:
                source.identify(found.event, found.raw["run_id"])
                yield [found]
        if self._on_progress is not None:
            self._on_progress(size_of(source.log) - position)


class Readers:
    """The processes of a scan, and what they have sent. A context manager, which ends them."""

    def __init__(self, plan: ReadingPlan, jobs: int, first: int = 0) -> None:
        context = multiprocessing.get_context("spawn")  # forking a process that has threads is not safe
        self._left = iter(range(first, len(plan.paths)))
        self._reader_of: dict[int, _Reader] = {}
        self._changed = threading.Condition()
        self._readers = [_Reader(context, plan, self) for _ in range(jobs)]

    def __enter__(self) -> Readers:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.stop()
        for reader in self._readers:
            reader.join()

    def next_log(self, reader: _Reader) -> int:
        """Give the next log to a process; `ALL_READ` if there is none."""
        with self._changed:
            number = next(self._left, ALL_READ)
            if number != ALL_READ:
                self._reader_of[number] = reader
            self._changed.notify_all()
            return number

    def chunks(self, number: int) -> Iterator[Chunk]:
        """Yield what a process sends of a log. Raises `StreamprocError` if it dies."""
        with self._changed:
            while number not in self._reader_of:
                self._check_all()
                self._changed.wait(1.0)
            reader = self._reader_of.pop(number)
        while True:
            chunk = reader.take()
            if chunk.number != number:
                continue  # the rest of a log that the scan has read again
            yield chunk
            if chunk.summary:
                return

    def _check_all(self) -> None:
        for reader in self._readers:
            reader.check()


class _Reader:
    """One process, and the thread that receives from it."""

    def __init__(self, context: Any, plan: ReadingPlan, readers: Readers) -> None:
        self._connection: Connection
        self._connection, self._theirs = context.Pipe()
        self._process = context.Process(target=read_logs, args=(plan, self._theirs), daemon=True)
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._readers = readers
        self._received: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._stopped = self._ended = False

    def start(self) -> None:
        self._process.start()
        self._theirs.close()  # so that the end of the process ends the connection
        self._thread.start()

    def take(self) -> Chunk:
        """Return the next chunk. Raises `StreamprocError` if the process has died."""
        with self._changed:
            while not self._received:
                self.check()
                self._changed.wait(1.0)
            raw = self._received.popleft()
            self._bytes -= len(raw)
            self._changed.notify_all()
        return decode_chunk(raw)

    def check(self) -> None:
        """Raise `StreamprocError` if the process has died and sends nothing more."""
        if self._ended and not self._received and not self._stopped:
            self._process.join(JOIN_S)
            code = self._process.exitcode
            raise StreamprocError(
                f"a reading process ended early (exit code {code}); it may lack memory: use fewer with -j, or -j 1"
            )

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._process.terminate()

    def join(self) -> None:
        self._process.join(JOIN_S)
        self._thread.join(JOIN_S)
        self._connection.close()

    def _receive(self) -> None:
        with suppress(EOFError, OSError):
            number = self._readers.next_log(self)
            self._connection.send(number)
            while number != ALL_READ and not self._stopped:
                raw = self._connection.recv_bytes()
                if raw == LOG_READ:
                    number = self._readers.next_log(self)
                    self._connection.send(number)
                    continue
                with self._changed:
                    self._received.append(raw)
                    self._bytes += len(raw)
                    self._changed.notify_all()
                    while self._bytes > AHEAD_BYTES_MAX and len(self._received) > 1 and not self._stopped:
                        self._changed.wait()
            return
        with self._changed:
            self._ended = True
            self._changed.notify_all()
