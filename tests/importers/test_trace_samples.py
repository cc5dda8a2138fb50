"""Samples of all trace formats: what they become, which format they are, and what happens to damaged ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from streamproc.importers import FORMATS, Import, LogFile, LogRow
from streamproc.model.raw_events import parse_raw
from tests.importers.reading import SAMPLES, events_of, places, written

FOLDERS = ("otlp", "langfuse", "langsmith")
LOGS = [path for folder in FOLDERS for path in sorted((SAMPLES / folder).iterdir()) if ".expected" not in path.suffixes]
NAMES = [str(path.relative_to(SAMPLES)) for path in LOGS]


@pytest.mark.parametrize("path", LOGS, ids=NAMES)
def test_a_sample_becomes_its_golden_events(path: Path) -> None:
    assert events_of(path) == json.loads(path.with_suffix(".expected.json").read_text())


@pytest.mark.parametrize("path", LOGS, ids=NAMES)
def test_a_sample_is_of_one_format(path: Path) -> None:
    sample = LogFile(path).sample()
    assert [one.name for one in FORMATS if one.matches(sample)] == [path.parent.name]


@pytest.mark.parametrize("path", [path for path in LOGS if path.suffix == ".jsonl"], ids=str)
def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(path: Path, tmp_path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:2] or lines)[:-20] if len(lines) > 2 else lines[0] + lines[0][:-20])
    events_of(cut)


def test_samples_that_are_read_twice_count_once() -> None:
    for path in LOGS:
        reading = Import()
        first = events_of(path, reading=reading)
        assert first
        assert events_of(path, reading=reading) == []
        assert reading.tally(path.parent.name).repeated > 0


# Records of any shape

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**70), st.floats(allow_nan=False), st.text(max_size=5),
    st.sampled_from(["[", "{}", "None", "[{", "x" * 300, "9" * 30, "1e400", "0001-01-01", "9999-12-31T23:59:59"]),
    st.lists(st.none() | st.text(max_size=3) | st.dictionaries(st.text(max_size=3), st.none()), max_size=3),
    st.dictionaries(st.sampled_from(["type", "id", "name", "values", "kwargs", "content"]), st.integers(), max_size=3),
)  # fmt: skip


def changed(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    node = value
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = junk
    return value


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_record_of_any_shape_never_raises(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(LOGS))
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.suffix == ".jsonl" else None
    rows = rows or [json.loads(path.read_text())]
    rows = copy.deepcopy(rows)
    for _ in range(data.draw(st.integers(1, 6))):
        index = data.draw(st.integers(0, len(rows) - 1))
        rows[index] = changed(rows[index], data.draw(st.sampled_from([(), *places(rows[index])])), data.draw(JUNK))
    one = next(one for one in FORMATS if one.name == path.parent.name)
    for event in one.read(_Rows(rows), Import()):  # type: ignore[arg-type]
        assert parse_raw(event.event).unknown_fields == ()


class _Rows:
    """A log in memory."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = json.loads(json.dumps(rows))

    def is_document(self) -> bool:
        return False

    def rows(self) -> Any:
        return (LogRow(number, row) for number, row in enumerate(self._rows, start=1))


def test_names_that_are_too_long_end_in_a_hash(tmp_path: Path) -> None:
    text = (SAMPLES / "otlp/generation_b.jsonl").read_text().replace("conv-1", "c" * 400).replace("buyer", "b" * 300)
    path = tmp_path / "long.jsonl"
    path.write_text(text)
    events = events_of(path)
    assert {len(event["run_id"]) for event in events} == {256}
    assert {len(event["node"]) for event in events if "node" in event} == {256}


def test_arguments_that_are_nested_too_deeply_are_kept_as_text(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(120):
        deep = [deep]
    row = json.loads((SAMPLES / "langsmith/runs.jsonl").read_text().splitlines()[4])
    row["inputs"] = {"deep": deep}
    [call] = [call for event in events_of(written(tmp_path / "deep.jsonl", [row])) for call in event["tool_calls"]]
    assert isinstance(call["args"], str)
