"""LangSmith: records that are merged, messages of LangChain, errors that are none, and hidden content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamproc.importers import Import, LogFile, langsmith
from streamproc.importers.trace_buffer import TraceBuffer
from tests.importers.reading import SAMPLES, Row, calls_of, events_of, halt_codes, turns_of, written
from tests.importers.traces import notes, written_document


def run(number: int, kind: str, name: str, parent: int = 0, **fields: Any) -> Row:
    time = f"2026-09-21T12:{number // 60:02}:{number % 60:02}.000000"
    found: Row = {"id": f"r{number}", "trace_id": "t", "name": name, "run_type": kind, "start_time": time}
    found |= {"end_time": time, "dotted_order": f"20260921T120000000000Zr{number}", "inputs": {}, "outputs": {}}
    return found | {"parent_run_id": f"r{parent}" if parent else None, "extra": {"metadata": {}}} | fields


def tool(number: int, inputs: Any, output: Any, parent: int = 0, **fields: Any) -> Row:
    return run(number, "tool", "search", parent, inputs=inputs, outputs={"output": output}) | fields


def read(tmp_path: Path, *rows: Row, reading: Import | None = None) -> list[Row]:
    return events_of(written(tmp_path / "runs.jsonl", rows), reading=reading)


def test_a_stuck_agent_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = [tool(number, {"q": "bikes"}, "nothing") for number in range(1, 5)]
    assert halt_codes(read(tmp_path, *stuck)) == ["LOOP003"]
    honest = [tool(number, {"q": "bikes"}, f"bike {number}") for number in range(1, 41)]
    assert halt_codes(read(tmp_path, *honest)) == []


def test_the_records_of_a_run_are_merged() -> None:
    merged = events_of(SAMPLES / "langsmith/operations.jsonl")
    whole = events_of(SAMPLES / "langsmith/runs.jsonl")
    for event in whole:
        event.get("usage", {}).pop("cost_usd", None)  # the records of clients have no cost
    assert merged == whole


def test_a_null_in_an_update_changes_nothing(tmp_path: Path) -> None:
    whole = tool(1, {"q": 1}, "x")
    create = {name: value for name, value in whole.items() if name not in ("end_time", "outputs")}
    update = {"id": "r1", "end_time": whole["end_time"], "outputs": whole["outputs"], "inputs": None}
    assert calls_of(read(tmp_path, create, update)) == [{"name": "search", "args": {"q": 1}, "result": "x"}]


def test_the_body_of_a_client_has_updates_that_are_named_by_their_order(tmp_path: Path) -> None:
    whole = tool(1, {"q": 1}, "x", start_time=1_790_000_000_000)
    create = {name: value for name, value in whole.items() if name not in ("end_time", "outputs")}
    update = {"dotted_order": whole["dotted_order"], "trace_id": "t", "end_time": 1_790_000_001_000}
    body = {"post": [create], "patch": [update | {"outputs": whole["outputs"]}]}
    [turn] = turns_of(events_of(written_document(tmp_path / "body.json", body)))
    assert (turn["at"], turn["tool_calls"][0]["result"]) == (1_790_000_001_000, "x")


def test_a_log_that_is_cut_off_between_the_records_of_a_run_says_so(tmp_path: Path) -> None:
    create = {name: value for name, value in tool(1, {"q": 1}, "x").items() if name not in ("end_time", "outputs")}
    reading = Import()
    assert calls_of(read(tmp_path, create, reading=reading)) == [{"name": "search", "args": {"q": 1}}]
    assert langsmith.CUT_NOTE in notes(reading)


def test_runs_without_an_end_are_kept_up_to_a_bound() -> None:
    merging = langsmith._Merging(TraceBuffer("langsmith", Import(), run_is_trace=True), bytes_max=20_000)
    for number in range(100):
        create = {name: value for name, value in tool(number, {"q": "x" * 500}, "").items() if name != "end_time"}
        list(merging.add(create, number))
        assert merging._bytes <= 20_000
    assert len(merging._open) < 20


def test_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    [turn] = turns_of(read(tmp_path, tool(1, {"q": 1}, "x", end_time="2026-09-21T12:00:05.250000")))
    assert turn["at"] == 1_789_992_005_250


def test_the_project_is_not_the_session(tmp_path: Path) -> None:
    [turn] = turns_of(read(tmp_path, tool(1, {"q": 1}, "x", session_id="project")))
    assert "session_id" not in turn
    metadata = {"extra": {"metadata": {"thread_id": "thread"}}}
    [turn] = turns_of(read(tmp_path, tool(1, {"q": 1}, "x", session_id="project", **metadata)))
    assert turn["session_id"] == "thread"


@pytest.mark.parametrize("inputs", [{"input": "{'q': 'bikes'}"}, {"input": '{"q": "bikes"}'}, {"q": "bikes"}])
def test_arguments_are_equal_however_they_are_written(tmp_path: Path, inputs: Row) -> None:
    assert calls_of(read(tmp_path, tool(1, inputs, "x")))[0]["args"] == {"q": "bikes"}


@pytest.mark.parametrize("wrap", [
    lambda message: message,
    lambda message: {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"], "kwargs": message},
])  # fmt: skip
def test_the_message_of_a_tool_is_its_content(tmp_path: Path, wrap: Any) -> None:
    rows = [
        tool(1, {"q": 1}, wrap({"type": "tool", "content": "found", "tool_call_id": "c", "status": "success"})),
        tool(2, {"q": 1}, wrap({"type": "tool", "content": "no such page", "tool_call_id": "d", "status": "error"})),
    ]
    assert calls_of(read(tmp_path, *rows)) == [
        {"name": "search", "id": "c", "args": {"q": 1}, "result": "found"},
        {"name": "search", "id": "d", "args": {"q": 1}, "error": "no such page"},
    ]


def test_an_error_is_the_first_line_of_its_traceback(tmp_path: Path) -> None:
    error = "ValueError('no such page')Traceback (most recent call last):\n\n  File \"a.py\", line 3\n"
    rows = [tool(1, {"q": 1}, None, error=error), run(2, "llm", "Chat", error="RateLimitError('429')\nTraceback")]
    events = turns_of(read(tmp_path, *rows))
    assert calls_of(events)[0]["error"] == "no such page"
    assert events[1]["errors"] == [{"message": "429", "class": "RateLimitError", "retryable": True}]


@pytest.mark.parametrize("error", [
    "GraphInterrupt((Interrupt(value='ok?'),))Traceback", "ParentCommand(Command(goto='x'))", "CancelledError()",
    "langgraph.errors.NodeInterrupt('x')",
])  # fmt: skip
def test_a_handover_is_no_error(tmp_path: Path, error: str) -> None:
    assert "error" not in calls_of(read(tmp_path, tool(1, {"q": 1}, None) | {"outputs": None, "error": error}))[0]


def test_hidden_content_is_unknown_and_not_equal(tmp_path: Path) -> None:
    reading = Import()
    rows = [run(number, "tool", "search") for number in range(1, 41)]
    events = read(tmp_path, *rows, reading=reading)
    assert (len(turns_of(events)), calls_of(events)) == (40, [])
    assert halt_codes(events) == []
    assert any("no results of tools" in note for note in notes(reading))


def test_content_that_is_stored_elsewhere_is_said(tmp_path: Path) -> None:
    reading = Import()
    read(tmp_path, run(1, "tool", "search", inputs_s3_urls={"ROOT": {"s3_url": "key"}}), reading=reading)
    assert langsmith.STORED_NOTE in notes(reading)


@pytest.mark.parametrize("outputs", [
    {"generations": [[{"message": {"kwargs": {"content": "Done.", "type": "ai"}}}]]},
    {"generations": [{"message": {"content": "Done.", "type": "ai"}}]},
    {"generations": [[{"text": "Done."}]]},
    {"choices": [{"message": {"role": "assistant", "content": "Done."}}]},
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Done."}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "Done."}]},
    {"output": [{"type": "reasoning", "summary": []}, {"type": "message", "role": "assistant",
     "content": [{"type": "output_text", "text": "Done."}]}]},
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "Done."}]}}]},
])  # fmt: skip
def test_answers_of_all_shapes_are_read(tmp_path: Path, outputs: Row) -> None:
    [turn] = turns_of(read(tmp_path, run(1, "llm", "Chat", outputs=outputs)))
    assert turn["output"] == "Done."


@pytest.mark.parametrize("odd", [[], {}, 1, None])
def test_a_role_that_is_no_text_is_unknown(tmp_path: Path, odd: Any) -> None:
    message = {"role": odd, "type": odd, "content": "Done."}
    rows = [run(1, "llm", "Chat", inputs={"messages": [message]}, outputs={"messages": [message]})]
    assert turns_of(read(tmp_path, *rows))[0]["output"] == "Done."


def test_parallel_calls_are_turns_that_follow_each_other(tmp_path: Path) -> None:
    rows = [run(9, "chain", "tools"), tool(1, {"q": 1}, "a", 9), tool(2, {"q": 2}, "b", 9)]
    events = turns_of(read(tmp_path, *rows))
    assert [(event["node"], event["tool_calls"][0]["result"]) for event in events] == [("tools", "a"), ("tools", "b")]


def test_a_sub_agent_that_is_a_tool_is_a_run_of_its_own(tmp_path: Path) -> None:
    answer = {"choices": [{"message": {"role": "assistant", "content": "Sub."}}]}
    rows = [run(9, "chain", "boss"), tool(5, {"q": 1}, "done", 9), run(2, "llm", "Chat", 5, outputs=answer)]
    events = turns_of(read(tmp_path, *rows))
    assert [(event["run_id"], event["node"], event.get("parent_run_id")) for event in events] == [
        ("t/r5", "search", "t"), ("t", "boss", None),
    ]  # fmt: skip


def test_sub_agents_that_are_interleaved_do_not_hide_a_loop(tmp_path: Path) -> None:
    rows = [run(50, "chain", "boss")]
    for which in (40, 41):
        rows.append(tool(which, {"to": which}, "done", 50))
        rows.append(run(which - 10, "llm", "Chat", which, outputs={"messages": []}))
    rows += [tool(number, {"q": number % 2}, f"nothing {number % 2}", 40 + number % 2) for number in range(1, 9)]
    assert halt_codes(read(tmp_path, *rows)) == ["LOOP003", "LOOP003"]


def test_a_document_numbers_its_runs(tmp_path: Path) -> None:
    path = written_document(tmp_path / "hook.json", {"runs": [tool(1, {}, "x"), tool(2, {}, "y")]})
    assert [(one.number, one.unit) for one in langsmith.read(LogFile(path), Import())] == [(1, "span"), (2, "span")]


def test_unknown_types_are_counted(tmp_path: Path) -> None:
    reading = Import()
    rows = [tool(1, {"q": 1}, "x"), run(2, "dream", "x"), json.loads('{"odd": 1}')]
    read(tmp_path, *rows, reading=reading)
    assert reading.tally("langsmith").ignored == {"dream": 1, "odd": 1}
