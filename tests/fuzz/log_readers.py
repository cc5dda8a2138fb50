"""Readers of what other programs have recorded: bodies of OTLP, and logs in files."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from streamproc.errors import InvalidEvent
from streamproc.importers.genai_spans import SpanRecord, step_of
from streamproc.otel import UnreadableSpans, wire_size
from streamproc.otel.decoding import Encoding, read_spans, unpacked
from streamproc.replay.source import Source, open_logs
from tests.fuzz.reader import NOTHING, Reader
from tests.importers.reading import SAMPLES
from tests.importers.traces import agent_span, export, tool_span
from tests.otel.test_receiver import protobuf_of

SAMPLE_BYTES_MAX: Final = 20_000
UNPACKED_MAX: Final = 1 << 20


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fuzz-")  # kept until the process ends


def _spans() -> dict[str, Any]:
    return export(tool_span(1, {"query": "bikes"}, "nothing", parent=2), agent_span(2))


@cache
def _bodies(encoding: Encoding) -> list[bytes]:
    return [protobuf_of(_spans()) if encoding == "protobuf" else orjson.dumps(_spans())]


def _read_protobuf(body: bytes) -> list[SpanRecord]:
    """Read a body, and count what it would take, as is done for large ones only."""
    try:
        wire_size._walk(body, 1 << 40)
    except (wire_size.NotProtobuf, IndexError):
        return []
    return list(read_spans(body, "protobuf"))


def _read_packed(body: bytes) -> list[SpanRecord]:
    """Read a packed body; hardly any change of one can be unpacked."""
    try:
        return list(read_spans(unpacked(body, UNPACKED_MAX), "json"))
    except (OverflowError, UnreadableSpans):
        return []


def _use_spans(spans: list[SpanRecord]) -> None:
    for span in spans:
        assert step_of(span).size > 0


@cache
def _logs() -> list[bytes]:
    """Return a log of each format, as far as it is short and tells its format."""
    files = sorted(path for path in SAMPLES.rglob("*") if path.suffix in (".json", ".jsonl", ".traj"))
    found = [path.read_bytes() for path in files if path.stat().st_size <= SAMPLE_BYTES_MAX]
    return [log for log in found if _read_packed_log(log)]


def _read_log(data: bytes, name: str = "log.jsonl") -> list[Source]:
    path = Path(_folder().name, name)
    path.write_bytes(data)
    return open_logs([str(path)])[0]


def _read_packed_log(data: bytes) -> list[Source]:
    with contextlib.suppress(InvalidEvent):
        return _read_log(data, "log.json.gz")
    return []


def _use_log(sources: list[Source]) -> None:
    """Read all events: each is one, or the log is refused."""
    for source in sources:
        try:
            for found in source.read():
                assert found.event.run_id
        except InvalidEvent:
            return


LOG_READERS: Final = {
    "a body of OTLP in protobuf": Reader(
        lambda: _bodies("protobuf"), _read_protobuf, (UnreadableSpans,), _use_spans, restructured=False
    ),
    "a body of OTLP in JSON": Reader(
        lambda: _bodies("json"), lambda raw: list(read_spans(raw, "json")), (UnreadableSpans,), _use_spans
    ),
    "a packed body of OTLP": Reader(
        lambda: [gzip.compress(body) for body in _bodies("json")], _read_packed, NOTHING, _use_spans,
        restructured=False,
    ),
    "a log of another tool": Reader(_logs, _read_log, (InvalidEvent,), _use_log, share=0.2),
    "a packed log": Reader(
        lambda: [gzip.compress(log) for log in _logs()], _read_packed_log, NOTHING, _use_log, restructured=False,
        share=0.1,
    ),
}  # fmt: skip
