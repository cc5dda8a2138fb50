"""Rollouts of Codex."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.fingerprint.marks import marks_of
from streamproc.importers import Import
from streamproc.importers.codex_turns import answer_of
from streamproc.importers.discovery import log_paths
from streamproc.model.wire import WAITS
from tests.importers.cli_logs import damaged, formats_found, read_log, samples_matched, shape
from tests.importers.reading import SAMPLES, Row, calls_of, halt_codes, turns_of, written

if TYPE_CHECKING:
    from pathlib import Path

NAME = "codex"
RUN = "0c000000-0000-4000-8000-000000000001"
CHILD = "0c000000-0000-4000-8000-000000000002"


class Recording:
    """Records of a rollout, a second apart."""

    def __init__(self, run: str = RUN, **meta: Any) -> None:
        self.rows: list[Row] = []
        self.record("session_meta", id=run, timestamp="2026-01-01T00:00:00Z", **meta)

    def record(self, kind: str, **payload: Any) -> Recording:
        at = f"2026-01-01T00:{len(self.rows) // 60:02}:{len(self.rows) % 60:02}Z"
        self.rows.append({"timestamp": at, "type": kind, "payload": payload})
        return self

    def item(self, kind: str, **payload: Any) -> Recording:
        return self.record("response_item", type=kind, **payload)

    def event(self, kind: str, **payload: Any) -> Recording:
        return self.record("event_msg", type=kind, **payload)

    def says(self, text: str) -> Recording:
        return self.item("message", role="assistant", content=[{"type": "output_text", "text": text}])

    def asks(self, text: str) -> Recording:
        return self.item("message", role="user", content=[{"type": "input_text", "text": text}])

    def calls(self, call_id: str, command: str = "ls", name: str = "exec_command") -> Recording:
        return self.item("function_call", name=name, arguments=json.dumps({"cmd": command}), call_id=call_id)

    def returns(self, call_id: str, output: Any) -> Recording:
        return self.item("function_call_output", call_id=call_id, output=output)

    def counts(self, total: int, last: int | None = None) -> Recording:
        info: Row = {"total_token_usage": {"input_tokens": total, "output_tokens": 1}}
        if last is not None:
            info["last_token_usage"] = {"input_tokens": last, "cached_input_tokens": 2, "output_tokens": 1}
        return self.event("token_count", info=info)


def read(tmp_path: Path, rollout: Recording, reading: Import | None = None, name: str = "rollout.jsonl") -> list[Row]:
    return read_log(NAME, written(tmp_path / name, rollout.rows), reading)


def test_a_message_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    rollout = Recording().asks("Go.").event("user_message", message="Go.")
    rollout.event("agent_message", message="Done.").says("Done.").says("More.").event("agent_message", message="More.")
    assert shape(read(tmp_path, rollout)) == ["u", "Done.", "More."]


def test_a_final_answer_that_repeats_a_text_of_its_response_counts_once(tmp_path: Path) -> None:
    rollout, words = Recording(), [{"type": "output_text", "text": "Done."}]
    for number, phase in enumerate(("commentary", "final_answer", "final_answer"), start=1):
        rollout.event("agent_message", message="Done.")
        rollout.item("message", role="assistant", content=words, phase=phase)
        if number > 1:
            rollout.counts(10 * number, 10)
    events = read(tmp_path, rollout)
    assert shape(events) == ["Done.", "Done."]  # the third is another response
    assert [event["usage"]["input_tokens"] for event in events] == [10, 10]


def test_a_text_without_an_item_is_read_from_its_event(tmp_path: Path) -> None:
    rollout = Recording().event("agent_message", message="I look.").calls("c1").returns("c1", "a")
    assert shape(read(tmp_path, rollout.event("agent_message", message="Done."))) == ["I look.+exec_command", "Done."]


@pytest.mark.parametrize(
    "text",
    ["<environment_context>\n", "<user_instructions>", "# AGENTS.md instructions for /x", "<turn_aborted>", "<skill>",
     "\n <environment_context>", "<hook_prompt id=1>", "<codex_internal_context source=\"x\">"],
)  # fmt: skip
def test_what_the_harness_writes_as_a_user_is_no_message_of_a_person(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, Recording().asks(text)) == []


def test_metadata_say_who_wrote_a_message(tmp_path: Path) -> None:
    for kind, expected in (("user.text", ["u"]), ("unknown", [])):
        rollout = Recording().asks("Go.")
        rollout.rows[-1]["payload"]["internal_chat_message_metadata_passthrough"] = {"content_item_kinds": [kind]}
        assert shape(read(tmp_path, rollout)) == expected


def test_developer_messages_and_summaries_of_compactions_are_no_turns(tmp_path: Path) -> None:
    rollout = Recording().item("message", role="developer", content="x").item("compaction", encrypted_content="x")
    rollout.record("compacted", message="Summary", replacement_history=[{"type": "message", "role": "user"}])
    events = read(tmp_path, rollout.event("context_compacted").event("thread_rolled_back", num_turns=1))
    assert [one.get("type", "turn") for one in events] == ["context.compacted"]


@pytest.mark.parametrize(
    ("output", "text", "failed"),
    [
        ("Chunk ID: 1a2b3c\nWall time: 0.1 seconds\nProcess exited with code 0\nOriginal token count: 5\nOutput:\nok",
         "ok", False),
        ("Chunk ID: 4d5e6f\nWall time: 9.9 seconds\nProcess exited with code 2\nOutput:\n", "Exit code 2\n", True),
        ("Exit code: 1\nWall time: 3 seconds\nTotal output lines: 9\nOutput:\nbad", "Exit code 1\nbad", True),
        ("Exit code: 10\nWall time: 3 seconds\nOutput:\nbad", "Exit code 10\nbad", True),
        ('{"output":"ok\\n","metadata":{"exit_code":0,"duration_seconds":0.3}}', "ok\n", False),
        ('{"output":"no","metadata":{"exit_code":127,"duration_seconds":0.3}}', "Exit code 127\nno", True),
        ([{"type": "input_text", "text": "Script completed\nWall time 1.2 seconds\nOutput:\n"},
          {"type": "input_text", "text": "ok"}], "\nok", False),
        ("Script failed\nWall time 1.2 seconds\nOutput:\nScript error:\nx", "Script error:\nx", True),
        ({"content": "no", "success": False}, "no", True),
        ({"content": "yes", "success": True}, "yes", False),
        ("unsupported call: x", "unsupported call: x", True),
        ("My file\nOutput:\nkeeps this", "My file\nOutput:\nkeeps this", False),
        ("a…123 tokens truncated…b", "a…tokens truncated…b", False),
        ("{broken", "{broken", False),
        (None, "", False),
    ],
)  # fmt: skip
def test_results_are_read_without_their_envelopes(output: Any, text: str, failed: bool) -> None:
    assert answer_of(output)[:2] == (text, failed)


def test_a_command_that_still_runs_has_answered_so_with_its_handle(tmp_path: Path) -> None:
    running = "Chunk ID: aaaaaa\nWall time: 1 seconds\nProcess running with session ID 7\nOutput:\nstart"
    rollout = Recording().calls("c1").returns("c1", running).calls("c2", name="write_stdin")
    rollout.returns("c2", "Wall time: 1 seconds\nOutput:\nend")
    first, second = calls_of(read(tmp_path, rollout))
    assert first["result"] == "Process running with session ID 7\nstart"
    assert marks_of({"session_id": 7, "chars": ""}, first["result"]) == WAITS
    assert second["result"] == "end"


def test_a_call_that_a_person_declines_is_no_error(tmp_path: Path) -> None:
    events = read(tmp_path, Recording().calls("c1").returns("c1", "aborted by user after 3.2s"))
    assert shape(events) == ["exec_command", "u"]
    assert calls_of(events)[0]["result"] == "aborted by user"


def test_a_patch_that_does_not_apply_is_an_error(tmp_path: Path) -> None:
    rollout = Recording().item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c1")
    rollout.event("patch_apply_end", call_id="c1", success=False)
    rollout.item("custom_tool_call_output", call_id="c1", output="no such line")
    assert calls_of(read(tmp_path, rollout)) == [
        {"id": "c1", "name": "apply_patch", "args": "*** Begin", "error": "no such line"}
    ]


def test_all_kinds_of_calls_are_read(tmp_path: Path) -> None:
    rollout = Recording().item("local_shell_call", call_id="c1", action={"command": ["ls"]}).returns("c1", "a")
    rollout.item("web_search_call", id="w1", status="completed", action={"type": "search", "query": "q"})
    rollout.item("function_call", name="find", namespace="mcp__docs", arguments="{", call_id="c2").returns("c2", "b")
    assert [(call["name"], call["args"], call.get("result")) for call in calls_of(read(tmp_path, rollout))] == [
        ("local_shell_call", {"command": ["ls"]}, "a"),
        ("web_search_call", {"type": "search", "query": "q"}, None),
        ("mcp__docs__find", "{", "b"),
    ]


@pytest.mark.parametrize("before", [True, False])
def test_usage_belongs_to_its_response_whether_it_is_counted_before_or_after(tmp_path: Path, before: bool) -> None:
    rollout = Recording().asks("Go.")
    if before:  # 0.40 counts first, and writes parallel calls each with its result
        rollout.counts(10, 10).item("reasoning").calls("c1").returns("c1", "a").calls("c2").returns("c2", "b")
        rollout.counts(10, 10).counts(30, 20).item("reasoning").says("Done.")
    else:
        rollout.item("reasoning").calls("c1").calls("c2").counts(10, 10).returns("c1", "a").returns("c2", "b")
        rollout.counts(10, 10).item("reasoning").says("Done.").counts(30, 20)
    events = read(tmp_path, rollout.event("token_count", info=None))
    assert shape(events) == ["u", "exec_command+exec_command", "Done."]
    assert [turn["usage"]["input_tokens"] for turn in turns_of(events)] == [10, 20]
    assert [call["result"] for call in calls_of(events)] == ["a", "b"]


def test_without_the_last_usage_the_difference_of_the_totals_counts(tmp_path: Path) -> None:
    events = read(tmp_path, Recording().says("a").counts(10).says("b").counts(35))
    assert [turn["usage"]["input_tokens"] for turn in events] == [10, 25]


def test_the_usage_of_a_response_without_parts_is_not_lost(tmp_path: Path) -> None:
    events = read(tmp_path, Recording().says("a").counts(10, 10).counts(90, 80).says("b").counts(95, 5))
    assert [turn["usage"]["input_tokens"] for turn in events] == [10, 80, 5]


def test_turns_end_without_any_usage_where_all_calls_have_results(tmp_path: Path) -> None:
    rollout = Recording().says("I look.").calls("c1").calls("c2").returns("c1", "a").returns("c2", "b")
    rollout.calls("c3").returns("c3", "c").says("Done.").says("Really.")
    assert shape(read(tmp_path, rollout)) == [
        "I look.+exec_command+exec_command", "exec_command", "Done.", "Really.",
    ]  # fmt: skip


def test_a_search_of_the_provider_which_has_no_result_keeps_no_turn_open(tmp_path: Path) -> None:
    rollout = Recording().item("web_search_call", id="w1", action={"query": "q"}).calls("c1").returns("c1", "a")
    assert shape(read(tmp_path, rollout.calls("c2"))) == ["web_search_call", "exec_command", "exec_command"]


def test_a_call_without_a_result_ends_with_the_usage_of_its_response(tmp_path: Path) -> None:
    rollout = Recording().calls("lost").counts(10, 10).calls("c2").returns("c2", "b").counts(15, 5)
    events = read(tmp_path, rollout)
    assert shape(events) == ["exec_command", "exec_command"]
    assert [turn["usage"]["input_tokens"] for turn in events] == [10, 5]


def test_copies_with_the_times_of_the_originals_are_known_without_the_file_of_the_parent() -> None:
    child = next((SAMPLES / NAME).glob("*33333333*"))
    assert shape(read_log(NAME, child)) == ["The fixtures are fully synthetic."]


def test_a_session_that_is_resumed_goes_on_in_its_file(tmp_path: Path) -> None:
    rollout = Recording().asks("Go.").says("a").record("session_meta", id="other").record("turn_context", model="m2")
    events = read(tmp_path, rollout.asks("More.").says("b"))
    assert {event["run_id"] for event in events} == {RUN}
    assert events[-1]["model"] == "m2"


def forked(**meta: Any) -> Recording:
    """A session that begins with copies of its parent's records, which have new times."""
    rollout = Recording(CHILD, **meta).record("session_meta", id=RUN)
    return rollout.asks("Go.").calls("call_1").returns("call_1", "a").counts(10, 10).says("Done.")


def test_a_fork_does_not_repeat_the_history_of_its_parent(tmp_path: Path) -> None:
    parent = Recording().asks("Go.").calls("call_1").returns("call_1", "a")
    child = forked(forked_from_id=RUN).asks("Else.").calls("call_2").returns("call_2", "b")
    reading = Import()
    read(tmp_path, parent, reading)
    events = read(tmp_path, child, reading)
    assert [call["id"] for call in calls_of(events)] == ["call_2"]
    assert {event["run_id"] for event in events} == {CHILD}
    assert shape(events) == ["u", "exec_command"]
    assert reading.tally(NAME).repeated == 6


def test_equal_ids_of_calls_in_unrelated_sessions_are_no_copies(tmp_path: Path) -> None:
    reading = Import()
    for run in (RUN, CHILD):
        assert len(calls_of(read(tmp_path, Recording(run).calls("call_0").returns("call_0", "a"), reading))) == 1


def test_a_sub_agent_is_a_run_of_its_parent_and_hears_no_person(tmp_path: Path) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": RUN, "agent_role": "worker", "agent_nickname": "Ada"}}}
    child = Recording(CHILD, source=spawn).asks("Look.").event("user_message", message="Look.").says("Found.")
    child.record("inter_agent_communication_metadata", trigger_turn=False).says("More.")
    assert [(event["run_id"], event["node"], event["parent_run_id"]) for event in read(tmp_path, child)] == [
        (CHILD, "worker", RUN), (CHILD, "worker", RUN),
    ]  # fmt: skip


def test_only_the_first_message_that_starts_a_sub_agent_ends_its_copied_history(tmp_path: Path) -> None:
    start = {"kind": "inter_agent_communication_metadata", "trigger_turn": True}
    child = Recording(CHILD, parent_thread_id=RUN).says("Copied.").record(**start).says("Own.").record(**start)
    assert shape(read(tmp_path, child.says("Own, too."))) == ["Own.", "Own, too."]


def test_rollouts_of_the_first_versions_have_no_payload(tmp_path: Path) -> None:
    rows = [
        {"id": RUN, "timestamp": "2025-05-01T00:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"output":"a","metadata":{"exit_code":0}}'},
    ]
    path = written(tmp_path / "rollout.jsonl", rows)
    assert formats_found(tmp_path) == {NAME}
    events = read_log(NAME, path)
    assert shape(events) == ["u", "shell"]
    assert calls_of(events) == [{"id": "c1", "name": "shell", "args": {"command": ["ls"]}, "result": "a"}]


def test_errors_of_the_api_are_errors_of_a_turn(tmp_path: Path) -> None:
    rollout = Recording().event("stream_error", message="reconnecting").event("error", message="quota exceeded")
    assert [event["errors"] for event in read(tmp_path, rollout)] == [
        [{"message": "reconnecting", "class": "api_error", "retryable": True}],
        [{"message": "quota exceeded", "class": "api_error"}],
    ]


def test_a_stuck_session_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck, honest = Recording().asks("Go."), Recording().asks("Go.")
    for n in range(4):
        header = f"Chunk ID: 1a2b3{n}\nWall time: {n}.5 seconds\nProcess exited with code 0\nOutput:\n"
        stuck.item("reasoning").calls(f"c{n}", "cat a").counts(n + 1, 1).returns(f"c{n}", f"{header}same")
        honest.item("reasoning").calls(f"c{n}", f"cat {n}").counts(n + 1, 1).returns(f"c{n}", f"{header}text {n}")
    assert "LOOP003" in halt_codes(read(tmp_path, stuck))
    assert halt_codes(read(tmp_path, honest)) == []


def test_a_rollout_that_is_still_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "rollout.jsonl", Recording().asks("Go.").calls("c1").rows)
    path.write_text(path.read_text() + '{"timestamp":"2026')
    assert shape(read_log(NAME, path)) == ["u", "exec_command"]


def test_the_samples() -> None:
    reading = Import()
    events = [event for path in log_paths([str(SAMPLES / NAME)]) for event in read_log(NAME, SAMPLES / path, reading)]
    assert shape(events) == [
        "u", "exec_command", "apply_patch", "mcp__synthetic__lookup", "The synthetic files are alpha.txt and beta.txt.",
        "u", "spawn_agent", "The fixtures are fully synthetic.",
    ]  # fmt: skip
    first = "11111111-1111-4111-8111-111111111111"
    assert events[1] == {
        "run_id": first, "session_id": first, "node": "codex", "event_id": f"{first}/6", "at": 1767323050000,
        "model": "synthetic-model", "provider": "synthetic",
        "tool_calls": [{
            "id": "call-structured-001", "name": "exec_command", "args": {"cmd": "find . -maxdepth 1 -type f"},
            "result": "./alpha.txt\n./beta.txt",
        }],
    }  # fmt: skip
    assert (events[-1]["node"], events[-1]["parent_run_id"]) == ("synthetic_researcher", events[-2]["run_id"])
    assert reading.sentences() == [
        "read as: codex (2 sessions, 1 sub-agent, 6 turns; 1 record of 1 unknown type ignored; "
        "2 repeated records skipped; 100 % of calls have results)"
    ]


def test_only_rollouts_are_claimed() -> None:
    assert samples_matched(NAME) == {NAME}


SAMPLE = [
    json.loads(line) for path in log_paths([str(SAMPLES / NAME)]) for line in (SAMPLES / path).read_text().splitlines()
]
MORE = [*SAMPLE, *forked(forked_from_id=RUN).rows, *Recording().says("a").counts(3, 3).counts(5).rows]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=damaged(MORE))
def test_no_shape_of_a_record_stops_the_import(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    read_log(NAME, written(tmp_path_factory.mktemp("odd") / "rollout.jsonl", rows))
