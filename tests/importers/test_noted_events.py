"""What logs say besides turns: compactions, what sent an agent on, how answers ended, and births of sub-agents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from streamproc.importers import Import
from streamproc.replay.source import open_logs
from tests.importers.reading import SAMPLES, imported, written

if TYPE_CHECKING:
    from pathlib import Path

SESSION = "0f000000-0000-4000-8000-000000000001"
AT = "2026-01-01T00:00:{:02}Z"


def claude(kind: str, number: int, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "uuid": f"u{number}", "timestamp": AT.format(number), "sessionId": SESSION, **fields}


def said(number: int, *content: dict[str, Any], stop_reason: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    message = {"id": f"m{number}", "role": "assistant", "content": list(content), "stop_reason": stop_reason}
    return claude("assistant", number, message=message | {"usage": {"input_tokens": 9, "output_tokens": 1}}, **more)


def codex(kind: str, number: int, **payload: Any) -> dict[str, Any]:
    return {"timestamp": AT.format(number), "type": kind, "payload": payload}


def besides(path: Path) -> list[dict[str, Any]]:
    """Return the events of a log that are neither turns nor messages of people, without what all events have."""
    common = ("#", "run_id", "session_id", "event_id", "at")
    kinds = ("context.compacted", "run.continued")
    return [
        {name: value for name, value in one.items() if name not in common}
        for one in imported(path)
        if one.get("type") in kinds
    ]


TEXT = {"type": "text", "text": "Done."}
FEEDBACK = {"role": "user", "content": "Stop hook feedback:\n[check.sh]: Run the tests."}


def test_claude_code_tells_compactions_with_their_sizes_and_what_a_stop_hook_said(tmp_path: Path) -> None:
    sizes = {"trigger": "auto", "preTokens": 167_000, "postTokens": 21_000}
    rows = [
        said(1, TEXT), claude("user", 2, message=FEEDBACK, isMeta=True), said(3, TEXT),
        claude("system", 4, subtype="compact_boundary", compactMetadata=sizes), said(5, TEXT),
    ]  # fmt: skip
    found = besides(written(tmp_path / f"{SESSION}.jsonl", rows))
    assert found == [
        {"type": "run.continued", "node": "main", "by": "Stop hook", "reason": "[check.sh]: Run the tests."},
        {"type": "context.compacted", "node": "main", "trigger": "auto", "before_tokens": 167_000,
         "after_tokens": 21_000},
    ]  # fmt: skip


def test_the_output_of_claude_code_tells_the_same(tmp_path: Path) -> None:
    rows = [
        {"type": "system", "subtype": "init", "session_id": SESSION},
        {"type": "assistant", "session_id": SESSION, "message": {"id": "m1", "content": [TEXT]}},
        {"type": "user", "session_id": SESSION, "isSynthetic": True, "message": FEEDBACK},
        {"type": "system", "subtype": "compact_boundary", "session_id": SESSION, "uuid": "c1",
         "compact_metadata": {"trigger": "manual", "pre_tokens": 9_000}},
    ]  # fmt: skip
    assert [(one["type"], one.get("before_tokens")) for one in besides(written(tmp_path / "out.jsonl", rows))] == [
        ("run.continued", None), ("context.compacted", 9_000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "stop_reason", "expected"),
    [
        ([TEXT], "end_turn", None), ([TEXT], "max_tokens", "length"), ([], "end_turn", "empty"),
        ([{"type": "thinking", "thinking": "Hm."}], "end_turn", "empty"), ([TEXT], "refusal", "refusal"),
        ([{"type": "tool_use", "id": "c", "name": "Bash", "input": {}}], "tool_use", None), ([], None, None),
    ],
)  # fmt: skip
def test_an_answer_of_claude_that_ends_unusually_says_so(
    tmp_path: Path, content: list[Any], stop_reason: str | None, expected: str | None
) -> None:
    [turn] = imported(written(tmp_path / f"{SESSION}.jsonl", [said(1, *content, stop_reason=stop_reason)]))
    assert turn.get("stop_reason") == expected


@pytest.mark.parametrize("told", ["record and event", "record", "event"])
def test_codex_tells_compactions_once_and_hooks_that_sent_it_on(tmp_path: Path, told: str) -> None:
    def usage(tokens: int) -> dict[str, Any]:
        used = {"input_tokens": tokens, "output_tokens": 1}
        return {"type": "token_count", "info": {"total_token_usage": used, "last_token_usage": used}}

    prompt = '<hook_prompt hook_run_id="stop:1:/p/hooks.json">Fix &amp; test.</hook_prompt>'
    rows = [
        codex("session_meta", 0, id=SESSION, timestamp=AT.format(0)),
        codex("response_item", 1, type="message", role="assistant", content=[{"type": "output_text", "text": "A."}]),
        codex("event_msg", 2, **usage(90_000)),
        *([codex("compacted", 3, message="Summary")] if "record" in told else []),
        *([codex("event_msg", 4, type="context_compacted")] if "event" in told else []),
        codex("response_item", 5, type="message", role="user", content=[{"type": "input_text", "text": prompt}]),
        codex("response_item", 6, type="message", role="assistant", content=[{"type": "output_text", "text": "B."}]),
    ]
    path = written(tmp_path / f"rollout-2026-01-01T00-00-00-{SESSION}.jsonl", rows)
    assert besides(path) == [
        {"type": "context.compacted", "node": "codex", "before_tokens": 90_000},
        {"type": "run.continued", "node": "codex", "by": "Stop hook", "reason": "Fix &amp; test."},
    ]
    assert [one["output"] for one in imported(path) if "output" in one] == ["A.", "B."]


def test_opencode_tells_compactions_and_answers_that_were_cut_off(tmp_path: Path) -> None:
    def message(number: int, role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        info = {"id": f"msg_{number}", "role": role, "time": {"created": 1_776_898_604_000 + number}, "agent": "build"}
        return {"info": info, "parts": list(parts)}

    finish = {"type": "step-finish", "reason": "length", "tokens": {"input": 70, "output": 3}}
    messages = [
        message(1, "user", {"type": "text", "text": "Go."}), message(2, "assistant", TEXT, finish),
        message(3, "user", {"type": "compaction", "auto": True}), message(4, "assistant", TEXT),
    ]  # fmt: skip
    info = {"id": "ses_1", "projectID": "p", "directory": "/p", "time": {"created": 1}}
    path = written(tmp_path / "a.json", {"info": info, "messages": messages})
    assert besides(path) == [{"type": "context.compacted", "trigger": "auto", "before_tokens": 70}]
    assert [one.get("stop_reason") for one in imported(path) if "output" in one] == ["length", None]


def test_openhands_tells_condensations_and_hooks_that_do_not_let_it_stop(tmp_path: Path) -> None:
    def event(number: int, kind: str, **fields: Any) -> dict[str, Any]:
        return {"id": f"e{number}", "timestamp": "2026-02-01T09:42:00", "source": "hook", "kind": kind, **fields}

    hook = {"hook_event_type": "Stop", "hook_command": "check.sh", "reason": "Two tests fail."}
    events = [
        event(1, "Condensation", summary="x"), event(2, "HookExecutionEvent", **hook, blocked=True),
        event(3, "HookExecutionEvent", **hook, blocked=False),
        event(4, "HookExecutionEvent", **hook | {"hook_event_type": "PreToolUse"}, blocked=True),
    ]  # fmt: skip
    for number, one in enumerate(events):
        written(tmp_path / f"a/events/event-{number:05}-{number}.json", one)
    written(tmp_path / "a/base_state.json", {"id": "a"})
    assert besides(tmp_path / "a") == [
        {"type": "context.compacted", "node": "agent", "trigger": "auto"},
        {"type": "run.continued", "node": "agent", "by": "Stop hook", "reason": "Two tests fail."},
    ]


def test_copilot_tells_compactions(tmp_path: Path) -> None:
    def event(number: int, kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data, "id": f"e{number}", "timestamp": AT.format(number)}

    done = {"success": True, "preCompactionTokens": 128_000, "postCompactionTokens": 30_000}
    rows = [
        event(1, "session.start", sessionId=SESSION), event(2, "assistant.message", messageId="m", content="A."),
        event(3, "session.compaction_complete", **done), event(4, "session.compaction_complete", success=False),
    ]  # fmt: skip
    path = written(tmp_path / SESSION / "events.jsonl", rows)
    assert besides(path) == [
        {"type": "context.compacted", "node": "copilot", "before_tokens": 128_000, "after_tokens": 30_000}
    ]


def test_messages_tell_how_answers_ended(tmp_path: Path) -> None:
    rows = [
        {"role": "user", "content": "Go."}, {"role": "assistant", "content": "A", "finish_reason": "length"},
        {"role": "assistant", "content": "B", "finish_reason": "stop"},
        {"role": "assistant", "content": "", "finish_reason": "stop"},
    ]  # fmt: skip
    found = imported(written(tmp_path / "chat.jsonl", rows))
    assert [one.get("stop_reason") for one in found if one.get("type") != "user.message"] == ["length", None, "empty"]


def test_spans_tell_how_answers_ended_and_never_that_one_was_empty(tmp_path: Path) -> None:
    def span(number: int, reason: str) -> dict[str, Any]:
        values = {"gen_ai.operation.name": {"stringValue": "chat"}, "gen_ai.usage.input_tokens": {"intValue": "9"}}
        values["gen_ai.response.finish_reasons"] = {"arrayValue": {"values": [{"stringValue": reason}]}}
        attributes = [{"key": key, "value": value} for key, value in values.items()]
        times = {"startTimeUnixNano": f"{number}000000000", "endTimeUnixNano": f"{number}500000000"}
        ids = {"traceId": "a" * 32, "spanId": f"{number:016}"}
        return {**ids, **times, "name": "chat", "attributes": attributes}

    spans = [span(1_770_000_001, "stop"), span(1_770_000_002, "length")]
    path = written(tmp_path / "trace.json", {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    assert [one.get("stop_reason") for one in imported(path) if one.get("type", "turn") == "turn"] == [None, "length"]


def births(*paths: Path) -> list[dict[str, Any]]:
    sources, _ = open_logs(list(map(str, paths)))
    events = [found for source in sources for found in source.read(None)]
    seen: set[str] = set()
    for one in events:
        kind = (one.raw or {}).get("type", "turn")
        assert (kind == "run.started") == (one.event.run_id not in seen and bool(one.event.parent_run_id)), (
            "a birth is the first event of a child, and of no other run"
        )
        seen.add(one.event.run_id)
    return [one.raw for one in events if (one.raw or {}).get("type") == "run.started"]


def test_a_sub_agent_is_born_before_its_first_turn_with_its_parent_and_its_prompt(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Task", "input": {"subagent_type": "Explore", "prompt": "Look."}}
    agent = {"isSidechain": True, "agentId": "a1"}
    rows = [
        said(1, call, stop_reason="tool_use"),
        claude("user", 2, message={"role": "user", "content": "Look."}, **agent), said(3, TEXT, **agent),
        said(4, TEXT, **agent), said(5, TEXT),
    ]  # fmt: skip
    [born] = births(written(tmp_path / f"{SESSION}.jsonl", rows))
    assert {name: born[name] for name in ("run_id", "parent_run_id", "session_id", "prompt")} == {
        "run_id": f"{SESSION}/a1", "parent_run_id": SESSION, "session_id": SESSION, "prompt": "Look.",
    }  # fmt: skip


def test_births_in_the_samples_of_other_tools() -> None:
    found = births(SAMPLES / "claude-code/showcase", SAMPLES / "codex", SAMPLES / "claude-stream/agents.jsonl")
    assert len(found) >= 4
    assert all(one["parent_run_id"] and one["session_id"] and one["run_id"] != one["parent_run_id"] for one in found)
    assert sum(bool(one.get("prompt")) for one in found) >= 3


def test_a_run_is_born_once_in_all_logs_that_are_read_together(tmp_path: Path) -> None:
    one = {"run_id": "child", "parent_run_id": "root", "node": "a"}
    reading = Import()
    log = written(tmp_path / "unused.json", [])
    assert json.loads(log.read_text()) == []
    from streamproc.importers.imported import Imported

    first = [found.event.get("type", "turn") for found in reading.births([Imported(one, 1), Imported(one, 2)])]
    second = [found.event.get("type", "turn") for found in reading.births([Imported(one, 1)])]
    assert (first, second) == (["run.started", "turn", "turn"], ["turn"])
