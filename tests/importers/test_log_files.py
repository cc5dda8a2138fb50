"""Logs as files: rows and documents, compressed, cut off, in directories."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from streamproc.errors import InvalidEvent
from streamproc.importers import Format, Import, LogFile
from streamproc.importers.discovery import format_of, log_paths, named, others_in
from streamproc.importers.log_bytes import UTF8_MARK, records_of

ROWS = [{"n": number} for number in range(3)]
ODD_EVEN_RAW_NEW = ({"odd": 1}, {"even": 2}, {"run_id": "r", "node": "n"}, {"type": "new"})
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
ODD = Format("odd", "odd logs", lambda sample: "odd" in str(sample.rows), lambda _log, _import: iter(()))


def written(path: Path, content: bytes) -> LogFile:
    path.write_bytes(content)
    return LogFile(path)


def data(log: LogFile) -> list[object]:
    return [row.data for row in log.rows()]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
def test_rows_of_lines(tmp_path: Path, compress: type[bytes]) -> None:
    log = written(tmp_path / "log", compress(LINES))
    assert [tuple(row) for row in log.rows()] == [(1, {"n": 0}), (2, {"n": 1}), (3, {"n": 2})]
    assert log.sample().rows == ROWS
    assert log.sample().document is None


def test_frames_of_zstandard_are_one_log(tmp_path: Path) -> None:
    log = written(tmp_path / "log.zst", zstandard.compress(LINES) + zstandard.compress(LINES * 10_000))
    assert len(data(log)) == len(ROWS) * 10_001


@pytest.mark.parametrize("indent", [None, 2])
def test_rows_of_a_list(tmp_path: Path, indent: int | None) -> None:
    log = written(tmp_path / "log.json", json.dumps(ROWS, indent=indent).encode())
    assert data(log) == ROWS
    assert log.sample().document == ROWS


@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_is_its_only_row(tmp_path: Path, indent: int | None) -> None:
    log = written(tmp_path / "log.json", json.dumps({"rows": ROWS}, indent=indent).encode())
    assert data(log) == [{"rows": ROWS}]
    assert log.document() == {"rows": ROWS}


def test_blank_lines_count_as_lines(tmp_path: Path) -> None:
    log = written(tmp_path / "log", b'{"n":0}\n\n  \n{"n":1}\n')
    assert [row.number for row in log.rows()] == [1, 4]


def test_a_last_line_that_is_cut_off_is_skipped_and_reported(tmp_path: Path) -> None:
    log = written(tmp_path / "log", LINES[:-4])
    assert data(log) == ROWS[:-1]
    assert log.cut_off


def test_another_line_that_is_no_json_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = written(path, b'{"n":0}\nnonsense\n{"n":1}\n')
    with pytest.raises(InvalidEvent, match=rf"{path}:2: line: no JSON.*--lenient"):
        data(log)
    log = LogFile(path, lenient=True)
    assert data(log) == [{"n": 0}, {"n": 1}]
    assert log.bad_lines == 1


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
def test_the_byte_order_mark_of_a_text_is_skipped(tmp_path: Path, compress: type[bytes]) -> None:
    log = written(tmp_path / "log", compress(UTF8_MARK + LINES))
    assert (log.sample().rows, data(log)) == (ROWS, ROWS)
    assert data(written(tmp_path / "log.json", compress(UTF8_MARK + json.dumps(ROWS, indent=1).encode()))) == ROWS


UNUSABLE = {
    "UTF-16": ("\ufeff" + LINES.decode()).encode("utf-16-le"),
    "UTF-16 ": ("\ufeff" + LINES.decode()).encode("utf-16-be"),
    "binary": LINES.decode().encode("utf-16-le"),
    "binary ": bytes(range(256)) * 9,
    "zip archive": b"PK\x03\x04" + b"\x00" * 60,
    "bzip2": bz2.compress(LINES),
    "xz": lzma.compress(LINES),
    "tar archive": gzip.compress(tarfile.TarInfo("a.jsonl").tobuf()),
    "its first lines are no JSON": b"level=info\nlevel=warn\n",
    "cut off or damaged": b'[\n  {"n": 0},\n',
}


@pytest.mark.parametrize("name", list(UNUSABLE))
def test_what_is_no_log_is_named(tmp_path: Path, name: str) -> None:
    log = written(tmp_path / "log", UNUSABLE[name])
    with pytest.raises(InvalidEvent, match=rf"log: format: .*{name.strip()}.* \(.*\)"):
        format_of(log, [ODD])


def test_a_line_in_another_encoding_is_named(tmp_path: Path) -> None:
    log = written(tmp_path / "log", LINES + '{"n": "é"}\n'.encode("latin-1") + LINES)
    with pytest.raises(InvalidEvent, match=r"log:4: line: not UTF-8: .* at byte 8 "):
        data(log)


def test_other_formats_at_both_ends_of_a_log_are_found(tmp_path: Path) -> None:
    formats = [ODD, Format("even", "even logs", lambda sample: "even" in str(sample.rows), ODD.read)]
    odd, even, raw, new = (json.dumps(row).encode() + b"\n" for row in ODD_EVEN_RAW_NEW)
    cases = {
        odd * 9 + new: [], odd + even: ["even"], odd * 30 + even: ["even"], odd * 30 + even + odd * 30: [],
        odd + raw: ["raw"], odd * 9_000 + even: ["even"], gzip.compress(odd * 30 + even): [],
        gzip.compress(odd + even): ["even"],
    }  # fmt: skip
    for content, others in cases.items():
        assert others_in(written(tmp_path / "log", content), ODD, formats) == others


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvent, match="damaged gzip"):
        data(written(tmp_path / "log.gz", gzip.compress(LINES * 1000)[:-20]))
    with pytest.raises(InvalidEvent, match="damaged Zstandard: it ends inside a frame"):
        data(written(tmp_path / "log.zst", zstandard.compress(LINES)[:-3]))
    with pytest.raises(InvalidEvent, match="damaged Zstandard"):
        data(written(tmp_path / "log.zst", zstandard.compress(LINES)[:6] + b"x" * 100))


def test_events_of_a_directory_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    events = tmp_path / "one" / "events"
    events.mkdir(parents=True)
    for number in (0, 2, 10):
        (events / f"event-{number:05}-abc.json").write_text(json.dumps({"id": number}))
    (events / "event-00011-abc.json").write_text("{")
    assert log_paths([str(tmp_path)]) == [str(tmp_path / "one")]
    log = LogFile(tmp_path / "one")
    assert [tuple(row) for row in log.rows()] == [(0, {"id": 0}), (2, {"id": 2}), (10, {"id": 10})]
    assert log.bad_lines == 1


def test_a_path_means_files_directories_and_patterns(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "c.txt", "deep/d.traj", "deep/.git/e.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINES)
    assert log_paths([str(tmp_path)]) == [str(tmp_path / name) for name in ("a.jsonl.gz", "b.jsonl", "deep/d.traj")]
    assert log_paths([str(tmp_path / "**/*.traj"), str(tmp_path / "c.txt")]) == [
        str(tmp_path / "deep/d.traj"), str(tmp_path / "c.txt"),
    ]  # fmt: skip
    with pytest.raises(InvalidEvent, match=r"no file matches \(give \.jsonl"):
        log_paths([str(tmp_path / "*.nothing")])


def test_the_format_is_found_by_content(tmp_path: Path) -> None:
    assert format_of(written(tmp_path / "odd.jsonl", b'{"odd": 1}\n{}\n'), [ODD]) is ODD
    assert format_of(written(tmp_path / "raw.jsonl", b'{"run_id": "r", "node": "n"}\n'), [ODD]) is None
    assert format_of(written(tmp_path / "empty.jsonl", b""), [ODD]) is None
    with pytest.raises(InvalidEvent, match=r"foreign.jsonl: format: its first .* no format .* --from: raw, odd"):
        format_of(written(tmp_path / "foreign.jsonl", b'{"a": 1}\n{"b": 2}\n'), [ODD])


def test_a_format_is_named() -> None:
    assert named("odd", [ODD]) is ODD
    assert named("raw", [ODD]) is None
    with pytest.raises(InvalidEvent, match="no format is named other"):
        named("other", [ODD])


def test_an_import_says_what_was_read() -> None:
    reading = Import()
    tally = reading.tally("odd")
    tally.count({"run_id": "a", "node": "n", "tool_calls": [{"name": "x", "result": ""}, {"name": "y"}]})
    tally.count({"run_id": "a/b", "parent_run_id": "a", "node": "n"})
    tally.count({"run_id": "a", "type": "user.message"})
    for kind in ("mode", "mode", None):
        tally.ignore(kind)
    tally.notes["cut off"] = None
    assert reading.sentences() == [
        "read as: odd (1 session, 1 sub-agent, 2 turns; 3 records of 2 unknown types ignored; "
        "50 % of calls have results)",
        "cut off",
    ]
    assert reading.is_new("x")
    assert not reading.is_new("x")


@pytest.mark.parametrize(
    "content",
    [LINES, gzip.compress(LINES), json.dumps(ROWS, indent=1).encode(), LINES[:8]],
    ids=["lines", "gzip", "document", "one line"],
)
def test_standard_input_is_looked_at_and_then_read(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
    log = LogFile("-")
    assert log.sample().rows == data(log)


def test_a_raw_turn_on_standard_input_does_not_wait_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"run_id": "r", "node": "n"}\n')
    monkeypatch.setattr("sys.stdin", os.fdopen(reading))
    log = LogFile("-")
    assert format_of(log, [ODD]) is None
    lines = log.lines()
    assert next(lines) == (1, b'{"run_id": "r", "node": "n"}\n')
    os.close(writing)
    assert list(lines) == []


@pytest.mark.parametrize(
    ("line", "records"),
    [
        (b'{"a": "}{"} {"b": {}}\n', [b'{"a": "}{"}', b' {"b": {}}']),
        (b'{"a": 1}{"b": ', [b'{"a": 1}', b'{"b":']),
        (b'{"a": 1},\n', [b'{"a": 1},\n']),
        (b'{"a": "\\"}{', [b'{"a": "\\"}{']),
        (b"}{", [b"}{"]),
    ],
)
def test_objects_on_one_line_are_told_apart(line: bytes, records: list[bytes]) -> None:
    assert records_of(line) == records


def test_rows_of_one_line_have_its_number(tmp_path: Path) -> None:
    log = written(tmp_path / "log", b'{"a": 1}{"b": 2}\n{"c": 3}\n')

    assert [(row.number, row.data) for row in log.rows()] == [(1, {"a": 1}), (1, {"b": 2}), (2, {"c": 3})]
    assert len(log.sample().rows) == 3
