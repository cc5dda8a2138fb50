"""Raw events from files: which lines are events, their ids, and errors of bad lines."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.errors import InvalidEvent
from streamproc.fingerprint import HashKey, fingerprint
from streamproc.importers.raw_turns import line_event_id
from streamproc.model.unknown_fields import UnknownFields
from streamproc.model.wire import Event, Turn, encode
from streamproc.replay.source import STDIN, Source
from tests.laws.traces import EVENTS


def write(path: Path, *events: Any) -> Path:
    path.write_text("".join(f"{event if isinstance(event, str) else json.dumps(event)}\n" for event in events), "utf-8")
    return path


def turn(run: str, n: int = 0, **more: Any) -> dict[str, Any]:
    return {"run_id": run, "node": "agent", "output": f"step {n}", **more}


def test_an_event_has_its_line_number(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", turn("a"), "", "   ", turn("b"), {"type": "run.finished", "run_id": "a"})
    source = Source(path)
    lines = list(source)
    assert [(line.number, line.raw.run_id, line.raw.type) for line in lines] == [
        (1, "a", "turn"),
        (4, "b", "turn"),
        (5, "a", "run.finished"),
    ]
    assert (source.lines, source.bad) == (5, 0)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list_of_events_is_read_item_by_item(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([turn("a"), turn("b")], indent=indent))
    assert [(line.number, line.raw.run_id) for line in Source(path)] == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_any_line_ending_is_accepted(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes((json.dumps(turn("a")) + "\r\n" + json.dumps(turn("a")) + ending).encode())
    assert len(list(Source(path))) == 2


def test_an_event_id_is_derived_from_the_position_in_the_run(tmp_path: Path) -> None:
    events = [turn("a"), turn("b"), turn("a", event_id="own"), turn("a")]
    ids = [line.raw.event_id for line in Source(write(tmp_path / "runs.jsonl", *events))]
    assert ids == [line_event_id("a", 0), line_event_id("b", 0), "own", line_event_id("a", 2)]
    assert len(set(ids)) == 4


def test_reading_a_file_again_gives_the_same_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", *(turn("ab"[n % 2], n) for n in range(20)))
    again = write(tmp_path / "copy.jsonl", *path.read_text().splitlines())
    assert [line.raw.event_id for line in Source(path)] == [line.raw.event_id for line in Source(again)]


def test_event_ids_continue_in_the_next_file_of_a_run(tmp_path: Path) -> None:
    first, second = (write(tmp_path / f"{n}.jsonl", turn("a"), turn("a")) for n in range(2))
    ordinals: Counter[str] = Counter()
    ids = [line.raw.event_id for path in (first, second) for line in Source(path, ordinals=ordinals)]
    assert ids == [line_event_id("a", n) for n in range(4)]


def test_a_gzip_file_is_decompressed_whatever_its_name(tmp_path: Path) -> None:
    plain = write(tmp_path / "runs.jsonl", turn("a"), turn("b"))
    compressed = tmp_path / "runs.bin"
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [line.raw for line in Source(compressed)] == [line.raw for line in Source(plain)]


@pytest.mark.parametrize(
    "spoil", [lambda compressed: compressed[:-8], lambda compressed: compressed[:40] + b"\0" * 9 + compressed[49:]]
)
def test_a_damaged_gzip_file_is_an_error(tmp_path: Path, spoil: Any) -> None:
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(spoil(gzip.compress(b"".join(json.dumps(turn("a", n)).encode() + b"\n" for n in range(500)))))
    with pytest.raises(InvalidEvent, match="gzip"):
        list(Source(path, lenient=False))


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(turn("a")).encode())))
    assert [line.raw.run_id for line in Source(STDIN)] == ["a"]


def test_the_first_bad_line_ends_reading_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", turn("a"), "{oops", turn("b"))
    read = iter(Source(path))
    assert next(read).raw.run_id == "a"
    with pytest.raises(InvalidEvent, match="not JSON") as refusal:
        next(read)
    assert [problem.place for problem in refusal.value.problems] == [f"{path}:2"]


def test_every_problem_of_an_invalid_line_has_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", {"node": "", "at": "soon"})
    with pytest.raises(InvalidEvent) as refusal:
        list(Source(path))
    assert {(problem.field, problem.place) for problem in refusal.value.problems} == {
        (field, f"{path}:1") for field in ("run_id", "node", "at")
    }


def test_a_lenient_source_skips_and_counts_bad_lines(tmp_path: Path) -> None:
    bad = ["{oops", '{"run_id": "a"}', "null", "\ufffd", '{"type": "nonesuch", "run_id": "a"}']
    path = write(tmp_path / "runs.jsonl", turn("a"), *bad, turn("a", unexpected=1, of=2))
    source = Source(path, lenient=True)
    assert [(line.number, line.raw.event_id) for line in source] == [
        (1, line_event_id("a", 0)),
        (7, line_event_id("a", 1)),
    ]
    assert (source.bad, source.unknown_fields.total) == (5, 2)


def test_a_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(Source(tmp_path / "nonesuch.jsonl"))


def test_a_strict_source_refuses_an_unknown_field_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", turn("a"), turn("a", ouput="misspelt"), turn("a"))
    with pytest.raises(InvalidEvent, match=r"runs\.jsonl:2: ouput: unknown field \(did you mean output\?"):
        list(Source(path, unknown_fields=UnknownFields(strict=True)))
    lenient = Source(path, lenient=True, unknown_fields=UnknownFields(strict=True))
    assert [line.number for line in lenient] == [1, 3]
    assert lenient.bad == 1


def test_sources_may_share_their_count_of_unknown_fields(tmp_path: Path) -> None:
    unknown = UnknownFields()
    for name in "ab":
        list(Source(write(tmp_path / name, turn("r", mood=1)), unknown_fields=unknown))
    assert unknown.counts == {"mood": 2}


def test_fingerprints_are_those_of_the_events_with_the_same_ids_and_counts(tmp_path: Path) -> None:
    path = write(
        tmp_path / "runs.jsonl",
        turn("a"), turn("password=hunter2hunter2", 1), {"type": "run.started", "run_id": "a", "tenant": "t"},
        turn("a", 2, event_id="own"), turn("a", 3, ouput="x"), "{",
        turn("b", 4, tool_calls=[{"name": "t", "error": "boom"}]),
        turn("a", 5), turn("b", 6, at="noon"),
    )  # fmt: skip
    one, other = (Source(path, lenient=True) for _ in range(2))
    expected = [fingerprint(line.raw, local=True) for line in one]
    assert [found.event for found in other.read()] == expected
    assert len(expected) == 7
    assert (other.lines, other.bad, other.unknown_fields.counts) == (one.lines, one.bad, one.unknown_fields.counts)
    assert (one.bad, dict(one.unknown_fields.counts)) == (2, {"ouput": 1})


def test_reading_fingerprints_names_file_and_line_of_a_bad_one(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", turn("a"), turn("a", at="noon"))
    with pytest.raises(InvalidEvent) as caught:
        list(Source(path).read())
    assert caught.value.problems[0].place == f"{path}:2"


def test_an_item_of_a_list_that_no_library_can_write_again_is_refused_with_its_field(tmp_path: Path) -> None:
    """Libraries read deeper JSON than they write."""
    deep = '[{"a":' * 150 + "1" + "}]" * 150
    log = tmp_path / "list.json"
    log.write_text(f'[{{"run_id":"r","node":"n","usage":{{"total_tokens":{deep}}}}},{{"run_id":"r","node":"n"}}]')
    with pytest.raises(InvalidEvent, match=r"list\.json:1: usage: nested deeper than 100 levels"):
        list(Source(log).read())
    assert len(list(Source(log, lenient=True).read())) == 1


MORE: list[dict[str, Any]] = [{"event_id": "e"}, {"at": "2026-01-01T00:00:00Z"}, {"unknown": 1}, {"labels": {"a": "b"}}]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(MORE)), max_size=9), st.sampled_from(["", "key"]))
def test_what_is_published_is_the_same_whether_a_turn_is_ordinary(raws: list[Any], secret: str) -> None:
    """`to_publish` skips the model of forty fields, and nothing else."""
    key = HashKey.of(secret)
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder, "turns.jsonl"), *({"run_id": "r", **raw, **more} for raw, more in raws))
        checked = [fingerprint(line.raw, key=key) for line in Source(file)]
        lines = [line.raw for line in Source(file).to_publish(key)]
    published = [line if isinstance(line, Event) else fingerprint(line, key=key) for line in lines]
    assert [encode(event) for event in published] == [encode(event) for event in checked]


def test_an_ordinary_turn_is_published_without_its_model(tmp_path: Path) -> None:
    file = write(tmp_path / "turns.jsonl", turn("a"), turn("a", unknown=1), {"type": "run.finished", "run_id": "a"})
    assert [isinstance(line.raw, Turn) for line in Source(file).to_publish(None)] == [True, False, False]
