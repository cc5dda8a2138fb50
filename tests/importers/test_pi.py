"""Sessions of the coding agent pi."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import
from tests.importers.cli_logs import damaged, formats_found, read_log, samples_matched, shape
from tests.importers.reading import Row, calls_of, halts, turns_of, written

if TYPE_CHECKING:
    from pathlib import Path

NAME = "pi"
SESSION = "d703a1a9-1b7b"
USAGE = {"input": 3, "output": 7, "cacheRead": 60, "cacheWrite": 37, "totalTokens": 107, "cost": {"total": 0.01}}


def head(session: str = SESSION, **more: Any) -> Row:
    at = "2026-01-30T06:00:00.000Z"
    return {"type": "session", "version": 3, "id": session, "timestamp": at, "cwd": "/home/me/shop"} | more


def entry(number: int, kind: str, /, **fields: Any) -> Row:
    at = f"2026-01-30T06:{number // 60:02}:{number % 60:02}.000Z"
    return {"type": kind, "id": f"e{number}", "parentId": f"e{number - 1}", "timestamp": at} | fields


def user(number: int, text: str = "Fix it.") -> Row:
    return entry(number, "message", message={"role": "user", "content": text, "timestamp": 1})


def text(what: str) -> Row:
    return {"type": "text", "text": what}


def call(call_id: str, tool: str = "bash", **args: Any) -> Row:
    return {"type": "toolCall", "id": call_id, "name": tool, "arguments": args}


def says(number: int, *content: Row, reason: str = "toolUse", **more: Any) -> Row:
    about = {"api": "x", "provider": "anthropic", "model": "claude-sonnet-4-5", "usage": USAGE, "stopReason": reason}
    return entry(number, "message", message={"role": "assistant", "content": list(content)} | about | more)


def returns(number: int, call_id: str, output: str, *, failed: bool = False) -> Row:
    message = {"role": "toolResult", "toolCallId": call_id, "toolName": "bash", "content": [text(output)]}
    return entry(number, "message", message=message | {"isError": failed})


ROWS = [
    head(), entry(1, "model_change", provider="anthropic", modelId="claude-sonnet-4-5"), user(2),
    says(3, {"type": "thinking", "thinking": "Hm."}, text("I look."), call("c1", command="ls"),
         call("c2", command="x")),
    returns(4, "c2", "no x", failed=True), returns(5, "c1", "a\nb"), says(6, text("Done."), reason="stop"),
]  # fmt: skip


def read(tmp_path: Path, *rows: Any, reading: Import | None = None, file: str = "out.jsonl") -> list[Row]:
    return read_log(NAME, written(tmp_path / file, rows), reading)


def test_an_answer_is_a_turn_with_its_calls_and_their_results(tmp_path: Path) -> None:
    heard, first, second = read(tmp_path, *ROWS)
    at = heard["at"]
    scope = {"run_id": SESSION, "session_id": SESSION}
    assert heard == {**scope, "type": "user.message", "event_id": f"{SESSION}/e2", "at": at}
    assert first == {
        **scope, "event_id": f"{SESSION}/e3", "node": "pi", "model": "claude-sonnet-4-5", "provider": "anthropic",
        "at": at + 3_000, "output": "I look.",
        "tool_calls": [
            {"name": "bash", "args": {"command": "ls"}, "id": "c1", "result": "a\nb"},
            {"name": "bash", "args": {"command": "x"}, "id": "c2", "error": "no x"},
        ],
        "usage": {
            "input_tokens": 100, "output_tokens": 7, "cached_tokens": 60, "cache_write_tokens": 37, "cost_usd": "0.01",
        },
    }  # fmt: skip
    assert (second["output"], second["at"]) == ("Done.", at + 4_000)


def test_only_such_sessions_are_claimed(tmp_path: Path) -> None:
    assert samples_matched(NAME) == set()
    written(tmp_path / "whole.jsonl", ROWS)
    written(tmp_path / "late.jsonl", ROWS[4:])
    assert formats_found(tmp_path) == {NAME}


def test_the_output_as_json_is_read_as_well(tmp_path: Path) -> None:
    rows: list[Row] = [head(), {"type": "agent_start"}]
    for number, row in enumerate(ROWS[2:], start=1):
        message = row["message"] | {"timestamp": 1_769_752_800_000 + number}
        rows += [{"type": kind, "message": message} for kind in ("message_start", "message_update", "message_end")]
    reading = Import()
    events = read(tmp_path, *rows, {"type": "turn_end", "toolResults": []}, reading=reading)
    assert shape(events) == shape(read(tmp_path, *ROWS, file="session.jsonl"))
    assert all(event["at"] for event in events)
    assert not reading.tally(NAME).ignored


@pytest.mark.parametrize(
    ("output", "failed", "answer"),
    [
        ("bad\n\nCommand exited with code 2", True, {"error": "Exit code 2\nbad"}),
        ("Command exited with code 1", True, {"error": "Exit code 1\n"}),
        ("Command exited with code 1", False, {"result": "Command exited with code 1"}),
        ("a\n\nCommand timed out after 5 seconds", True, {"error": "a\n\nCommand timed out after 5 seconds"}),
        ("a\n\nCommand aborted", True, {}),
        ("Skipped due to queued user message.", True, {}),
        ("a\n\n[Showing lines 9-99 of 99. Full output: /tmp/pi-bash-1f.log]", False,
         {"result": "a\n\n[Showing lines 9-99 of 99]"}),
    ],
)  # fmt: skip
def test_a_call_fails_or_is_stopped_by_a_person(tmp_path: Path, output: str, failed: bool, answer: Row) -> None:
    [found] = calls_of(read(tmp_path, head(), says(1, call("c1")), returns(2, "c1", output, failed=failed)))
    assert {key: found[key] for key in ("result", "error") if key in found} == answer


def test_an_answer_may_fail_or_be_stopped_and_its_calls_are_not_made(tmp_path: Path) -> None:
    rows = [
        head(), says(1, call("c1"), reason="error", errorMessage="529 overloaded"),
        says(2, text("I"), call("c2"), reason="aborted"), says(3, text("Long"), reason="length"),
    ]  # fmt: skip
    failed, stopped, heard, cut = read(tmp_path, *rows)
    assert failed["errors"] == [{"message": "529 overloaded", "class": "api_error"}]
    assert not calls_of([failed, stopped])
    assert (stopped["output"], heard["type"], cut["stop_reason"]) == ("I", "user.message", "length")


def test_a_compaction_and_a_way_back_are_no_turns(tmp_path: Path) -> None:
    rows = [
        head(), says(1, text("A")), entry(2, "compaction", summary="…", firstKeptEntryId="e1", tokensBefore=50_000),
        says(3, text("B")), entry(4, "branch_summary", fromId="e3", summary="…"), says(5, text("C")),
    ]  # fmt: skip
    events = read(tmp_path, *rows)
    assert [event.get("type", event.get("output")) for event in events] == [
        "A", "context.compacted", "B", "user.message", "C",
    ]  # fmt: skip
    assert events[1]["before_tokens"] == 50_000


def test_a_fork_begins_with_a_copy_and_a_session_has_a_name(tmp_path: Path) -> None:
    reading = Import()
    named = entry(7, "session_info", name="Login")
    read(tmp_path, *ROWS, named, reading=reading)
    fork = [head("s2", parentSession="out.jsonl"), *ROWS[1:], user(8, "Go on."), says(9, text("Yes."))]
    events = read(tmp_path, *fork, reading=reading, file="fork.jsonl")
    assert [(event["run_id"], *shape([event])) for event in events] == [("s2", "u"), ("s2", "Yes.")]
    assert reading.tally(NAME).repeated == 5
    assert (reading.name_of(SESSION), reading.name_of("s2")) == ('"Login", shop', '"Go on.", shop')
    assert shape(read(tmp_path, *fork)) == ["u", "I look.+bash+bash", "Done.", "u", "Yes."]  # without its parent


def test_sessions_of_the_first_version_have_no_ids(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key not in ("id", "parentId")} for row in ROWS[1:]]
    reading = Import()
    events = read(tmp_path, head(), *rows, *rows, reading=reading)
    assert (len({event["event_id"] for event in events}), len(turns_of(events))) == (3, 2)
    compacted = [{"type": "compaction", "timestamp": f"2026-01-30T06:00:0{n}Z", "tokensBefore": 9} for n in (1, 2)]
    assert len({event["event_id"] for event in read(tmp_path, head(), *compacted)}) == 2
    assert reading.tally(NAME).repeated == 5
    assert {event["run_id"] for event in read(tmp_path, *rows)} == {"out"}


def test_what_no_agent_did_is_skipped_and_unknown_types_are_counted(tmp_path: Path) -> None:
    aside = [entry(n, "message", message={"role": role}) for n, role in enumerate(("bashExecution", "custom"), start=1)]
    odd = [entry(3, "message", message={"role": "oracle"}), entry(4, "novelty"), {"type": ["x"]}, 7]
    reading = Import()
    assert read(tmp_path, head(), *aside, entry(5, "custom_message", content="x"), *odd, reading=reading) == []
    assert reading.tally(NAME).ignored == {"oracle": 1, "novelty": 1, "list": 1, "int": 1}


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    def runs(*outputs: str) -> list[Row]:
        rows = [head(), user(1)]
        for number, output in enumerate(outputs, start=1):
            rows += [
                says(number * 2, call(f"c{number}", command="make")), returns(number * 2 + 1, f"c{number}", output),
            ]  # fmt: skip
        return rows

    assert halts(read(tmp_path, *runs("no rule", "no rule"))) == set()
    assert halts(read(tmp_path, *runs("no rule", "no rule", "no rule"))) == {(SESSION, "LOOP003")}
    assert halts(read(tmp_path, *runs(*map(str, range(9))))) == set()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=damaged([*ROWS, says(7, reason="error"), entry(8, "compaction", tokensBefore=1)]))
def test_a_damaged_session_never_raises(tmp_path: Path, rows: list[Any]) -> None:
    read(tmp_path, *rows)
