"""Plain lists of chat messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import, LogFile
from streamproc.importers.messages import FORMAT, NO_RESULTS, NO_TOOLS
from tests.importers.reading import SAMPLES, calls, changed, expected, formats_that_match, halts, imported, written

SAMPLE_FILES = sorted((SAMPLES / "messages").iterdir())
DOCUMENTS = {path.name: [row.data for row in LogFile(path).rows()] for path in SAMPLE_FILES}
TASK = {"role": "user", "content": "Do it."}


def asked(call_id: str, name: str = "look", **args: Any) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def returned(call_id: str, text: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@pytest.mark.parametrize("path", SAMPLE_FILES, ids=lambda path: path.name)
def test_a_sample_is_read_as_expected(path: Path) -> None:
    assert imported(path) == expected(SAMPLES.parent / f"expected/messages/{path.stem}.jsonl")


@pytest.mark.parametrize("path", SAMPLE_FILES, ids=lambda path: path.name)
def test_a_sample_is_of_no_other_format(path: Path) -> None:
    assert formats_that_match(path) == ["messages"]


def test_records_of_claude_code_are_no_messages(tmp_path: Path) -> None:
    rows = [{"type": "system", "sessionId": "s", "uuid": "u", "content": "x", "timestamp": "2026-01-01T00:00:00Z"}]
    assert "messages" not in formats_that_match(written(tmp_path / "a.jsonl", rows * 3))


def test_one_list_is_the_same_as_document_and_line_by_line(tmp_path: Path) -> None:
    messages = [TASK, asked("1"), returned("1"), {"role": "assistant", "content": "Done."}]
    one = imported(written(tmp_path / "a.json", messages))
    other = imported(written(tmp_path / "a.jsonl", messages))
    wrapped = imported(written(tmp_path / "a.json", {"messages": messages}))
    assert [event.pop("#").split()[1] for event in other] == [event.pop("#").split()[1] for event in one]
    assert [event.pop("#") for event in wrapped] == ["message 1", "message 2", "message 4"]
    assert one == other == wrapped


def test_a_call_may_hold_its_result(tmp_path: Path) -> None:
    outputs = [("a.py", "success"), ("no such file", "error"), ("", "success")]
    made = [
        {"type": "tool_use", "id": f"c{n}", "name": "ls", "input": {}, "result": {"output": output, "status": status}}
        for n, (output, status) in enumerate(outputs)
    ]
    rows = [{"type": "user", "ts": "2026-01-01T00:00:00Z", "content": [{"text": "Look."}]}]
    rows += [{"type": "assistant", "ts": "2026-01-01T00:00:01Z", "content": made}]
    path, reading = written(tmp_path / "transcript.jsonl", rows), Import()
    events = imported(path, None, reading)
    assert [(call.get("result"), call.get("error")) for call in events[1]["tool_calls"]] == [
        ("a.py", None), (None, "no such file"), (None, None),
    ]  # fmt: skip
    assert events[1]["at"] == "2026-01-01T00:00:01Z"
    assert reading.tally("messages").answered == 2
    assert not reading.tally("messages").notes


def test_each_conversation_of_a_file_is_a_run_with_the_number_of_its_row(tmp_path: Path) -> None:
    events = imported(written(tmp_path / "a.jsonl", [{"messages": [TASK]}, {"id": 1}, {"messages": [TASK]}]))
    assert [event["run_id"] for event in events] == ["a/1", "a/3"]


def test_an_id_that_a_model_uses_again_means_its_newest_call(tmp_path: Path) -> None:
    rows = [TASK, asked("1", n=1), asked("1", n=2), returned("1", "second"), asked("1", n=3), returned("1", "third")]
    assert [call.get("result") for call in calls(written(tmp_path / "a.json", rows))] == [None, "second", "third"]


def test_parallel_calls_with_one_id_are_told_apart_by_name(tmp_path: Path) -> None:
    both = asked("1", "first")
    both["tool_calls"] += asked("1", "second")["tool_calls"]
    rows = [TASK, both, returned("1", "b") | {"name": "second"}, returned("1", "a") | {"name": "first"}]
    assert [call["result"] for call in calls(written(tmp_path / "a.json", rows))] == ["a", "b"]


def test_a_result_without_an_id_answers_the_oldest_open_call(tmp_path: Path) -> None:
    request = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    rows = [TASK, request, {"role": "function", "name": "look", "content": "x"}]
    assert calls(written(tmp_path / "a.json", rows)) == [{"name": "look", "args": {}, "result": "x"}]


def test_results_in_the_role_of_the_user_are_no_person() -> None:
    events = imported(SAMPLES / "messages/anthropic.jsonl")
    assert [event["#"] for event in events if event.get("type") == "user.message"] == ["line 1"]


def test_a_call_that_langchain_keeps_three_times_is_one_call() -> None:
    turns = [event for event in imported(SAMPLES / "messages/langchain.json") if "tool_calls" in event]
    assert [len(turn["tool_calls"]) for turn in turns] == [1, 1, 1]


def test_items_of_one_response_are_one_turn() -> None:
    turns = [event for event in imported(SAMPLES / "messages/responses.json") if "type" not in event]
    assert [len(turn.get("tool_calls", ())) for turn in turns] == [2, 1, 0]


def test_two_responses_of_anthropic_are_two_turns(tmp_path: Path) -> None:
    block = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    response = {"type": "message", "role": "assistant", "stop_reason": "tool_use", "content": [block]}
    assert len(imported(written(tmp_path / "a.json", [TASK, response, response]))) == 3


def test_a_call_that_stands_in_a_block_as_well_counts_once_whatever_its_id_is_called(tmp_path: Path) -> None:
    block = {"type": "tool_use", "tool_call_id": "t", "name": "look", "input": {"at": 1}}
    listed = {"id": "t", "function": {"name": "look", "arguments": '{"at": 1}'}}
    answer = {"role": "assistant", "content": [block], "tool_calls": [listed]}
    log = written(tmp_path / "a.json", [TASK, answer, returned("t")])
    (turn,) = [event for event in imported(log) if "tool_calls" in event]
    assert [(call["name"], call["result"]) for call in turn["tool_calls"]] == [("look", "ok")]


def test_images_are_named_and_not_kept() -> None:
    assert "base64" not in json.dumps(imported(SAMPLES / "messages/openai.json"))


def test_a_result_without_a_call_is_counted(tmp_path: Path) -> None:
    reading = Import()
    rows = [TASK, returned("7"), "odd", {"role": "alien", "content": ""}]
    imported(written(tmp_path / "a.json", rows), FORMAT, reading)
    assert dict(reading.tally("messages").ignored) == {"result without a call": 1, "str": 1, "alien": 1}


def test_what_cannot_be_seen_is_said(tmp_path: Path) -> None:
    reading = Import()
    imported(written(tmp_path / "a.json", [TASK, {"role": "assistant", "content": "x"}]), FORMAT, reading)
    assert list(reading.tally("messages").notes) == [NO_TOOLS]
    imported(written(tmp_path / "b.json", [TASK, asked("1")]), FORMAT, reading)
    assert list(reading.tally("messages").notes) == [NO_TOOLS, NO_RESULTS]


def test_memory_stays_flat_behind_a_call_that_nothing_answers(tmp_path: Path) -> None:
    rows = [TASK, asked("0"), *[{"role": "assistant", "content": f"{n}"} for n in range(100)]]
    log = LogFile(written(tmp_path / "a.jsonl", rows))
    taken: list[int] = []
    lines = log.rows
    log.rows = lambda: (taken.append(row.number) or row for row in lines())  # type: ignore[func-returns-value,method-assign]
    behind = [taken[-1] - event.number for event in FORMAT.read(log, Import())]
    assert len(behind) == 102
    assert max(behind) <= 33


def test_a_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [TASK, asked("1"), returned("1"), asked("2")])
    path.write_bytes(path.read_bytes()[:-10])
    assert [call.get("result") for call in calls(path)] == ["ok"]


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = [TASK, *[row for n in range(3) for row in (asked(f"{n}", a=1, b=2), returned(f"{n}", "nothing"))]]
    honest = [TASK, *[row for n in range(9) for row in (asked(f"{n}", page=n), returned(f"{n}", "ok"))]]
    conversations = [{"messages": stuck}, {"messages": honest}]
    assert halts(imported(written(tmp_path / "a.jsonl", conversations))) == {("a/1", "LOOP003")}


@pytest.mark.parametrize("shot", [
    lambda data: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    lambda data: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    lambda data: {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
])  # fmt: skip
def test_screens_that_differ_are_no_repeat(tmp_path: Path, shot: Callable[[str], dict[str, Any]]) -> None:
    def watched(*screens: str) -> list[Any]:
        rows = [(asked(f"{n}", "screenshot"), returned(f"{n}", [shot(data)])) for n, data in enumerate(screens)]
        return [TASK, *(row for pair in rows for row in pair)]

    assert not halts(imported(written(tmp_path / "a.json", watched("AA", "AB", "AC", "AD"))))
    assert halts(imported(written(tmp_path / "b.json", watched("AA", "AA", "AA")))) == {("b", "LOOP003")}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=changed(DOCUMENTS))
def test_any_shape_of_records_is_read(tmp_path: Path, documents: Any) -> None:
    for name, rows in documents.items():
        path = written(tmp_path / Path(name).with_suffix(".json"), rows)
        formats_that_match(path)
        imported(path, FORMAT)
