"""Langfuse: which observations are turns, values that are JSON in JSON, and usage that is repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamproc.importers import Import
from tests.importers.reading import SAMPLES, Row, calls_of, events_of, halt_codes, turns_of, written
from tests.importers.traces import written_document


def observation(number: int, kind: str, name: str, parent: int | None = None, **fields: object) -> Row:
    time = f"2026-09-21T12:{number // 60:02}:{number % 60:02}.000Z"
    found: Row = {"id": f"o{number}", "traceId": "t", "type": kind, "name": name, "startTime": time, "endTime": time}
    return found | {"parentObservationId": f"o{parent}" if parent else None, "level": "DEFAULT"} | fields


def read(tmp_path: Path, *rows: Row, reading: Import | None = None) -> list[Row]:
    return events_of(written(tmp_path / "rows.jsonl", rows), reading=reading)


def document(path: Path, trace: Row, *rows: Row) -> Path:
    return written_document(path, {"trace": trace, "observations": list(rows)})


def searches(results: list[str]) -> list[Row]:
    return [
        observation(number, "TOOL", "search", input='{"q": "bikes"}', output=result)
        for number, result in enumerate(results, start=1)
    ]


def test_a_stuck_agent_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    assert halt_codes(read(tmp_path, *searches(["nothing"] * 4))) == ["LOOP003"]
    assert halt_codes(read(tmp_path, *searches([f"bike {number}" for number in range(40)]))) == []


def test_values_that_are_json_in_json_are_read(tmp_path: Path) -> None:
    twice = json.dumps(json.dumps({"q": "bikes"}))
    [call] = calls_of(read(tmp_path, observation(1, "TOOL", "search", input=twice, output=twice)))
    assert call == {"name": "search", "args": {"q": "bikes"}, "result": {"q": "bikes"}}
    metadata = json.dumps(json.dumps({"langgraph_node": "tools"}))
    [turn] = turns_of(read(tmp_path, observation(1, "TOOL", "search", metadata=metadata)))
    assert turn["node"] == "tools"


def test_a_python_literal_is_read_as_arguments(tmp_path: Path) -> None:
    [call] = calls_of(read(tmp_path, observation(1, "TOOL", "search", input="{'q': 'bikes', 'old': True}", output="x")))
    assert call["args"] == {"q": "bikes", "old": True}


def test_the_usage_of_an_agent_repeats_that_of_its_calls(tmp_path: Path) -> None:
    usage = {"usageDetails": {"input": 60, "output": 15, "total": 75}}
    rows = [observation(9, "AGENT", "buyer", **usage)]
    rows.append(observation(1, "GENERATION", "chat", 9, output="Done.", **usage))
    [turn] = turns_of(read(tmp_path, *rows))
    assert (turn["node"], turn["usage"]["input_tokens"]) == ("buyer", 60)


def test_the_tools_node_of_langgraph_and_the_tool_in_it_are_one_call() -> None:
    assert len(calls_of(events_of(SAMPLES / "langfuse/trace.json"))) == 1


@pytest.mark.parametrize("name", ["execute_tool search", "running tool: search", "tool.search"])
def test_a_span_of_an_older_version_is_a_tool_by_its_name(tmp_path: Path, name: str) -> None:
    [call] = calls_of(read(tmp_path, observation(1, "SPAN", name, output="x")))
    assert call == {"name": "search", "result": "x"}


def test_a_span_that_ends_in_the_message_of_a_tool_is_one(tmp_path: Path) -> None:
    kwargs = {"status": "success", "content": "sunny", "tool_call_id": "call_1", "name": "get_weather"}
    message = {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "ToolMessage"], "kwargs": kwargs}
    rows = [observation(1, "SPAN", "tools", output=json.dumps({"messages": [message]}))]
    rows.append(observation(2, "SPAN", "get_weather", 1, input='{"city": "Rome"}', output=json.dumps(message)))
    [call] = calls_of(read(tmp_path, *rows))
    assert call == {"name": "get_weather", "id": "call_1", "args": {"city": "Rome"}, "result": "sunny"}


def test_a_span_of_openinference_is_a_tool_by_its_attributes(tmp_path: Path) -> None:
    metadata = {"attributes": {"openinference.span.kind": "TOOL", "tool.name": "search"}}
    [call] = calls_of(read(tmp_path, observation(1, "SPAN", "anything", output="x", metadata=metadata)))
    assert call["name"] == "search"


def test_a_failed_tool_has_an_error(tmp_path: Path) -> None:
    message = {"type": "tool", "content": "no such page", "status": "error"}
    rows = [observation(1, "TOOL", "f", output="x", level="ERROR", statusMessage="HTTP 500")]
    rows += [observation(2, "TOOL", "f", output=message), observation(3, "TOOL", "f", level="ERROR")]
    assert [call["error"] for call in calls_of(read(tmp_path, *rows))] == ["HTTP 500", "no such page", "error"]


def test_cached_tokens_that_are_counted_apart_are_added(tmp_path: Path) -> None:
    apart = {"input": 10, "input_cache_read": 90, "output": 5, "total": 105}
    among = {"input": 100, "prompt_details.cache_read": 90, "output": 5, "total": 105}
    rows = [observation(1, "GENERATION", "chat", output="A.", usageDetails=apart)]
    rows.append(observation(2, "GENERATION", "chat", output="B.", usageDetails=json.dumps(among)))
    assert [turn["usage"]["input_tokens"] for turn in turns_of(read(tmp_path, *rows))] == [100, 100]


@pytest.mark.parametrize(
    ("details", "input_tokens", "output_tokens"),
    [
        ({"input": 179, "output": 35, "output_reasoning": 64, "total": 278}, 179, 99),
        ({"input": 6, "output": 2055, "completion_details.reasoning": 1104, "total": 2061}, 6, 2055),
        ({"input": 10, "input_cache_read": 90, "output": 5, "output_reasoning": 64, "total": 169}, 100, 69),
        ({"input": 100, "input_cache_read": 50, "output": 35, "output_reasoning": 64, "total": 199}, 100, 99),
        ({"input": 5, "output": 845, "output_reasoning": 64, "total": 845}, 5, 845),
    ],
)
def test_reasoning_that_is_counted_apart_is_added(
    tmp_path: Path, details: dict[str, int], input_tokens: int, output_tokens: int
) -> None:
    [turn] = turns_of(read(tmp_path, observation(1, "GENERATION", "chat", output="A.", usageDetails=details)))
    assert (turn["usage"]["input_tokens"], turn["usage"]["output_tokens"]) == (input_tokens, output_tokens)


def test_two_records_of_one_generation_count_once(tmp_path: Path) -> None:
    inner = observation(1, "GENERATION", "chat gpt", 2, usageDetails={"input": 60})
    outer = observation(2, "GENERATION", "ChatOpenAI.invoke", output="Done.", usageDetails={"input": 61})
    [turn] = turns_of(read(tmp_path, inner, outer))
    assert turn["usage"]["input_tokens"] == 61


def test_late_observations_are_put_in_order(tmp_path: Path) -> None:
    rows = searches(["a", "b", "c"])
    assert [call["result"] for call in calls_of(read(tmp_path, *reversed(rows)))] == ["a", "b", "c"]


def test_an_observation_that_has_not_ended_is_read(tmp_path: Path) -> None:
    [turn] = turns_of(read(tmp_path, observation(1, "TOOL", "f", input='{"q": 1}', endTime=None)))
    assert turn["tool_calls"] == [{"name": "f", "args": {"q": 1}}]


def test_exports_in_snake_case_say_the_same_as_rows() -> None:
    rows = events_of(SAMPLES / "langfuse/rows.jsonl")
    export = events_of(SAMPLES / "langfuse/blob_export.jsonl")
    assert [{**event, "session_id": "s-1"} if "node" in event else event for event in export] == rows


def test_the_answer_of_the_api_is_read(tmp_path: Path) -> None:
    trace = {"id": "t", "name": "buying", "userId": "u", "observations": searches(["x"])}
    [turn] = turns_of(events_of(written_document(tmp_path / "trace.json", trace)))
    assert (turn["node"], turn["user"]) == ("buying", "u")
    [turn] = turns_of(events_of(written_document(tmp_path / "page.json", {"data": searches(["x"]), "meta": {}})))
    assert turn["run_id"] == "t"


def test_sub_agents_that_are_interleaved_are_runs_of_their_own(tmp_path: Path) -> None:
    rows = [observation(50, "AGENT", "boss"), observation(40, "AGENT", "left", 50)]
    rows += [observation(41, "AGENT", "right", 50), observation(30, "GENERATION", "chat", 50, output="Go.")]
    for number in range(1, 9):
        which = 40 + number % 2
        rows.append(observation(number, "TOOL", "search", which, input={"q": which}, output=f"nothing {which}"))
    events = events_of(document(tmp_path / "t.json", {"id": "t"}, *rows))
    assert {event["run_id"] for event in events} == {"t", "t/o40", "t/o41"}
    assert halt_codes(events) == ["LOOP003", "LOOP003"]


def test_unknown_types_are_counted(tmp_path: Path) -> None:
    reading = Import()
    read(tmp_path, *searches(["x"]), observation(7, "SOMETHING", "x"), reading=reading)
    assert reading.tally("langfuse").ignored == {"SOMETHING": 1}
