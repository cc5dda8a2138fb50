"""OpenHands before 1.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import, LogFile
from streamproc.importers.openhands_v0 import FORMAT
from tests.importers.reading import SAMPLES, calls, changed, expected, formats_that_match, halts, imported, written

SAMPLE = SAMPLES / "openhands-v0/trajectory.json"
EVENTS = LogFile(SAMPLE).document()


def action(number: int, kind: str = "run", source: str = "agent", **args: Any) -> dict[str, Any]:
    return {"id": number, "timestamp": "2025-01-20T20:00:00", "source": source, "action": kind, "args": args}


def seen(number: int, cause: int | None, text: str = "ok", kind: str = "run", **fields: Any) -> dict[str, Any]:
    found = {"id": number, "source": "agent", "observation": kind, "content": text, "extras": {}, **fields}
    return found if cause is None else found | {"cause": cause}


def session(folder: Path, events: list[dict[str, Any]]) -> Path:
    for event in events:
        written(folder / f"events/{event['id']}.json", event)
    return folder


def test_the_sample_is_read_as_expected() -> None:
    assert imported(SAMPLE) == expected(SAMPLES.parent / "expected/openhands-v0/trajectory.jsonl")


def test_a_directory_of_events_is_read_like_a_list_and_named_after_it(tmp_path: Path) -> None:
    folder = session(tmp_path / "trajectory", EVENTS)
    of_list, of_folder = imported(SAMPLE), imported(folder)
    assert formats_that_match(folder) == ["openhands-v0"]
    for event in of_list + of_folder:
        del event["#"]
    assert of_folder == of_list


def test_the_history_of_an_evaluation_is_a_run_of_its_instance(tmp_path: Path) -> None:
    rows = [{"instance_id": name, "history": EVENTS, "test_result": {}} for name in ("a__b-1", "a__b-2")]
    path = written(tmp_path / "output.jsonl", rows)
    runs = {event["run_id"] for event in imported(path)}
    assert formats_that_match(path) == ["openhands-v0"]
    assert {"output/a__b-1", "output/a__b-2/BrowsingAgent-10"} <= runs


def test_old_evaluations_wrote_pairs_of_action_and_observation(tmp_path: Path) -> None:
    pairs = [[{"action": "run", "args": {"command": "ls"}}, {"observation": "run", "content": "a", "extras": {}}]] * 2
    path = written(tmp_path / "output.jsonl", [{"instance_id": "a", "history": pairs}])
    assert formats_that_match(path) == ["openhands-v0"]
    assert [call["result"] for call in calls(path)] == ["a", "a"]


def test_events_of_the_resolver_are_flat_and_named_by_the_issue(tmp_path: Path) -> None:
    history = [
        {"action": "message", "content": "Fix it.", "wait_for_response": False, "action_risk": None},
        {"action": "run", "command": "ls", "thought": "I look.", "is_confirmed": "confirmed", "action_risk": None},
        {"observation": "run", "content": "a", "command": "ls", "command_id": -1, "exit_code": 1},
        {"action": "message", "content": "Which one?", "wait_for_response": True, "action_risk": None},
        {"action": "finish", "outputs": {}, "thought": "Done."},
    ]
    path = written(tmp_path / "output.jsonl", [{"issue": {"number": 5}, "history": history}])
    assert formats_that_match(path) == ["openhands-v0"]
    heard, looked, asked, done = imported(path)
    assert (heard["type"], heard["run_id"]) == ("user.message", "output/5")
    assert looked["output"] == "I look."
    assert looked["tool_calls"] == [
        {"name": "run", "id": "flat-2", "args": {"command": "ls"}, "error": "Exit code 1\na"}
    ]
    assert (asked["output"], done["output"]) == ("Which one?", "Done.")


def test_the_sample_is_of_no_other_format() -> None:
    assert formats_that_match(SAMPLE) == ["openhands-v0"]


def test_calls_of_one_response_are_one_turn_with_its_usage_once() -> None:
    turn = imported(SAMPLE)[2]
    assert [call["name"] for call in turn["tool_calls"]] == ["execute_bash"] * 2
    assert turn["usage"]["input_tokens"] == 3000
    assert turn["usage"]["cost_usd"] == "0.015"  # 0.025 less what was spent before


def test_arguments_are_those_of_the_model_without_notes_of_the_harness(tmp_path: Path) -> None:
    noise = {"thought": "x", "blocking": False, "hidden": True, "confirmation_state": "confirmed", "is_input": False}
    path = written(tmp_path / "a.json", [action(1, command="ls", **noise), seen(2, 1)])
    assert calls(path) == [{"name": "run", "id": "1", "args": {"command": "ls"}, "result": "ok"}]
    assert imported(SAMPLE)[2]["tool_calls"][0]["args"] == {"command": "pytest -q"}


@pytest.mark.parametrize(("code", "failed"), [(0, False), (1, True), (-1, False), (None, False)])
def test_the_exit_code_says_whether_a_command_failed_and_minus_one_that_it_runs(
    tmp_path: Path, code: int | None, *, failed: bool
) -> None:
    path = written(tmp_path / "a.json", [action(1), seen(2, 1, extras={"metadata": {"exit_code": code}})])
    assert ("error" in calls(path)[0]) is failed


def test_typing_into_a_program_that_runs_on_is_no_failure(tmp_path: Path) -> None:
    runs = {"success": False, "extras": {"metadata": {"exit_code": -1}}}
    typed = [
        event
        for n in range(0, 40, 2)
        for event in (action(n, command=f"go {n}", is_input=True), seen(n + 1, n, f"Room {n}", **runs))
    ]
    assert halts(imported(written(tmp_path / "a.json", typed))) == set()
    asked = [
        event
        for n in range(0, 10, 2)
        for event in (action(n, command=f"C-{n}", is_input=True), seen(n + 1, n, "Still running.", **runs))
    ]
    assert halts(imported(written(tmp_path / "b.json", asked))) == set()


def test_an_error_observation_is_an_error_of_its_call(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", [action(1), seen(2, 1, "bad", "error"), action(3), seen(4, 3, success=False)])
    assert [call.get("error") for call in calls(path)] == ["bad", "ok"]


def test_what_the_harness_appends_is_no_result(tmp_path: Path) -> None:
    texts = [
        "a\n[The command completed with exit code 0.]",
        "a\n[Python Interpreter: /x]\n[Command finished with exit code 0]",
    ]
    events = [event for n, text in enumerate(texts) for event in (action(2 * n), seen(2 * n + 1, 2 * n, text))]
    assert [call["result"] for call in calls(written(tmp_path / "a.json", events))] == ["a", "a"]


def test_a_rejection_is_an_act_of_a_person() -> None:
    events = imported(SAMPLE)
    place = next(n for n, event in enumerate(events) if "rejected" in json.dumps(event))
    assert events[place + 1]["type"] == "user.message"


def test_recalls_and_states_are_no_turns_and_no_messages(tmp_path: Path) -> None:
    events = [
        action(0, "system"), action(1, "recall", "user"), seen(2, 1, kind="recall"), action(3, "change_agent_state"),
        seen(4, 3, kind="null"), seen(5, None, kind="agent_state_changed", extras={"agent_state": "running"}),
        action(6, "run", "user", command="ls"), seen(7, 6),
    ]  # fmt: skip
    reading = Import()
    assert imported(written(tmp_path / "a.json", events), None, reading) == []
    assert not reading.tally("openhands-v0").ignored


def test_a_run_that_a_person_continues_has_not_finished(tmp_path: Path) -> None:
    done = seen(2, None, kind="agent_state_changed", extras={"agent_state": "finished"})
    events = [action(1, "finish", content="x"), done, action(3, "message", "user", content="more"), action(4)]
    assert [event.get("type") for event in imported(written(tmp_path / "a.json", events))] == [
        None,
        "user.message",
        None,
    ]
    assert imported(written(tmp_path / "b.json", events[:2]))[-1]["status"] == "finished"


def test_a_run_whose_agent_goes_on_has_not_finished(tmp_path: Path) -> None:
    done = seen(2, None, kind="agent_state_changed", extras={"agent_state": "error"})
    events = [action(1, "finish", content="x"), done, action(3)]
    assert [event.get("type") for event in imported(written(tmp_path / "a.json", events))] == [None, None]


def test_an_error_of_the_harness_is_a_turn_with_it(tmp_path: Path) -> None:
    stuck = seen(1, None, "AgentStuckInLoopError: Agent got stuck in a loop", "error", source="environment")
    (event,) = imported(written(tmp_path / "a.json", [stuck]))
    assert event["errors"] == [{"message": stuck["content"], "class": "AgentStuckInLoopError"}]


def test_interleaved_agents_are_runs_of_their_own(tmp_path: Path) -> None:
    events = [action(0, "delegate", agent="Browser"), action(1, "delegate", agent="Reader"), action(2), seen(3, 2)]
    events += [seen(4, None, "inner", "delegate"), action(5), seen(6, 5), seen(7, None, "outer", "delegate"), action(8)]
    found = imported(written(tmp_path / "a.json", events))
    assert [(event["run_id"], event.get("parent_run_id"), event["tool_calls"][0].get("result")) for event in found] == [
        ("a/Reader-1", "a/Browser-0", "ok"), ("a/Browser-0", "a", "inner"), ("a/Browser-0", "a", "ok"),
        ("a", None, "outer"), ("a", None, None),
    ]  # fmt: skip


def test_times_without_a_zone_are_utc() -> None:
    assert imported(SAMPLE)[0]["at"] == "2025-01-20T20:29:30.000100+00:00"


def test_a_session_that_is_read_twice_counts_once(tmp_path: Path) -> None:
    reading, folder = Import(), session(tmp_path / "s", [action(1), seen(2, 1)])
    assert len(imported(folder, None, reading)) == 1
    assert imported(folder, None, reading) == []
    assert reading.tally("openhands-v0").repeated == 2


def test_an_event_file_that_is_cut_off_is_skipped(tmp_path: Path) -> None:
    folder = session(tmp_path / "s", [action(1), seen(2, 1), action(3)])
    (folder / "events/2.json").write_text('{"id": 2, "obs')
    assert [call.get("result") for call in calls(folder)] == [None, None]


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = [event for n in range(0, 6, 2) for event in (action(n, command="ls"), seen(n + 1, n))]
    honest = [event for n in range(0, 6, 2) for event in (action(n, command=f"cat {n}"), seen(n + 1, n))]
    assert halts(imported(written(tmp_path / "stuck.json", stuck))) == {("stuck", "LOOP003")}
    assert halts(imported(written(tmp_path / "honest.json", honest))) == set()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=changed(EVENTS))
def test_any_shape_of_records_is_read(tmp_path: Path, events: Any) -> None:
    for path in (
        written(tmp_path / "a.json", events),
        written(tmp_path / "b.jsonl", [{"instance_id": 1, "history": events}]),
    ):
        formats_that_match(path)
        imported(path, FORMAT)
