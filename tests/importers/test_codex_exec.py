"""Events of `codex exec --json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import
from streamproc.importers.raw_turns import NO_TIMES
from tests.importers.cli_logs import damaged, formats_found, read_log, samples_matched, shape
from tests.importers.reading import SAMPLES, Row, calls_of, halt_codes, turns_of, written

if TYPE_CHECKING:
    from pathlib import Path

NAME = "codex-exec"
SAMPLE = SAMPLES / NAME / "readme.jsonl"
STARTED = {"type": "thread.started", "thread_id": "t1"}
TURN = {"type": "turn.started"}


def item(item_id: str, kind: str, event: str = "completed", **more: Any) -> Row:
    return {"type": f"item.{event}", "item": {"id": item_id, "type": kind} | more}


def command(item_id: str, line: str, output: str = "", code: int | None = 0, event: str = "completed") -> Row:
    more = {"command": line, "aggregated_output": output, "exit_code": code}
    return item(item_id, "command_execution", event, **more, status="completed" if code == 0 else "failed")


def says(text: str) -> Row:
    return item("m", "agent_message", text=text)


def completed(tokens: int) -> Row:
    return {"type": "turn.completed", "usage": {"input_tokens": tokens, "cached_input_tokens": 1, "output_tokens": 1}}


def read(tmp_path: Path, *rows: Any, reading: Import | None = None) -> list[Row]:
    return read_log(NAME, written(tmp_path / "out.jsonl", rows), reading)


def test_the_sample() -> None:
    reading = Import()
    events = read_log(NAME, SAMPLE, reading)
    assert shape(events) == ["u", "command_execution", "Yep — there\u2019s a `README.md` in the repository root."]
    assert {event["run_id"] for event in events} == {"0199a213-81c0-7800-8aa1-bbab2a035a53"}
    assert calls_of(events)[0]["args"] == "bash -lc ls"
    assert calls_of(events)[0]["result"].endswith("sdk\ntmp\n")
    assert events[-1]["usage"] == {"input_tokens": 24763, "cached_tokens": 24448, "output_tokens": 122}
    assert reading.sentences()[1:] == [NO_TIMES]


def test_only_such_events_are_claimed(tmp_path: Path) -> None:
    assert samples_matched(NAME) == {NAME}
    written(tmp_path / "late.jsonl", [command("item_9", "ls")])
    assert formats_found(tmp_path) == {NAME}


def test_calls_that_run_side_by_side_are_one_turn(tmp_path: Path) -> None:
    rows = [command(name, name, code=None, event="started") for name in ("a", "b")]
    rows += [command("b", "b", "2"), command("a", "a", "1"), command("c", "c", "3")]
    assert [[call["result"] for call in turn["tool_calls"]] for turn in read(tmp_path, *rows)] == [["1", "2"], ["3"]]


def test_all_kinds_of_calls_are_read(tmp_path: Path) -> None:
    result = {"content": [{"type": "text", "text": "found"}], "structured_content": None}
    rows = [
        command("a", "false", "bad", 1),
        item("b", "mcp_tool_call", server="docs", tool="find", arguments={"q": 1}, result=result, status="completed"),
        item("c", "mcp_tool_call", server="docs", tool="find", error={"message": "down"}, status="failed"),
        item("d", "file_change", changes=[{"path": "a", "kind": "add"}], status="completed"),
        item("e", "web_search", query="q"),
        item("f", "collab_tool_call", tool="wait", receiver_thread_ids=["x"], agents_states={}, status="completed"),
        command("g", "sleep 9", code=None, event="started"),
    ]
    answers = [(call["name"], call.get("result"), call.get("error")) for call in calls_of(read(tmp_path, *rows))]
    assert answers == [
        ("command_execution", None, "Exit code 1\nbad"), ("mcp__docs__find", "found", None),
        ("mcp__docs__find", None, "down"),
        ("file_change", "completed", None), ("web_search", None, None), ("wait", "{}", None),
        ("command_execution", None, None),
    ]  # fmt: skip


def test_tokens_are_those_of_the_thread_and_count_once_for_each_prompt(tmp_path: Path) -> None:
    rows = [
        STARTED,
        TURN,
        says("a"),
        completed(10),
        TURN,
        says("b"),
        completed(35),
        STARTED,
        TURN,
        says("c"),
        completed(4),
    ]
    assert [turn["usage"]["input_tokens"] for turn in turns_of(read(tmp_path, *rows))] == [10, 25, 4]


def test_ids_of_items_begin_again_with_each_thread(tmp_path: Path) -> None:
    rows = [STARTED, command("item_1", "ls", "a"), STARTED | {"thread_id": "t2"}, command("item_1", "ls", "b")]
    events = read(tmp_path, *rows)
    assert [(event["run_id"], call["result"]) for event in events for call in event["tool_calls"]] == [
        ("t1", "a"), ("t2", "b"),
    ]  # fmt: skip


def test_a_call_that_never_ended_does_not_hide_one_with_its_id_in_the_next_thread(tmp_path: Path) -> None:
    begun = command("item_1", "ls", code=None, event="started")
    events = read(tmp_path, STARTED, begun, STARTED | {"thread_id": "t2"}, command("item_1", "pwd", "b"))
    assert [(event["run_id"], call["args"]) for event in events for call in event["tool_calls"]] == [
        ("t1", "ls"), ("t2", "pwd"),
    ]  # fmt: skip


def test_each_prompt_is_a_message(tmp_path: Path) -> None:
    assert shape(read(tmp_path, STARTED, TURN, says("a"), TURN, says("b"))) == ["u", "a", "u", "b"]


def test_a_declined_command_is_no_error(tmp_path: Path) -> None:
    declined = item("a", "command_execution", command="rm", exit_code=None, status="declined")
    events = read(tmp_path, declined)
    assert shape(events) == ["command_execution", "u"]
    assert calls_of(events)[0]["result"] == "declined"


def test_the_error_of_a_turn_repeats_that_of_the_stream(tmp_path: Path) -> None:
    rows = [{"type": "error", "message": "overloaded"}, {"type": "turn.failed", "error": {"message": "overloaded"}}]
    rows.append({"type": "turn.failed", "error": {"message": "unexpected status 401"}})
    reading = Import()
    assert [event["errors"][0]["message"] for event in read(tmp_path, *rows, reading=reading)] == [
        "overloaded", "unexpected status 401",
    ]  # fmt: skip
    assert reading.tally(NAME).repeated == 1


def test_warnings_and_plans_are_no_turns_and_unknown_types_are_counted(tmp_path: Path) -> None:
    reading = Import()
    rows = [item("a", "error", message="model rerouted"), item("b", "todo_list", items=[]), item("c", "novelty")]
    assert read(tmp_path, *rows, {"type": "thread.moved"}, 7, reading=reading) == []
    assert reading.tally(NAME).ignored == {"novelty": 1, "thread.moved": 1, "int": 1}


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = (command(f"i{n}", "ls", "a") for n in range(4))
    honest = (command(f"i{n}", f"cat {n}", f"text {n}") for n in range(4))
    assert "LOOP003" in halt_codes(read(tmp_path, STARTED, TURN, *stuck))
    assert halt_codes(read(tmp_path, STARTED, TURN, *honest)) == []


def test_an_output_that_was_cut_off_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "out.jsonl", [STARTED, command("a", "ls", "x")])
    path.write_text(path.read_text() + '{"type":"item.st')
    assert shape(read_log(NAME, path)) == ["command_execution"]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=damaged([json.loads(line) for line in SAMPLE.read_text().splitlines()]))
def test_no_shape_of_a_record_stops_the_import(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    read_log(NAME, written(tmp_path_factory.mktemp("odd") / "out.jsonl", rows))
