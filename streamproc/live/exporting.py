"""The turns of `streamproc up` as records for Kafka: the same events with the same ids, so the same decisions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streamproc.importers.raw_turns import line_event_id
from streamproc.kafka.local_log import open_local
from streamproc.kafka.topic_reader import BATCH_RECORDS_MAX
from streamproc.live.store import TURNS
from streamproc.model.wire import Event, Turn, decode
from streamproc.replay.source import Line
from streamproc.settings import Settings


class ExportedLog:
    """The events of a log, in its order, of a run or of all: each at its log time, without texts unless they are asked
    for."""

    lenient = False  # as a `Source` that is published has it

    def __init__(self, settings: Settings, path: Path, *, run_id: str = "", include_content: bool = False) -> None:
        self.path, self.bad = str(path), 0
        self._settings, self._log = settings, path
        self._run_id, self._include_content = run_id, include_content

    def __iter__(self) -> Iterator[Line]:
        """Yield the events, numbered. Raises `Unavailable` if there is no such log."""
        for number, event in enumerate(self.events(), start=1):
            yield Line(number, event)

    def events(self) -> Iterator[Event]:
        """Yield the same without numbers."""
        with open_local(self._settings, self._log, TURNS) as reader:
            for first in range(0, reader.end(), BATCH_RECORDS_MAX):
                for record in reader.read(reader.topic, TURNS, first, first + BATCH_RECORDS_MAX - 1):
                    event = decode(record.value or b"")
                    if not self._run_id or event.run_id == self._run_id:
                        yield self._as_exported(event, record.offset, record.timestamp)

    def _as_exported(self, event: Event, position: int, at_ms: int) -> Event:
        event.at = at_ms
        event.event_id = event.event_id or line_event_id(event.run_id, position)  # from before the log had ids
        if isinstance(event, Turn) and not self._include_content:
            event.content = None
        return event
