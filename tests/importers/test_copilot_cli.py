"""Sessions of GitHub Copilot CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import
from streamproc.importers.copilot_cli import FORMAT
from tests.importers.reading import changed, events_of, formats_that_match, halts, imported, written

SESSION = "893a5996-93d7-4625-8232-f5d8907a746c"


def event(number: int, kind: str, /, agent: str = "", **data: Any) -> dict[str, Any]:
    row = {"type": kind, "data": data, "id": f"e{number}", "timestamp": f"2026-06-18T19:13:{number:02}.000Z"}
    return row | ({"agentId": agent} if agent else {})


def started(number: int = 0) -> dict[str, Any]:
    context = {"cwd": "/home/me/shop"}
    return event(number, "session.start", sessionId=SESSION, version=1, producer="copilot-agent", context=context)


def requested(call_id: str, tool: str, args: Any) -> dict[str, Any]:
    return {"toolCallId": call_id, "name": tool, "arguments": args, "type": "function"}


def ended(number: int, call_id: str, content: str, agent: str = "", **more: Any) -> dict[str, Any]:
    result = {"result": {"content": content, "detailedContent": f"{content}!"}, "success": True} | more
    return event(number, "tool.execution_complete", agent, toolCallId=call_id, **result)


ROWS = [
    started(),
    event(1, "session.model_change", newModel="gpt-5.4"),
    event(2, "user.message", content="Fix it.", attachments=[]),
    event(3, "assistant.turn_start", turnId="0"),
    event(4, "assistant.message", messageId="m1", content="", toolRequests=[requested("c1", "bash", {"command": "ls"})],
          outputTokens=12),
    event(5, "tool.execution_start", toolCallId="c1", toolName="bash", arguments={"command": "ls"}),
    ended(6, "c1", "a"),
    event(7, "assistant.message", messageId="m2", content="Done.", toolRequests=[], outputTokens=3),
    event(8, "session.shutdown", shutdownType="routine"),
]  # fmt: skip


def path_of(tmp_path: Path, rows: list[dict[str, Any]]) -> Path:
    return written(tmp_path / SESSION / "events.jsonl", rows)


def read(path: Path) -> list[dict[str, Any]]:
    return events_of(path, FORMAT)


def test_a_response_is_a_turn_with_its_calls_and_their_results(tmp_path: Path) -> None:
    path = path_of(tmp_path, ROWS)
    assert formats_that_match(path) == ["copilot-cli"]
    scope = {"run_id": SESSION, "session_id": SESSION}
    turn = {**scope, "node": "copilot", "model": "gpt-5.4"}
    heard, first, second = read(path)
    assert heard == {**scope, "event_id": "e2", "type": "user.message", "at": heard["at"]}
    assert first == {
        **turn, "event_id": "m1", "at": first["at"], "usage": {"output_tokens": 12},
        "tool_calls": [{"name": "bash", "args": {"command": "ls"}, "id": "c1", "result": "a"}],
    }  # fmt: skip
    assert second == {**turn, "event_id": "m2", "at": second["at"], "usage": {"output_tokens": 3}, "output": "Done."}
    assert first["at"] - heard["at"] == 4_000


def test_a_session_without_its_beginning_is_named_after_its_directory(tmp_path: Path) -> None:
    assert {one["run_id"] for one in read(path_of(tmp_path, ROWS[1:]))} == {SESSION}


def test_a_log_that_says_only_at_the_start_of_a_call_what_it_is(tmp_path: Path) -> None:
    rows = [
        started(),
        event(
            1,
            "assistant.message",
            messageId="m1",
            content="I look.",
            toolRequests=[{"toolCallId": "c1", "name": "view"}],
        ),
        event(2, "tool.execution_start", toolCallId="c1", toolName="view", arguments={"path": "a"}),
        event(3, "tool.execution_complete", toolCallId="c1", success=True),
        event(4, "tool.execution_start", toolCallId="c2", toolName="bash", arguments={"command": "ls"}),
        ended(5, "c2", "a"),
    ]
    first, second = read(path_of(tmp_path, rows))
    assert first["tool_calls"] == [{"name": "view", "args": {"path": "a"}, "id": "c1"}]
    assert second["tool_calls"] == [{"name": "bash", "args": {"command": "ls"}, "id": "c2", "result": "a"}]


def test_a_call_fails_or_is_declined_by_a_person(tmp_path: Path) -> None:
    calls = [requested("c1", "bash", {"command": "x"}), requested("c2", "bash", {"command": "y"})]
    rejected = {"message": "The user rejected this tool call.", "code": "rejected"}
    rows = [
        event(1, "assistant.message", messageId="m1", content="", toolRequests=calls),
        event(
            2, "tool.execution_complete", toolCallId="c1", success=False, error={"message": "no x", "code": "failure"}
        ),
        event(3, "tool.execution_complete", toolCallId="c2", success=False, error=rejected),
    ]
    turn, heard = read(path_of(tmp_path, rows))
    assert [{key: one[key] for key in ("result", "error") if key in one} for one in turn["tool_calls"]] == [
        {"error": "no x"}, {},
    ]  # fmt: skip
    assert heard["type"] == "user.message"


def test_a_sub_agent_is_a_run_of_its_own(tmp_path: Path) -> None:
    rows = [
        started(),
        event(
            1,
            "assistant.message",
            messageId="m1",
            content="",
            toolRequests=[requested("t1", "task", {"prompt": "Look"})],
        ),
        event(2, "subagent.started", "t1", toolCallId="t1", agentName="explore"),
        event(3, "user.message", "t1", content="Look", source="agent-1"),
        event(
            4, "assistant.message", "t1", messageId="m2", content="", toolRequests=[requested("g1", "grep", {"p": "x"})]
        ),
        ended(5, "g1", "nothing", "t1"),
        event(6, "assistant.message", messageId="m3", content="older form", parentToolCallId="t1"),
        ended(7, "t1", "Found nothing."),
    ]
    events = read(path_of(tmp_path, rows))
    child = [one for one in events if one["run_id"] == f"{SESSION}/t1"]
    assert [one.get("type", "turn") for one in child] == ["turn", "turn"]
    assert {(one["parent_run_id"], one["node"]) for one in child} == {(SESSION, "explore")}
    [parent] = [one for one in events if one["run_id"] == SESSION]
    assert parent["tool_calls"][0]["result"] == "Found nothing."


def test_errors_of_the_service_may_be_retried_and_records_of_other_kinds_are_counted(tmp_path: Path) -> None:
    rows = [*ROWS, event(9, "session.error", errorType="model_call", message="overloaded"), event(10, "odd.kind", x=1)]
    reading = Import()
    [*_, failed] = imported(path_of(tmp_path, rows), FORMAT, reading)
    assert failed["errors"] == [{"message": "overloaded", "class": "model_call", "retryable": True}]
    assert dict(reading.tally("copilot-cli").ignored) == {"odd.kind": 1}


def test_an_image_beside_a_result_is_a_part_of_it(tmp_path: Path) -> None:
    contents = [{"type": "text", "text": "Took it."}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    result = {"content": "Took it.", "contents": contents}
    _, turn, _ = read(path_of(tmp_path, [*ROWS[:6], ended(6, "c1", "", result=result), *ROWS[7:]]))
    assert turn["tool_calls"][0]["result"].startswith("Took it.\n[image ")


def test_a_session_that_repeats_a_command_is_halted(tmp_path: Path) -> None:
    rows = [started()]
    for n in range(1, 9, 2):
        calls = [requested(f"c{n}", "bash", {"command": "ls"})]
        rows += [
            event(n, "assistant.message", messageId=f"m{n}", content="", toolRequests=calls),
            ended(n + 1, f"c{n}", "a"),
        ]
    assert halts(imported(path_of(tmp_path, rows))) == {(SESSION, "LOOP003")}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(rows=changed(ROWS))
def test_a_damaged_session_never_raises(tmp_path: Path, rows: list[Any]) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    imported(path, FORMAT)
