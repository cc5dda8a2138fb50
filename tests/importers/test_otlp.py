"""OTLP/JSON: loops, double spans, sub-agents, runs, order and files."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from streamproc.importers import Import, LogFile, otlp, trace_buffer, trace_turns
from streamproc.importers.genai_spans import SpanRecord, kind_of, step_of
from streamproc.importers.trace_events import TraceCounts, TraceOptions
from tests.importers.reading import SAMPLES, Row, calls_of, events_of, halt_codes, turns_of, written
from tests.importers.traces import START, TRACE, agent_span, chat_span, export, notes, span, tool_span, written_document

QUERY = {"query": "bikes"}


def read(tmp_path: Path, *spans: Row, reading: Import | None = None, **fields: Any) -> list[Row]:
    return events_of(written(tmp_path / "spans.jsonl", [export(*spans, **fields)]), reading=reading)


# Loops


def looping(results: list[str]) -> list[Row]:
    """Return an agent that asks the same, with these results, a model call before each."""
    spans: list[Row] = []
    for index, result in enumerate(results):
        call = {"id": f"c{index}", "name": "search", "arguments": QUERY}
        spans.append(chat_span(2 * index + 1, calls=[call], parent=99))
        ids = {"attributes": {"gen_ai.tool.call.id": f"c{index}"}}
        spans.append(tool_span(2 * index + 2, QUERY, result, parent=99, **ids))
    return [*spans, agent_span(99, begin=0, end=2 * len(results) + 1)]


def test_a_stuck_agent_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    assert halt_codes(read(tmp_path, *looping(["nothing"] * 4))) == ["LOOP003"]
    assert halt_codes(read(tmp_path, *looping([f"bike {number}" for number in range(40)]))) == []


def test_a_stuck_agent_is_halted_at_its_third_call_though_each_has_a_model_span(tmp_path: Path) -> None:
    events = read(tmp_path, *looping(["nothing"] * 3))
    assert len(turns_of(events)) == 3
    assert [event["usage"]["input_tokens"] for event in turns_of(events)] == [100, 100, 100]
    assert halt_codes(turns_of(events)) == ["LOOP003"]


def test_a_stuck_agent_without_spans_of_tools_is_halted(tmp_path: Path) -> None:
    """Calls are in the model's answers, results in its next input."""
    spans = []
    for number in range(1, 5):
        before = [{"type": "tool_call", "id": f"c{number - 1}", "name": "search", "arguments": QUERY}]
        told = [{"type": "tool_call_response", "id": f"c{number - 1}", "response": "nothing"}]
        messages = [{"role": "assistant", "parts": before}, {"role": "tool", "parts": told}]
        call = {"id": f"c{number}", "name": "search", "arguments": QUERY}
        spans.append(
            chat_span(number, calls=[call], attributes={"gen_ai.input.messages": json.dumps(messages)}, parent=99)
        )
    events = read(tmp_path, *spans)
    assert [call.get("result") for call in calls_of(events)] == ["nothing", "nothing", "nothing", None]
    assert halt_codes(events) == ["LOOP003"]


def test_a_failed_tool_keeps_all_lines_of_its_error(tmp_path: Path) -> None:
    [call] = calls_of(read(tmp_path, tool_span(1, QUERY, None, error="Command failed\n12 failed")))
    assert call["error"] == "Command failed\n12 failed"


# Double spans


def test_double_spans_of_one_model_call_count_once(tmp_path: Path) -> None:
    same = {"attributes": {"gen_ai.response.id": "r-1"}}
    events = events_of(
        written(
            tmp_path / "two.jsonl",
            [export(chat_span(1, "Done.", parent=9, **same), scope="one"), export(chat_span(2, begin=0, **same))],
        )
    )
    assert [event.get("output") for event in turns_of(events)] == ["Done."]


def test_a_model_span_inside_another_one_is_the_same_call(tmp_path: Path) -> None:
    inner = chat_span(1, parent=3)
    middle = span(3, "POST", {"http.request.method": "POST"}, parent=2)
    events = read(tmp_path, inner, middle, chat_span(2, "Done.", begin=0, end=4))
    assert [event.get("output") for event in turns_of(events)] == ["Done."]


def test_double_spans_of_one_tool_call_count_once(tmp_path: Path) -> None:
    ids = {"attributes": {"gen_ai.tool.call.id": "c1"}}
    server = span(4, "tools/call search", {"mcp.method.name": "tools/call", "gen_ai.tool.name": "search"}, parent=1)
    one = export(tool_span(1, QUERY, None, begin=0, end=5, **ids), server, scope="one")
    other = export(tool_span(2, None, "bike", begin=0, end=5, **ids), scope="two")
    [call] = calls_of(events_of(written(tmp_path / "two.jsonl", [one, other])))
    assert call == {"name": "search", "id": "c1", "args": QUERY, "result": "bike"}


def test_calls_that_follow_each_other_under_one_id_are_different_calls(tmp_path: Path) -> None:
    """Some models number calls from 0 in each answer: taken for doubles, a loop would not be seen."""
    ids = {"attributes": {"gen_ai.tool.call.id": "call_0"}}
    spans = [tool_span(2 * number, QUERY, "nothing", begin=2 * number - 1, **ids) for number in range(1, 5)]
    assert halt_codes(read(tmp_path, *spans)) == ["LOOP003"]


def test_parallel_calls_of_one_library_are_different_calls(tmp_path: Path) -> None:
    events = read(tmp_path, chat_span(1, "A.", begin=0, end=5), chat_span(2, "B.", begin=0, end=5))
    assert len(turns_of(events)) == 2


def test_a_span_that_an_exporter_sent_twice_counts_once(tmp_path: Path) -> None:
    reading = Import()
    one = export(tool_span(1, QUERY, "bike"))
    assert len(turns_of(events_of(written(tmp_path / "retry.jsonl", [one, one]), reading=reading))) == 1
    assert reading.tally("otlp").repeated == 1


def test_the_span_of_a_proxy_is_not_read(tmp_path: Path) -> None:
    events = read(tmp_path, chat_span(1, "Done."), chat_span(2, "Done.", kind=2, parent=50))
    assert len(turns_of(events)) == 1


# Agents and runs


def test_interleaved_sub_agents_are_runs_of_their_own(tmp_path: Path) -> None:
    """Two agents that a supervisor's tools run at once: each repeats its call, with the other's in between."""
    spans = [chat_span(1, "I delegate.", parent=90, begin=0)]
    for which, name in ((91, "left"), (92, "right")):
        spans.append(agent_span(which, name, parent=which - 10, begin=1, end=30))
        spans.append(tool_span(which - 10, {"to": name}, "done", f"ask_{name}", parent=90, begin=1, end=31))
    for number in range(2, 10):
        which = 91 + number % 2
        spans.append(tool_span(number, {"q": which}, f"nothing {which}", parent=which))
    spans.append(agent_span(90, "supervisor", begin=0, end=40))
    events = read(tmp_path, *spans)
    left, right = (f"{TRACE}/{which:016x}" for which in (91, 92))
    assert {event["run_id"] for event in events} == {TRACE, left, right}
    assert {event["node"] for event in turns_of(events) if event["run_id"] == left} == {"left"}
    assert all(event["parent_run_id"] == TRACE for event in turns_of(events) if event["run_id"] == left)
    assert halt_codes(events) == ["LOOP003", "LOOP003"]


def test_an_agent_without_steps_of_its_own_is_only_a_frame(tmp_path: Path) -> None:
    """The root of OpenAI's agents SDK is an agent span around the agents that hand over to each other."""
    spans = [chat_span(1, "To billing.", parent=7), chat_span(2, "Paid.", parent=8)]
    spans += [agent_span(7, "triage", parent=9), agent_span(8, "billing", parent=9), agent_span(9, "Workflow", end=10)]
    events = read(tmp_path, *spans)
    assert [(event["run_id"], event["node"]) for event in turns_of(events)] == [(TRACE, "triage"), (TRACE, "billing")]


def test_a_tool_that_calls_a_model_is_a_sub_agent(tmp_path: Path) -> None:
    spans = [chat_span(1, "Sub.", parent=5), tool_span(5, QUERY, "done", "research", begin=0, end=6, parent=9)]
    events = read(tmp_path, *spans, agent_span(9, end=10))
    assert [(event["run_id"], event["node"]) for event in turns_of(events)] == [
        (f"{TRACE}/{5:016x}", "research"), (TRACE, "buyer"),
    ]  # fmt: skip


def test_a_conversation_on_one_span_only_is_the_run_of_the_trace(tmp_path: Path) -> None:
    conversation = {"attributes": {"gen_ai.conversation.id": "conv"}}
    events = read(tmp_path, tool_span(1, QUERY, "a", parent=9), chat_span(2, "Done.", parent=9, **conversation))
    assert {event["run_id"] for event in events} == {"conv"}


def test_the_traces_of_a_conversation_are_one_run_in_order_of_time(tmp_path: Path) -> None:
    conversation = {"attributes": {"gen_ai.conversation.id": "conv"}}
    later = export(chat_span(5, "Second.", trace="b" * 32, **conversation))
    events = events_of(written(tmp_path / "c.jsonl", [later, export(chat_span(1, "First.", **conversation))]))
    assert [event["output"] for event in turns_of(events)] == ["First.", "Second."]


def test_the_message_of_a_person_begins_a_trace_of_a_conversation(tmp_path: Path) -> None:
    def asked(messages: list[Row]) -> list[str]:
        attributes = {"gen_ai.conversation.id": "conv", "gen_ai.input.messages": json.dumps(messages)}
        return [event.get("type", "turn") for event in read(tmp_path, chat_span(1, "Done.", attributes=attributes))]

    person = {"role": "user", "parts": [{"type": "text", "content": "Hi"}]}
    result = {"role": "user", "parts": [{"type": "tool_call_response", "id": "c", "result": "x"}]}
    assert asked([person]) == ["user.message", "turn"]
    assert asked([person, {"role": "assistant", "parts": []}, result]) == ["turn"]  # a program goes on


def test_a_run_that_is_a_trace_finishes_with_its_agent(tmp_path: Path) -> None:
    late = tool_span(1, QUERY, "late", parent=9, begin=1, end=50)
    events = read(tmp_path, late, agent_span(9, end=10))
    assert [event.get("type", "turn") for event in events] == ["turn", "run.finished"]
    assert events[-1]["at"] == START + 50_000  # never before its last turn


def test_spans_in_any_order_give_the_same_events(tmp_path: Path) -> None:
    spans = looping(["a", "b", "c"])
    assert read(tmp_path, *reversed(spans)) == read(tmp_path, *spans)


def test_parents_that_go_in_a_circle_end(tmp_path: Path) -> None:
    one, other = agent_span(1, "one", parent=2), agent_span(2, "two", parent=1)
    assert len(turns_of(read(tmp_path, one, other, tool_span(3, QUERY, "x", parent=1)))) == 1


def test_a_model_span_that_goes_on_while_its_tools_run_comes_first(tmp_path: Path) -> None:
    events = read(tmp_path, chat_span(1, begin=0, end=9), tool_span(2, QUERY, "a", parent=1), chat_span(12, "Done."))
    assert [event["usage"]["input_tokens"] for event in turns_of(events)] == [100, 100]


# Files


def test_a_span_that_never_ended_is_refused_and_counted(tmp_path: Path) -> None:
    reading = Import()
    found = tool_span(1, QUERY, "x")
    found["endTimeUnixNano"] = "0"
    assert read(tmp_path, found, reading=reading) == []
    assert reading.tally("otlp").ignored == {"span that never ended": 1}


def test_spans_of_other_libraries_are_counted_by_name(tmp_path: Path) -> None:
    reading = Import()
    read(tmp_path, span(1, "GET", {"http.request.method": "GET"}), reading=reading, scope="httpx")
    assert reading.tally("otlp").ignored == {"span of httpx": 1}


def test_ids_in_base64_are_those_in_hex(tmp_path: Path) -> None:
    found = tool_span(1, QUERY, "x")
    for name in ("traceId", "spanId"):
        found[name] = base64.b64encode(bytes.fromhex(found[name])).decode()
    assert read(tmp_path, found)[0]["event_id"] == f"{TRACE}:{1:016x}"


def test_a_document_counts_spans_and_lines_count_lines(tmp_path: Path) -> None:
    document = export(tool_span(1, QUERY, "x"), tool_span(2, QUERY, "y"))
    path = written_document(tmp_path / "one.json", document)
    assert [(one.number, one.unit) for one in otlp.read(LogFile(path), Import())] == [(1, "span"), (2, "span")]
    path = written(tmp_path / "rows.jsonl", [{}, document, document])
    assert [(one.number, one.unit) for one in otlp.read(LogFile(path), Import())] == [(2, "line"), (2, "line")]


def test_what_is_kept_of_a_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound, the trace that has been quiet for longest is read early; no turn is lost."""
    monkeypatch.setattr(trace_buffer.TraceBuffer.__init__, "__kwdefaults__", {"unit": "line", "bytes_max": 20_000})
    rows = [
        export(tool_span(number, QUERY, "x" * 500, trace=f"{trace:032x}", parent=99))
        for trace in range(1, 11)
        for number in range(1, 11)
    ]
    reading = Import()
    events = events_of(written(tmp_path / "big.jsonl", [*rows, export(tool_span(11, QUERY, "y", trace=f"{1:032x}"))]))
    assert len(turns_of(events)) == 101
    events_of(tmp_path / "big.jsonl", reading=reading)
    assert trace_buffer.EARLY in notes(reading)


# Spans without files


def test_spans_are_mapped_without_files() -> None:
    called = {"gen_ai.tool.name": "f", "gen_ai.tool.call.result": "x"}
    spans = [
        SpanRecord("t", "1", "9", "execute_tool f", end_ns=10**18, attributes=called),
        SpanRecord("t", "9", "", "invoke_agent a", end_ns=10**18, attributes={"gen_ai.agent.name": "a"}),
    ]
    options = TraceOptions(complete=False)
    [turn] = trace_turns.turns_of(map(step_of, spans), TraceCounts(), options)
    found = {"name": "f", "result": "x"}
    assert turn.event == {"run_id": "t", "node": "a", "event_id": "t:1", "at": 10**12, "tool_calls": [found]}


def test_the_run_is_what_the_setting_prefers() -> None:
    attributes = {"gen_ai.conversation.id": "c", "session.id": "s"}
    record = SpanRecord("t", "1", attributes=attributes)
    assert step_of(record).run == "c"
    assert step_of(record, ("session", "conversation")).run == "s"
    assert step_of(record, ()).run == ""
    assert step_of(SpanRecord("t", "1", attributes={**attributes, "streamproc.run.id": "r"})).run == "r"


def test_agents_as_tools_can_stay_in_their_run() -> None:
    spans = [
        SpanRecord("t", "1", "2", "execute_tool f", end_ns=10**18, attributes={"gen_ai.tool.name": "f"}),
        SpanRecord(
            "t", "2", "9", end_ns=10**18, attributes={"gen_ai.operation.name": "invoke_agent", "agent.name": "b"}
        ),
        SpanRecord("t", "3", "9", "execute_tool g", end_ns=10**18, attributes={"gen_ai.tool.name": "g"}),
        SpanRecord(
            "t", "9", "", end_ns=10**18, attributes={"gen_ai.operation.name": "invoke_agent", "agent.name": "a"}
        ),
    ]
    found = trace_turns.turns_of(map(step_of, spans), TraceCounts(), TraceOptions(sub_agents=False, complete=False))
    assert [(one.event["run_id"], one.event["node"], one.event.get("from")) for one in found] == [
        ("t", "b", "a"), ("t", "a", None),
    ]  # fmt: skip


@pytest.mark.parametrize(("attributes", "kind"), [
    ({"gen_ai.operation.name": "text_completion"}, "model"),
    ({"gen_ai.operation.name": "invoke_workflow"}, "scope"),
    ({"gen_ai.operation.name": "embeddings"}, "scope"),
    ({"gen_ai.operation.name": "plan"}, "model"),
    ({"gen_ai.operation.name": "retrieval"}, "query"),
    ({"mcp.method.name": "tools/call"}, "tool"),
    ({"openinference.span.kind": "llm"}, "model"),
    ({"traceloop.span.kind": "task"}, "scope"),
    ({"ai.operationId": "ai.streamText.doStream"}, "model"),
    ({"ai.operationId": "ai.embed"}, "scope"),
    ({"llm.request.type": "chat"}, "model"),
    ({"agent_name": "a", "gen_ai.usage.input_tokens": 5}, "agent"),
    ({"http.request.method": "GET"}, "scope"),
])  # fmt: skip
def test_what_a_span_is(attributes: dict[str, Any], kind: str) -> None:
    assert kind_of(SpanRecord("t", "1", attributes=attributes)) == kind


def test_the_samples_of_all_dialects_say_the_same() -> None:
    for path in sorted((SAMPLES / "otlp").glob("*.jsonl")):
        call, answer = turns_of(events_of(path))
        expected = {"name": "search", "id": "call_1", "args": {"query": "used bikes"}}
        assert call["tool_calls"] == [expected | {"result": [{"title": "Bike", "price": 120}]}], path
        assert answer["output"] == "One bike is on sale for 120.", path
        assert call["usage"]["input_tokens"] in (60, 80), path
