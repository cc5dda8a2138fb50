"""A scan whose logs are read by several processes. It steps the events in the order of the logs, as one process does.

What a process sends ahead of the scan is bounded in bytes; then it waits. A log is read as if there were no other. What
it would have asked of the logs before it is checked in order: the few logs that do depend on others, such as a resumed
session that copies the records of the former one, are read again by the scan itself.
"""

from __future__ import annotations

import multiprocessing.connection
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from streamproc.core.decision import Decision
from streamproc.errors import InvalidEvent, StreamprocError
from streamproc.fingerprint import HashKey
from streamproc.importers import FORMATS, Import
from streamproc.importers.discovery import RAW
from streamproc.policy import Policy
from streamproc.replay.scan import BATCH_MAX, Scan, ScanEvent, size_of
from streamproc.replay.scan_workers import ALL_READ, LOG_READ, Chunk, LogSummary, ReadingPlan, decode_chunk, read_logs
from streamproc.replay.shared_import import SharedState
from streamproc.replay.source import ImportedSource, LogEvent, Source
from streamproc.replay.turn_log import TurnLog

AHEAD_BYTES_MAX: Final = 16 << 20  # that each process may send ahead of the scan
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
                    readers.receive(number)

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
            for event, *_, run_id in chunk.events:
                source.identify(event, run_id or event.run_id)
            events += len(chunk.events)
            yield [ScanEvent(event, packed, number, unit) for event, packed, number, unit, _ in chunk.events]
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
        yield from self._batches(self._identified(source, skipped), BATCH_MAX)
        if self._on_progress is not None:
            self._on_progress(size_of(source.log) - position)

    def _identified(self, source: Source, skipped: int) -> Iterator[LogEvent]:
        for found in islice(source.read_without_ids(self._key), skipped, None):
            source.identify(found.event, found.raw["run_id"])
            yield found


class Readers:
    """The processes of a scan, and what they have sent. A context manager, which ends them."""

    def __init__(self, plan: ReadingPlan, jobs: int, first: int = 0) -> None:
        self._plan, self._jobs = plan, jobs
        self._left = iter(range(first, len(plan.paths)))
        self._processes: dict[Any, SpawnProcess] = {}  # by connection
        self._log_of: dict[Any, int] = {}  # the log that is read, by connection
        self._received: dict[int, deque[bytes]] = {}  # by log
        self._bytes = 0

    def __enter__(self) -> Readers:
        context = multiprocessing.get_context("spawn")  # forking a process that has threads is not safe
        for _ in range(self._jobs):
            ours, theirs = context.Pipe()
            process = context.Process(target=read_logs, args=(self._plan, theirs), daemon=True)
            process.start()
            theirs.close()  # so that the end of the process ends the connection
            self._processes[ours] = process
            self._next_log(ours)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for connection, process in self._processes.items():
            process.join(JOIN_S)
            connection.close()

    def chunks(self, number: int) -> Iterator[Chunk]:
        """Yield what a process sends of a log. Raises `StreamprocError` if one dies."""
        for former in [one for one in self._received if one < number]:  # the rest of logs that the scan read itself
            self._bytes -= sum(map(len, self._received.pop(former)))
        received = self._received.setdefault(number, deque())
        is_last = False
        while not is_last:
            while not received:
                self.receive(number, wait_s=None)
            raw = received.popleft()
            self._bytes -= len(raw)
            chunk = decode_chunk(raw)
            is_last = bool(chunk.summary)
            yield chunk

    def receive(self, wanted: int, wait_s: float | None = 0.0) -> None:
        """Take what processes send while the scan is at the `wanted` log. Those that are far ahead have to wait.

        Raises `StreamprocError` if a process has died.
        """
        full = self._bytes > AHEAD_BYTES_MAX * self._jobs
        readers = [one for one, number in self._log_of.items() if number <= wanted or not full]
        connection: Any
        for connection in multiprocessing.connection.wait(readers, wait_s):
            try:
                raw = connection.recv_bytes()
                if raw == LOG_READ:
                    self._next_log(connection)
                    continue
            except (EOFError, OSError):
                process = self._processes[connection]
                process.join(JOIN_S)
                raise StreamprocError(
                    f"a reading process ended early (exit code {process.exitcode}); it may lack memory: use fewer"
                    " with -j, or -j 1"
                ) from None
            if (number := self._log_of[connection]) >= wanted:
                self._received.setdefault(number, deque()).append(raw)
                self._bytes += len(raw)

    def _next_log(self, connection: Any) -> None:
        number = self._log_of[connection] = next(self._left, ALL_READ)
        if number == ALL_READ:
            del self._log_of[connection]
        connection.send(number)
