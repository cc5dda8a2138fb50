"""OpenHands 1.x."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import, LogFile
from streamproc.importers.discovery import log_paths
from streamproc.importers.openhands import FORMAT
from tests.importers.reading import SAMPLES, calls, changed, expected, formats_that_match, halts, imported, written

SAMPLE = SAMPLES / "openhands/5db134a6233f4ff9b88fc4f3e1e07c66"
EVENTS = [row.data for row in LogFile(SAMPLE).rows()]
STATE = json.loads((SAMPLE / "base_state.json").read_text())


def event(number: int, kind: str, source: str = "environment", **fields: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "timestamp": "2026-02-01T09:42:00", "source": source, "kind": kind, **fields}


def asked(number: int, response: str = "", tool: str = "terminal", **args: Any) -> dict[str, Any]:
    call = {"id": f"c{number}", "name": tool, "arguments": json.dumps(args)}
    fields = {"tool_name": tool, "tool_call_id": f"c{number}", "tool_call": call, "llm_response_id": response}
    return event(number, "ActionEvent", "agent", thought=[], action={}, **fields)


def seen(number: int, call: int, text: str = "ok", **fields: Any) -> dict[str, Any]:
    content = {"content": [{"type": "text", "text": text}], "is_error": False, **fields}
    return event(number, "ObservationEvent", tool_name="terminal", tool_call_id=f"c{call}", observation=content)


def conversation(folder: Path, events: list[Any], state: Any = None) -> Path:
    for number, one in enumerate(events):
        written(folder / f"events/event-{number:05}-{number}.json", one)
    written(folder / "base_state.json", {"id": folder.name} if state is None else state)
    return folder


@pytest.mark.parametrize("sample", [SAMPLE, SAMPLE.with_name("v1_49_1_mcp")], ids=lambda sample: str(sample.name))
def test_a_sample_is_read_as_expected(sample: Path) -> None:
    assert imported(sample) == expected(SAMPLES.parent / f"expected/openhands/{sample.name}.jsonl")
    assert formats_that_match(sample) == ["openhands"]


def test_the_history_of_an_evaluation_is_a_run_of_its_instance(tmp_path: Path) -> None:
    path = written(tmp_path / "output.jsonl", [{"instance_id": "a__b-1", "history": EVENTS, "error": None}])
    assert formats_that_match(path) == ["openhands"]
    assert {found["run_id"] for found in imported(path)} == {"output/a__b-1"}


def test_calls_of_one_response_are_one_turn_with_its_usage_once() -> None:
    turn = imported(SAMPLE)[2]
    assert [call["id"] for call in turn["tool_calls"]] == ["call_2", "call_3"]
    assert turn["usage"] == {"input_tokens": 1200, "output_tokens": 60, "cached_tokens": 900, "cost_usd": "0.02"}


def test_arguments_have_no_notes_of_the_harness(tmp_path: Path) -> None:
    one = asked(1, command="ls", security_risk="LOW", summary="lists files")
    other = asked(2, command="ls", security_risk="HIGH", summary="looks around")
    first, second = calls(conversation(tmp_path / "a", [one, seen(3, 1), other, seen(4, 2)]))
    assert first["args"] == second["args"] == {"command": "ls"}


@pytest.mark.parametrize(
    ("fields", "failed"),
    [
        ({}, False), ({"is_error": True}, True), ({"exit_code": 1}, True), ({"exit_code": -1}, False),
        ({"metadata": {"exit_code": 2}, "exit_code": 0}, True),
    ],
)  # fmt: skip
def test_a_failed_command_is_an_error(tmp_path: Path, fields: dict[str, Any], *, failed: bool) -> None:
    (call,) = calls(conversation(tmp_path / "a", [asked(1), seen(2, 1, **fields)]))
    assert ("error" in call) is failed


def test_mistakes_of_the_scaffold_are_errors_of_their_call() -> None:
    turn = imported(SAMPLE)[3]
    assert turn["tool_calls"][0]["error"] == "Tool 'no_such_tool' not found."


def test_a_rejection_by_a_person_is_a_message_and_one_by_a_hook_an_error(tmp_path: Path) -> None:
    rejected = {"tool_call_id": "c1", "rejection_reason": "no", "rejection_source": "hook"}
    hook = imported(conversation(tmp_path / "a", [asked(1), event(2, "UserRejectObservation", **rejected)]))
    rejected["rejection_source"] = "user"
    user = imported(conversation(tmp_path / "b", [asked(1), event(2, "UserRejectObservation", **rejected)]))
    assert [found["tool_calls"][0].get("error") for found in hook] == ["rejected: no"]
    assert [found.get("type") for found in user] == [None, "user.message"]


def test_messages_of_agents_and_of_the_harness_are_no_person(tmp_path: Path) -> None:
    said = {"llm_message": {"role": "user", "content": []}}
    events = [
        event(1, "MessageEvent", "user", **said), event(2, "MessageEvent", "user", **said, sender="planner"),
        event(3, "MessageEvent", "environment", **said),
    ]  # fmt: skip
    assert [found["#"] for found in imported(conversation(tmp_path / "a", events))] == ["event 0"]


def test_two_files_of_one_number_and_repeated_events(tmp_path: Path) -> None:
    folder = conversation(tmp_path / "a", [asked(1), seen(2, 1)])
    written(folder / "events/event-00001-forked.json", asked(3))
    written(folder / "events/event-00002-again.json", asked(3))
    reading = Import()
    assert [len(found["tool_calls"]) for found in imported(folder, None, reading)] == [1, 1]
    assert reading.tally("openhands").repeated == 1


def test_going_back_is_an_act_of_a_person_and_what_happened_stays(tmp_path: Path) -> None:
    events = [asked(1), seen(2, 1), asked(3), seen(4, 3), asked(5), seen(6, 5)]
    for one, parent in zip(events, (None, "e1", "e2", "e3", "e2", "e5"), strict=True):
        one["parent_id"] = parent
    found = imported(conversation(tmp_path / "a", events))
    assert [one.get("type", one.get("event_id")) for one in found] == ["e1", "e3", "user.message", "e5"]


def test_an_event_whose_parent_was_lost_does_not_look_like_going_back(tmp_path: Path) -> None:
    events = [asked(1) | {"parent_id": None}, asked(3) | {"parent_id": "e2"}]
    assert [one.get("type") for one in imported(conversation(tmp_path / "a", events))] == [None, None]


def test_conversations_of_sub_agents_are_runs_of_their_own(tmp_path: Path) -> None:
    folder = conversation(tmp_path / "main", [asked(1), seen(2, 1)])
    conversation(folder / "subagents/child", [asked(1), seen(2, 1)])
    reading = Import()
    found = [one for path in log_paths([str(tmp_path)]) for one in imported(Path(path), None, reading)]
    assert [(one["run_id"], one.get("parent_run_id")) for one in found] == [("main", None), ("main/child", "main")]


def test_calls_of_agents_of_other_vendors_are_reported_several_times(tmp_path: Path) -> None:
    reports = [{"status": status, "raw_output": out} for status, out in [("pending", None), ("completed", "x")] * 2]
    common = {"tool_call_id": "t", "title": "Read a.py", "tool_kind": "read", "raw_input": {"path": "a.py"}}
    events = [event(n, "ACPToolCallEvent", "agent", **common, **report) for n, report in enumerate(reports)]
    assert calls(conversation(tmp_path / "a", events)) == [
        {"name": "read", "id": "t", "args": {"path": "a.py"}, "result": "x"}
    ]


def test_unknown_kinds_are_counted_and_known_ones_of_no_use_are_not(tmp_path: Path) -> None:
    reading = Import()
    events = [event(1, "PauseEvent"), event(2, "Condensation"), event(3, "NewEvent"), event(4, "NewEvent"), "odd"]
    [compacted] = imported(conversation(tmp_path / "a", events), FORMAT, reading)
    assert compacted["type"] == "context.compacted"
    assert dict(reading.tally("openhands").ignored) == {"NewEvent": 2, "event without a kind": 1}


@pytest.mark.parametrize("state", ["finished", "error", "stuck", "running", None])
def test_the_state_says_how_a_conversation_ended(tmp_path: Path, state: str | None) -> None:
    folder = conversation(tmp_path / "a", [asked(1)], {"id": "a", "execution_status": state})
    ended = [one["status"] for one in imported(folder) if one.get("type") == "run.finished"]
    assert ended == ([state] if state in ("finished", "error", "stuck") else [])


def test_without_a_state_the_directory_names_the_run(tmp_path: Path) -> None:
    folder = conversation(tmp_path / "a", [asked(1)])
    (folder / "base_state.json").write_text('{"id": "cut')
    assert imported(folder)[0]["run_id"] == "a"


def test_an_event_file_that_is_cut_off_is_skipped(tmp_path: Path) -> None:
    folder = conversation(tmp_path / "a", [asked(1), seen(2, 1), asked(3)])
    (folder / "events/event-00001-1.json").write_text('{"id": "e2", "kin')
    assert [call.get("result") for call in calls(folder)] == [None, None]


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = [one for n in range(0, 6, 2) for one in (asked(n, f"r{n}", command="ls"), seen(n + 1, n))]
    honest = [one for n in range(0, 6, 2) for one in (asked(n, f"r{n}", command=f"cat {n}"), seen(n + 1, n))]
    assert halts(imported(conversation(tmp_path / "stuck", stuck))) == {("stuck", "LOOP003")}
    assert halts(imported(conversation(tmp_path / "honest", honest))) == set()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=changed({"events": EVENTS, "state": STATE}))
def test_any_shape_of_records_is_read(tmp_path: Path, document: Any) -> None:
    events = document.get("events")
    written(tmp_path / "a.jsonl", [{"history": events}])
    formats_that_match(tmp_path / "a.jsonl")
    imported(tmp_path / "a.jsonl", FORMAT)
    imported(conversation(tmp_path / "a", events if isinstance(events, list) else [], document.get("state")), FORMAT)
