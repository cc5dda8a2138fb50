"""Read raw events from JSONL: files, also compressed ones, and standard input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from streamproc.errors import InvalidEvent, Problem, plural
from streamproc.fingerprint import HashKey, fingerprint, is_fingerprinted, plain_turn, read_event
from streamproc.importers import FORMATS, Format, Import, Imported, LogFile
from streamproc.importers.discovery import UNKNOWN, contradicted, format_of, log_paths, named, others_in
from streamproc.importers.log_bytes import records_of
from streamproc.importers.log_file import STDIN as STDIN
from streamproc.importers.raw_turns import line_event_id
from streamproc.model.nesting import DEPTH_MAX, depth_exceeds
from streamproc.model.raw_events import RawEvent, parse_raw, read_json
from streamproc.model.unknown_fields import UnknownFields
from streamproc.model.wire import Event, Turn

T = TypeVar("T")

SKIPPED_SHOWN: Final = 20  # names of skipped files in a sentence


class Line(NamedTuple):
    """One event of a file and its line number (from 1)."""

    number: int
    raw: RawEvent | Event  # an event that is fingerprinted already, as `streamproc export` writes them


class LogEvent(NamedTuple):
    """An event of a log, fingerprinted, with what it was made of and its place."""

    event: Event
    raw: Mapping[str, Any]  # the fields as the log has them, before they are checked
    number: int  # of the line, step, event or span that began it
    unit: str  # what `number` counts


class Source:
    """The events of one file, in file order. After reading, `bad` counts the skipped lines.

    An event without an id gets one derived from its run and its position in the run, so a scan of a file and the
    published file have the same event ids, and a file that is published twice is recognised. If a run continues in
    another file, pass the same `ordinals` (the count of events of each run) to both sources. Sources may also share
    `unknown_fields`; a strict one refuses lines with unknown fields.

    A source whose log is not required ends where it cannot be read any further, and `failure` says why.
    """

    def __init__(
        self,
        path: str | Path | LogFile,
        *,
        lenient: bool = False,
        ordinals: Counter[str] | None = None,
        unknown_fields: UnknownFields | None = None,
    ) -> None:
        self.log = path if isinstance(path, LogFile) else LogFile(path)
        self.path = self.log.path
        self.lenient = lenient
        self.lines = self.bad = 0
        self.unknown_fields = UnknownFields() if unknown_fields is None else unknown_fields
        self._ordinals: Counter[str] = Counter() if ordinals is None else ordinals

    def __iter__(self) -> Iterator[Line]:
        """Raise `InvalidEvent` with file and line at the first bad line, unless lenient; `OSError` for the file."""
        for number, raw in self._read_each(self._raw):
            yield Line(number, raw)

    def to_publish(self, key: HashKey | None) -> Iterator[Line]:
        """Yield the same for a publisher with this key, which sends no content: ordinary turns are fingerprinted."""

        def made(line: bytes) -> RawEvent | Event:
            data = read_json(line)
            turn = plain_turn(data, key)
            if turn is None:
                return self._raw(line)
            self.identify(turn, data["run_id"])
            return turn

        for number, event in self._read_each(made):
            yield Line(number, event)

    def read(self, key: HashKey | None = None) -> Iterator[LogEvent]:
        """Yield the events fingerprinted, with their fields and places. Raises as iterating does."""
        for found in self.read_without_ids(key):
            self.identify(found.event, found.raw["run_id"])
            yield found

    def read_without_ids(self, key: HashKey | None = None) -> Iterator[LogEvent]:
        """Yield the same, where events without an id have none yet. Pass each to `identify`, in the order of all."""
        try:
            yield from self._log_events(key)
        except (InvalidEvent, OSError) as error:
            self.fail(error)

    def fail(self, error: InvalidEvent | OSError) -> None:
        """Raise an error that ends this log, or keep it if the log is not required."""
        if self.log.required:
            raise error
        self.log.failure = error

    @property
    def failure(self) -> InvalidEvent | OSError | None:
        """Why the log could not be read to its end; None if it was."""
        return self.log.failure

    def _log_events(self, key: HashKey | None) -> Iterator[LogEvent]:
        def made(line: bytes) -> tuple[Event, Mapping[str, Any]]:
            data = read_json(line)
            if is_fingerprinted(data):
                event = read_event(line)
                texts = event.content or {} if isinstance(event, Turn) else {}
                return event, {"w": event.w, "run_id": event.run_id} | texts
            return self._event(data, key), data

        for number, (event, data) in self._read_each(made):
            yield LogEvent(event, data, number, "line")

    def identify(self, event: Event, run_id: str) -> None:
        """Count an event of a run, whose id is the one before redaction, and give it an id if it has none."""
        ordinal = self._ordinal(run_id)
        if not event.event_id:
            event.event_id = line_event_id(run_id, ordinal)

    def _event(self, data: Any, key: HashKey | None) -> Event:
        turn = plain_turn(data, key, local=True)
        if turn is not None:
            return turn
        raw = parse_raw(data)
        self.unknown_fields.add(raw)
        return fingerprint(raw, key=key, local=True)

    @property
    def names(self) -> Import | None:
        """What knows the names of runs; None for raw turns, which have none."""
        return None

    def _read_each(self, read: Callable[[bytes], T]) -> Iterator[tuple[int, T]]:
        """Yield the number of each line, and what `read` makes of it."""
        for number, line in self.numbered():
            try:
                found = read(line)
            except InvalidEvent as error:
                yield from self._read_records(number, records_of(line), read, error)
            else:
                yield number, found

    def _read_records(
        self, number: int, records: list[bytes], read: Callable[[bytes], T], error: InvalidEvent
    ) -> Iterator[tuple[int, T]]:
        """Yield what `read` makes of the objects that stand on one line, if they are several."""
        try:
            if len(records) == 1:
                raise error
            for record in records:
                yield number, read(record)
        except InvalidEvent as wrong:
            if not self.lenient:
                raise self._placed(wrong, number) from None
            self.bad += 1

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, with their numbers; of a JSON list, its items."""
        for number, line in self._items() or self.log.lines():
            self.lines = number
            yield number, line

    def _items(self) -> Iterator[tuple[int, bytes]] | None:
        """Return the events of a file that is one JSON list; None for lines."""
        document = self.log.document()
        if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
            return None
        return ((row.number, _line(row.data)) for row in self.log.rows())

    def _raw(self, line: bytes) -> RawEvent | Event:
        data = read_json(line)
        if not is_fingerprinted(data):
            return self._checked(parse_raw(data))
        event = read_event(line)
        self.identify(event, event.run_id)
        return event

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
        place = f"{self.log.name}:{number}"
        return InvalidEvent([replace(problem, place=place) for problem in error.problems])


class ImportedSource(Source):
    """The events of a log of another tool."""

    def to_publish(self, key: HashKey | None) -> Iterator[Line]:  # noqa: ARG002 (events of the importer are parsed)
        """Yield the events, parsed."""
        return iter(self)

    def __init__(self, log: LogFile, format_: Format, reading: Import, *, ordinals: Counter[str] | None = None) -> None:
        super().__init__(log, lenient=reading.lenient, ordinals=ordinals, unknown_fields=UnknownFields(strict=True))
        self.format, self.reading = format_, reading

    def __iter__(self) -> Iterator[Line]:
        for found in self._imported():
            yield Line(found.number, self._checked(parse_raw(found.event)))

    def _log_events(self, key: HashKey | None) -> Iterator[LogEvent]:
        for found in self._imported():
            yield LogEvent(self._event(found.event, key), found.event, found.number, found.unit)

    @property
    def names(self) -> Import | None:
        return self.reading

    def _imported(self) -> Iterator[Imported]:
        """Yield the raw events, and count them."""
        tally = self.reading.tally(self.format.name)
        tally.files += 1
        for found in self.reading.births(self.format.read(self.log, self.reading)):
            self.lines += 1
            tally.count(found.event)
            yield found
        tally.bad_lines += self.log.bad_lines
        if self.log.cut_off:
            tally.notes[f"{self.log.name}: the last line is cut off, and was skipped"] = None


def open_logs(
    paths: Iterable[str],
    *,
    format_name: str | None = None,
    formats: Sequence[Format] = FORMATS,
    lenient: bool = False,
    unknown_fields: UnknownFields | None = None,
    leave_out: Collection[str] = (),
) -> tuple[list[Source], Import]:
    """Return the logs that paths mean, each ready to be read in its format, and what they share.

    `format_name` is the format of all of them; without it, each log's content tells. Raises `InvalidEvent` for a log of
    no known format, and `OSError` for a file. Files of no known format that a directory or a pattern brought, or a
    lenient reading, are skipped with a sentence, as long as there are others; so are unreadable ones of a directory or
    a pattern. The logs in `leave_out` are not opened.
    """
    return LogOpener(format_name, formats, lenient, unknown_fields).opened(list(paths), leave_out)


class LogOpener:
    """Finds the format of logs, and makes sources of them that share what one scan shares."""

    def __init__(
        self,
        format_name: str | None = None,
        formats: Sequence[Format] = FORMATS,
        lenient: bool = False,
        unknown_fields: UnknownFields | None = None,
        reading: Import | None = None,
    ) -> None:
        self.reading = Import(lenient=lenient) if reading is None else reading
        self.ordinals: Counter[str] = Counter()
        self.unknown_fields = UnknownFields() if unknown_fields is None else unknown_fields
        self.skipped: dict[str, InvalidEvent | OSError] = {}
        """Why files were skipped that could not be opened, by path."""
        self._format_name, self._formats, self._lenient = format_name, formats, lenient

    def opened(
        self,
        paths: list[str],
        leave_out: Collection[str] = (),
        *,
        found: Sequence[str] = (),
        exclude: Sequence[str] = (),
        go_on: bool = False,
    ) -> tuple[list[Source], Import]:
        """Return the logs that paths mean, and those that were `found` elsewhere, and what they share.

        With `go_on`, a file that cannot be read is skipped, unless it is the only path: `skipped` has the errors of
        those that cannot be opened. Otherwise raises as `open_logs` does.
        """
        sources: list[Source] = []
        self.skipped.clear()
        away: list[str] = []
        meant = log_paths(paths, away, exclude) if paths else []
        alone = meant == paths and len(paths) == 1 and not found
        for path in dict.fromkeys((*meant, *found)):
            if path not in leave_out:
                sources += self._opened(path, required=alone if go_on else path in paths, go_on=go_on)
        if not sources and self.skipped:
            raise next(iter(self.skipped.values()))
        if not sources and exclude:
            raise InvalidEvent([Problem("--exclude", "it matches every log", "leave fewer out")])
        self._note_skipped(away)
        return sources, self.reading

    def _opened(self, path: str, *, required: bool, go_on: bool) -> list[Source]:
        """Return the source of a path; none if it cannot be opened and is not required."""
        log = LogFile(path, lenient=self._lenient)
        log.required = required or not go_on
        try:
            return [self.source(log)]
        except InvalidEvent as error:
            if required and not self._lenient:
                raise
            self.skipped[path] = error
        except OSError as error:
            if required or error.filename is None:
                raise
            self.skipped[path] = error
        return []

    def _note_skipped(self, away: Sequence[str]) -> None:
        notes = self.reading.notes
        if away:
            notes[f"skipped {plural(len(away), 'link')} out of the directory: {_shown(away)}"] = None
        foreign = [error for error in self.skipped.values() if UNKNOWN in str(error)]
        if foreign:
            notes[_skipped(foreign, "of no known format")] = None
        if unreadable := [error for error in self.skipped.values() if error not in foreign]:
            notes[_skipped(unreadable, "that cannot be read")] = None

    def source(self, log: LogFile) -> Source:
        """Return a log as a source. Raises `InvalidEvent` for one of no known format, and `OSError` for a file."""
        if self._format_name is None:
            found = format_of(log, self._formats)
            if found is not None and (others := others_in(log, found, self._formats)):
                told = f"{log.name}: read as {found.name}; it also has records of {' and '.join(others)}, which were"
                self.reading.notes[f"{told} left out: give each tool's log as a file of its own"] = None
        else:
            found = named(self._format_name, self._formats)
            if other := contradicted(log, found, self._formats):
                what, remedy = f"it is no log of {self._format_name}, but of {other}", "leave --from out"
                raise InvalidEvent([Problem("format", what, remedy, log.name)])
        log.release()
        if found is None:
            return Source(log, lenient=self._lenient, ordinals=self.ordinals, unknown_fields=self.unknown_fields)
        return ImportedSource(log, found, self.reading, ordinals=self.ordinals)


def _skipped(errors: Sequence[InvalidEvent | OSError], why: str) -> str:
    names = [_skipped_name(error) for error in errors]
    return f"skipped {plural(len(names), 'file')} {why}: {_shown(names)}"


def _shown(names: Sequence[str]) -> str:
    more = len(names) - SKIPPED_SHOWN
    return ", ".join(names[:SKIPPED_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _skipped_name(error: InvalidEvent | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename} ({error.strerror})"
    problem = error.problems[0]
    return problem.place if UNKNOWN in problem.what else f"{problem.place} ({problem.what})"


def _line(item: dict[str, Any]) -> bytes:
    """Return an item of a JSON list as a line. Of a field that is nested more deeply than JSON can be written, only
    that it is: such a field is refused."""
    try:
        return orjson.dumps(item)
    except TypeError:
        deep: Any = 0
        for _ in range(DEPTH_MAX + 1):
            deep = [deep]
        return orjson.dumps({name: deep if depth_exceeds(one, DEPTH_MAX) else one for name, one in item.items()})
