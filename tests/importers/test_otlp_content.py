"""OTLP/JSON: content that is missing, and how arguments, results, errors and usage are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamproc.importers import Import, otlp
from tests.importers.reading import Row, calls_of, events_of, halt_codes, turns_of, written
from tests.importers.traces import any_value, chat_span, export, notes, span, tool_span

QUERY = {"query": "bikes"}


def read(tmp_path: Path, *spans: Row, reading: Import | None = None, **fields: Any) -> list[Row]:
    return events_of(written(tmp_path / "spans.jsonl", [export(*spans, **fields)]), reading=reading)


# Content that is missing


def test_a_trace_without_content_says_what_cannot_be_seen(tmp_path: Path) -> None:
    reading = Import()
    events = read(tmp_path, chat_span(1), chat_span(2), reading=reading)
    assert len(turns_of(events)) == 2
    assert [note.partition(":")[0] for note in notes(reading)] == ["no content in these traces"]


def test_a_trace_without_results_says_what_cannot_be_seen(tmp_path: Path) -> None:
    reading = Import()
    [call] = calls_of(read(tmp_path, chat_span(1), tool_span(2, QUERY, None), reading=reading))
    assert call == {"name": "search", "args": QUERY}
    assert [note.partition(":")[0] for note in notes(reading)] == ["no tool results in these traces"]


def test_a_trace_without_arguments_says_what_cannot_be_seen(tmp_path: Path) -> None:
    reading = Import()
    [call] = calls_of(read(tmp_path, tool_span(1, None, "bike"), reading=reading))
    assert call == {"name": "search", "result": "bike"}
    assert [note.partition(":")[0] for note in notes(reading)] == ["no arguments of tools in these traces"]


def test_calls_of_which_only_the_name_is_known_are_not_taken_for_the_same_call(tmp_path: Path) -> None:
    reading = Import()
    events = read(tmp_path, *[tool_span(number, None, None) for number in range(1, 41)], reading=reading)
    assert (len(turns_of(events)), calls_of(events), halt_codes(events)) == (40, [], [])
    assert [note.partition(":")[0] for note in notes(reading)] == [
        "no arguments and no results of tools in these traces"
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "name": "search"}]},
        {"role": "tool", "tool_call_id": "c1"},
    ],
)
def test_a_result_that_was_not_recorded_is_not_an_empty_one(tmp_path: Path, message: Row) -> None:
    hidden = {"attributes": {"gen_ai.input.messages": json.dumps([message])}}
    call = tool_span(1, QUERY, None, attributes={"gen_ai.tool.call.id": "c1"})
    assert calls_of(read(tmp_path, call, chat_span(2, "Done.", **hidden))) == [
        {"name": "search", "args": QUERY, "id": "c1"}
    ]


def test_anthropic_leaves_out_the_content_of_a_tool_that_returned_nothing(tmp_path: Path) -> None:
    message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}
    told = {"attributes": {"gen_ai.input.messages": json.dumps([message])}}
    call = tool_span(1, QUERY, None, attributes={"gen_ai.tool.call.id": "c1"})
    [found] = calls_of(read(tmp_path, call, chat_span(2, "Done.", **told)))
    assert found["result"] == ""


def test_some_traces_without_results_are_named_too(tmp_path: Path) -> None:
    reading = Import()
    read(tmp_path, tool_span(1, QUERY, "bike"), tool_span(2, QUERY, None, trace="b" * 32), reading=reading)
    assert [note.partition(":")[0] for note in notes(reading)] == ["some traces have no tool results"]


def test_content_that_was_cut_is_no_evidence(tmp_path: Path) -> None:
    messages = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "x" * 3000}]}])
    events = read(
        tmp_path,
        chat_span(1, attributes={"gen_ai.output.messages": messages[:2500]}),
        tool_span(2, QUERY, "y" * 1024),
    )
    assert "output" not in events[0]
    assert "result" not in calls_of(events)[0]


def test_content_that_openinference_hides_is_unknown(tmp_path: Path) -> None:
    hidden = {"input.value": "__REDACTED__", "output.value": "__REDACTED__"}
    kind = {"openinference.span.kind": "TOOL", "tool.name": "search"}
    assert calls_of(read(tmp_path, span(1, "search", kind | hidden))) == []
    assert calls_of(read(tmp_path, span(1, "search", kind | hidden | {"output.value": "bike"}))) == [
        {"name": "search", "result": "bike"}
    ]


def test_logs_are_not_read_and_said_so(tmp_path: Path) -> None:
    reading = Import()
    events_of(
        written(tmp_path / "both.jsonl", [export(tool_span(1, QUERY, "bike")), {"resourceLogs": []}]), reading=reading
    )
    assert otlp.LOGS_NOTE in notes(reading)
    assert reading.tally("otlp").ignored == {"resourceLogs": 1}


# Arguments and results


@pytest.mark.parametrize("written_as", [{"a": [1, 2]}, '{"a": [1, 2]}', "{'a': [1, 2]}"])
def test_arguments_are_equal_however_they_are_written(tmp_path: Path, written_as: Any) -> None:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f"}
    [call] = calls_of(read(tmp_path, span(1, "f", attributes | {"gen_ai.tool.call.arguments": written_as})))
    assert call["args"] == {"a": [1, 2]}


def asked_and_run(begin: int, call_id: str, query: str) -> list[Row]:
    """Return spans as the convention's own example has them: only the model's answer holds the arguments."""
    call = {"id": call_id, "name": "search", "arguments": {"query": query}}
    named = {"gen_ai.tool.call.id": call_id}
    return [chat_span(begin, calls=[call]), tool_span(begin + 1, None, "ok", attributes=named, begin=begin)]


def test_arguments_that_only_the_answer_of_the_model_has_are_those_of_the_call(tmp_path: Path) -> None:
    reading = Import()
    spans = [one for begin in range(1, 13, 2) for one in asked_and_run(begin, f"call_{begin}", f"bikes {begin}")]
    events = read(tmp_path, *spans, reading=reading)
    assert [call["args"] for call in calls_of(events)] == [{"query": f"bikes {begin}"} for begin in range(1, 13, 2)]
    assert halt_codes(events) == []
    assert notes(reading) == []


def test_a_call_has_the_arguments_of_the_latest_answer_with_its_id(tmp_path: Path) -> None:
    spans = [*asked_and_run(1, "call_0", "bikes"), *asked_and_run(3, "call_0", "shoes")]
    assert [call["args"]["query"] for call in calls_of(read(tmp_path, *spans))] == ["bikes", "shoes"]


@pytest.mark.parametrize("with_spans", [False, True])
def test_a_call_has_the_result_that_the_next_model_call_was_told(tmp_path: Path, with_spans: bool) -> None:
    history: list[Row] = [{"role": "user", "parts": [{"type": "text", "content": "Run the tests until they pass."}]}]
    call, spans = {"id": "call_0", "name": "test", "arguments": {}}, list[Row]()
    for number in range(6):
        told = {"gen_ai.input.messages": json.dumps(history)}
        spans.append(chat_span(2 * number + 1, calls=[call] if number < 5 else (), attributes=told))
        if with_spans:
            spans.append(tool_span(2 * number + 2, {}, None, "test", attributes={"gen_ai.tool.call.id": "call_0"}))
        result = {"type": "tool_call_response", "id": "call_0", "response": f"{9 - number} tests fail"}
        history += [
            {"role": "assistant", "parts": [{"type": "tool_call", **call}]},
            {"role": "tool", "parts": [result]},
        ]
    events = read(tmp_path, *spans)
    results = [call.get("result") for call in calls_of(events)]
    assert results[:5] == [f"{number} tests fail" for number in (9, 8, 7, 6, 5)]
    assert results[5:] == ([None] if with_spans else [])
    assert halt_codes(events) == []


def test_metadata_that_openllmetry_puts_into_arguments_do_not_hide_a_loop(tmp_path: Path) -> None:
    spans = []
    for number in range(1, 5):
        inputs = {"input_str": str(QUERY), "tags": [], "metadata": {"step": number}, "inputs": QUERY, "kwargs": {}}
        outputs = {"output": "nothing", "kwargs": {"run": number}}
        attributes = {"traceloop.span.kind": "tool", "traceloop.entity.name": "search"}
        attributes |= {"traceloop.entity.input": json.dumps(inputs), "traceloop.entity.output": json.dumps(outputs)}
        spans.append(span(number, "search.tool", attributes))
    assert halt_codes(read(tmp_path, *spans)) == ["LOOP003"]


def test_a_tool_that_returned_nothing_has_an_empty_result(tmp_path: Path) -> None:
    found = tool_span(1, QUERY, "null")
    found["attributes"][-1]["value"] = any_value("")
    assert "result" not in calls_of(read(tmp_path, found))[0]  # an attribute without a value says nothing
    [call] = calls_of(read(tmp_path, tool_span(1, QUERY, '{"output": "", "kwargs": {}}')))
    assert call["result"] == ""


def test_a_failed_call_has_an_error(tmp_path: Path) -> None:
    exception = ("exception", {"exception.type": "KeyError", "exception.message": "no such bike"})
    events = read(
        tmp_path,
        tool_span(1, QUERY, None, error="HTTP 404"),
        tool_span(2, QUERY, None, error="", events=[exception]),
        tool_span(3, QUERY, None, attributes={"error.type": "timeout"}),
        tool_span(4, QUERY, '{"content": [{"type": "text", "text": "no stock"}], "isError": true}'),
    )
    assert [call["error"] for call in calls_of(events)] == ["HTTP 404", "no such bike", "timeout", "no stock"]
    assert [call.get("retryable") for call in calls_of(events)] == [None, None, True, None]


def test_a_handover_is_no_error(tmp_path: Path) -> None:
    interrupt = ("exception", {"exception.type": "langgraph.errors.GraphInterrupt", "exception.message": "ask"})
    deferred = {"pydantic_ai.tool.deferral.name": "CallDeferred"}
    events = read(
        tmp_path,
        tool_span(1, QUERY, None, error="", events=[interrupt]),
        tool_span(2, QUERY, None, error="deferred", attributes=deferred),
        tool_span(3, QUERY, None, error="ParentCommand(goto='x')"),
    )
    assert [call.get("error") for call in calls_of(events)] == [None, None, None]


def test_a_failed_model_call_is_an_error_and_may_be_retryable(tmp_path: Path) -> None:
    limited = chat_span(1, error="429 Too Many Requests", attributes={"error.type": "RateLimitError"})
    broken = chat_span(2, error="invalid schema", attributes={"error.type": "BadRequestError"})
    assert [event["errors"] for event in turns_of(read(tmp_path, limited, broken))] == [
        [{"message": "429 Too Many Requests", "class": "RateLimitError", "retryable": True}],
        [{"message": "invalid schema", "class": "BadRequestError"}],
    ]


def test_cached_tokens_are_among_the_input(tmp_path: Path) -> None:
    usage = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.cache_read.input_tokens": 90}
    usage |= {"gen_ai.usage.cache_creation.input_tokens": 5}
    [turn] = turns_of(read(tmp_path, chat_span(1, "Done.", attributes=usage)))
    assert turn["usage"]["input_tokens"] == 105
    assert turn["usage"]["cached_tokens"] == 90


def test_generation_c_counts_what_is_written_to_the_cache(tmp_path: Path) -> None:
    usage = {"gen_ai.usage.cache_read.input_tokens": 300, "gen_ai.usage.cache_write.input_tokens": 50}
    [turn] = turns_of(read(tmp_path, chat_span(1, "Done.", attributes=usage)))
    assert turn["usage"]["input_tokens"] == 450


def test_the_content_of_a_details_event_is_read(tmp_path: Path) -> None:
    messages = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}])
    details = ("gen_ai.client.inference.operation.details", {"gen_ai.output.messages": messages})
    [turn] = turns_of(read(tmp_path, chat_span(1, events=[details])))
    assert turn["output"] == "Done."
