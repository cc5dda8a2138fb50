"""Output of Claude Code's `stream-json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import
from streamproc.importers.raw_turns import NO_TIMES
from tests.importers.cli_logs import damaged, formats_found, read_log, samples_matched, shape
from tests.importers.reading import SAMPLES, Row, calls_of, halt_codes, written

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NAME = "claude-stream"
SAMPLE = SAMPLES / NAME / "agents.jsonl"
SESSION = "0b6c5f3e-2d34-4c54-9d0a-6b1f0a3c7e11"
RESULT = {"type": "result", "subtype": "success", "session_id": "s", "is_error": False}


def says(response: str, *content: Row, **more: Any) -> Row:
    return {"type": "assistant", "session_id": "s", "message": {"id": response, "content": list(content)}} | more


def user(content: Any, **more: Any) -> Row:
    return {"type": "user", "session_id": "s", "message": {"role": "user", "content": content}} | more


def use(call_id: str, **args: Any) -> Row:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": args}


def returns(call_id: str, content: str) -> Row:
    return user([{"type": "tool_result", "tool_use_id": call_id, "content": content}])


def text(what: str) -> Row:
    return {"type": "text", "text": what}


def read(tmp_path: Path, *rows: Any, reading: Import | None = None) -> list[Row]:
    return read_log(NAME, written(tmp_path / "out.jsonl", rows), reading)


def test_interleaved_sub_agents_are_runs_of_their_own() -> None:
    reading = Import()
    events = read_log(NAME, SAMPLE, reading)
    assert [(event["run_id"].removeprefix(SESSION), event["node"], *shape([event])) for event in events] == [
        ("", "main", "Two agents will look.+Task+Task"),
        ("/toolu_1", "Explore", "Bash"),
        ("/toolu_2", "Plan", "First the parser, then the page."),
        ("", "main", "There are no tests yet."),
    ]
    assert [event.get("parent_run_id") for event in events] == [None, SESSION, SESSION, None]
    assert events[0]["usage"] == {
        "input_tokens": 114,
        "cached_tokens": 10,
        "cache_write_tokens": 100,
        "output_tokens": 60,
    }
    assert calls_of(events)[2] == {
        "id": "toolu_3", "name": "Bash", "args": {"command": "ls tests"},
        "error": "ls: tests: No such file or directory",
    }  # fmt: skip
    assert reading.sentences() == [
        "read as: claude-stream (1 session, 2 sub-agents, 4 turns; 100 % of calls have results)", NO_TIMES,
    ]  # fmt: skip


def test_only_streams_are_claimed(tmp_path: Path) -> None:
    assert samples_matched(NAME) == {NAME}
    written(tmp_path / "late.jsonl", [says("m1", text("Hi."))])
    assert formats_found(tmp_path) == {NAME}


def test_a_document_with_all_messages_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps([says("m1", text("Hi.")), RESULT]))
    assert formats_found(tmp_path) == {NAME}
    assert shape(read_log(NAME, path)) == ["Hi."]


def test_what_follows_a_result_answers_a_new_prompt(tmp_path: Path) -> None:
    rows = [says("m1", text("One.")), RESULT, says("m2", text("Two.")), RESULT]
    woken = {"type": "system", "subtype": "task_notification", "session_id": "s"}
    assert shape(read(tmp_path, *rows, user("Again."), says("m3", text("Three.")), RESULT)) == [
        "One.", "u", "Two.", "u", "Three.",
    ]  # fmt: skip
    assert shape(read(tmp_path, *rows[:2], woken, *rows[2:])) == ["One.", "Two."]


def test_replayed_and_synthetic_messages_are_told_apart(tmp_path: Path) -> None:
    events = read(tmp_path, user("Fix it.", isReplay=True), says("m1", text("Yes.")), user("Go on.", isSynthetic=True))
    assert shape(events) == ["u", "Yes."]


def test_the_prompt_of_a_sub_agent_is_no_message_of_a_person(tmp_path: Path) -> None:
    assert read(tmp_path, user("Look.", parent_tool_use_id="t1")) == []


def test_parts_of_messages_and_states_are_no_unknown_types(tmp_path: Path) -> None:
    reading = Import()
    aside = ["stream_event", "rate_limit_event", "tool_progress", "system", "result"]
    read(tmp_path, *({"type": kind, "session_id": "s"} for kind in [*aside, "novelty"]), reading=reading)
    assert reading.tally(NAME).ignored == {"novelty": 1}


def test_history_that_is_printed_again_counts_once(tmp_path: Path) -> None:
    row = says("m1", use("c1"), uuid="0b6c5f3e-0000-4000-8000-0000000000aa")
    reading = Import()
    assert shape(read(tmp_path, row, returns("c1", "ok"), row, reading=reading)) == ["Bash"]
    assert reading.tally(NAME).repeated == 1


def test_a_response_that_is_printed_as_it_grows_counts_once(tmp_path: Path) -> None:
    first, second = text("Hi."), use("c1", command="ls")
    events = read(tmp_path, says("m1", first), says("m1", first, second), says("m1", first, second), returns("c1", "a"))
    assert shape(events) == ["Hi.+Bash"]


def test_retries_of_the_api_are_errors_that_a_retry_helps(tmp_path: Path) -> None:
    row = {"type": "system", "subtype": "api_retry", "session_id": "s", "error_status": 429, "error": "rate_limit"}
    failed = says("m1", text("API Error: 500"), error="server_error")
    assert [event["errors"] for event in read(tmp_path, row, failed)] == [
        [{"message": "429 rate_limit", "class": "api_error", "retryable": True}],
        [{"message": "API Error: 500", "class": "server_error", "retryable": True}],
    ]


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = [row for n in range(4) for row in (says(f"m{n}", use(f"c{n}", command="ls")), returns(f"c{n}", "a"))]
    honest = [
        row for n in range(4) for row in (says(f"m{n}", use(f"c{n}", command=f"ls {n}")), returns(f"c{n}", f"a{n}"))
    ]
    assert "LOOP003" in halt_codes(read(tmp_path, *stuck))
    assert halt_codes(read(tmp_path, *honest)) == []


def test_an_output_that_was_cut_off_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "out.jsonl", [says("m1", use("c1", command="ls"))])
    path.write_text(path.read_text() + '{"type":"user')
    assert calls_of(read_log(NAME, path)) == [{"id": "c1", "name": "Bash", "args": {"command": "ls"}}]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=damaged([json.loads(line) for line in SAMPLE.read_text().splitlines()]))
def test_no_shape_of_a_record_stops_the_import(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    read_log(NAME, written(tmp_path_factory.mktemp("odd") / "out.jsonl", rows))
