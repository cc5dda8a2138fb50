"""Processes that read, parse, mask and hash logs, and send their events in chunks to a scan.

What a process sends is decided by its log alone. Ids that count the events of a run in all logs, and what logs share
(records that one session copies from another), are left to the scan: see `streamproc.replay.parallel`.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Union

import msgspec

from streamproc.errors import InvalidEvent, Problem
from streamproc.fingerprint import HashKey
from streamproc.importers import FORMATS, Format, Import
from streamproc.importers.log_file import LogFile
from streamproc.model.unknown_fields import UnknownFields
from streamproc.model.wire import TYPED, Event, Turn
from streamproc.replay.scan import size_of
from streamproc.replay.shared_import import ClaimingImport, Claims
from streamproc.replay.source import LogEvent, LogOpener, Source
from streamproc.replay.turn_log import packed_turn

if TYPE_CHECKING:
    TypedEvent = Event
else:
    TypedEvent = Union[TYPED]  # noqa: UP007  # of a tuple

CHUNK_EVENTS: Final = 64  # 50 to 100 KB: a connection takes so much without waiting for the scan
ALL_READ: Final = -1  # sent to a process in place of the number of a log
LOG_READ: Final = b"."  # sent by a process after the last chunk of a log


class ReadingPlan(NamedTuple):
    """What every process is told when it starts."""

    paths: list[str]
    names: list[str]  # of the format of each log
    formats: tuple[Format, ...]  # those beside `FORMATS`
    lenient: bool
    strict: bool
    secret: str  # of the hash key; empty: none
    pack: bool  # whether to send what is kept of turns
    required: list[bool]  # whether a mistake in a log ends the scan


class Chunk(msgspec.Struct, array_like=True):
    """Some events of a log, and how far it is read."""

    number: int  # of the log
    events: list[tuple[TypedEvent, bytes | None, int, str, str]] = []
    """An event and its place, as `ScanEvent` has them, and its run's id before redaction; empty if that is the same."""
    position: int = 0  # in bytes
    claims: Claims | None = None
    summary: bytes = b""  # of the last chunk of a log

    def add(self, found: LogEvent, *, pack: bool) -> None:
        """Add an event."""
        event, raw, number, unit = found
        packed = packed_turn(event, raw, number, unit) if pack and type(event) is Turn else None
        run_id = raw["run_id"]
        self.events.append((event, packed, number, unit, "" if run_id == event.run_id else run_id))


class LogSummary(NamedTuple):
    """What is known of a log after it was read, and why that ended early: mistakes in it, an error, or a defect."""

    lines: int
    bad: int
    unknown_fields: UnknownFields
    reading: Import
    problems: tuple[Problem, ...] = ()
    error: OSError | None = None
    trace: str = ""


encode_chunk: Final = msgspec.msgpack.Encoder().encode
decode_chunk: Final = msgspec.msgpack.Decoder(Chunk).decode


def read_logs(plan: ReadingPlan, connection: Connection) -> None:
    """Read the logs whose numbers come through the connection. The main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; the scan ends this one
    key = HashKey.of(plan.secret)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the scan has ended
        while (number := connection.recv()) != ALL_READ:
            _read_log(plan, number, key, connection)


def _read_log(plan: ReadingPlan, number: int, key: HashKey | None, connection: Connection) -> None:
    reading = ClaimingImport(lenient=plan.lenient)
    unknown_fields = UnknownFields(strict=plan.strict)
    formats = (*plan.formats, *FORMATS)
    opener = LogOpener(plan.names[number], formats, plan.lenient, unknown_fields, reading)
    log = LogFile(plan.paths[number], lenient=plan.lenient)
    log.required = plan.required[number]
    failure: dict[str, Any] = {}
    source: Source | None = None
    chunk = Chunk(number)
    try:
        source = opener.source(log)
        for found in source.read_without_ids(key):
            chunk.add(found, pack=plan.pack)
            if len(chunk.events) >= CHUNK_EVENTS:
                chunk.position, chunk.claims = log.position, reading.take()
                connection.send_bytes(encode_chunk(chunk))
                chunk = Chunk(number)
        if log.failure is not None:
            raise log.failure
    except (BrokenPipeError, ConnectionResetError):
        raise  # the scan has ended
    except InvalidEvent as error:
        failure["problems"] = error.problems
    except OSError as error:
        failure["error"] = error
    except Exception:  # noqa: BLE001  # a defect, reported by the scan
        failure["trace"] = traceback.format_exc()
    lines, bad = (0, 0) if source is None else (source.lines, source.bad)
    plain = Import(tallies=reading.tallies, notes=reading.notes)
    chunk.position, chunk.claims = size_of(log), reading.take()
    chunk.summary = pickle.dumps(LogSummary(lines, bad, unknown_fields, plain, **failure))
    connection.send_bytes(encode_chunk(chunk))
    connection.send_bytes(LOG_READ)
