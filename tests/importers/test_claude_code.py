"""Session files of Claude Code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc import Monitor
from streamproc.errors import InvalidEvent
from streamproc.importers import Import, LogFile
from streamproc.importers.claude_code import SessionFile
from streamproc.importers.discovery import log_paths
from tests.importers.cli_logs import damaged, formats_found, read_log, samples_matched, shape
from tests.importers.reading import SAMPLES, Row, calls_of, halt_codes, turns_of, written

if TYPE_CHECKING:
    from pathlib import Path

NAME = "claude-code"
SESSION = "0f000000-0000-4000-8000-000000000001"


class Session:
    """Records of a session, with ids and times of their own."""

    def __init__(self, session: str = SESSION, **common: Any) -> None:
        self.rows: list[Row] = []
        self.common = {"sessionId": session, "isSidechain": False} | common

    def add(self, kind: str, message: Any = None, **more: Any) -> Session:
        number = len(self.rows) + 1
        row = {"type": kind, "uuid": f"{number}", "timestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}
        if message is not None:
            row["message"] = message
        self.rows.append(row | self.common | more)
        return self

    def asks(self, text: Any, **more: Any) -> Session:
        return self.add("user", {"role": "user", "content": text}, **more)

    def says(self, response: str, *content: Row, usage: Row | None = None, **more: Any) -> Session:
        message = {"id": response, "role": "assistant", "model": "claude-opus-4", "content": list(content)}
        return self.add("assistant", message | ({"usage": usage} if usage else {}), **more)

    def returns(self, call_id: str, content: Any, *, is_error: bool = False, **more: Any) -> Session:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}
        return self.asks([block], **more)

    def runs(self, call_id: str, command: str, output: str) -> Session:
        return self.says(f"m-{call_id}", use(call_id, "Bash", command=command)).returns(call_id, output)


def use(call_id: str, name: str, **args: Any) -> Row:
    return {"type": "tool_use", "id": call_id, "name": name, "input": args}


def text(what: str) -> Row:
    return {"type": "text", "text": what}


def read(tmp_path: Path, session: Session, name: str = f"{SESSION}.jsonl", reading: Import | None = None) -> list[Row]:
    return read_log(NAME, written(tmp_path / name, session.rows), reading)


def test_a_response_in_several_records_is_one_turn_with_its_usage_once(tmp_path: Path) -> None:
    early = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 7, "output_tokens": 1}
    session = Session().asks("Fix it.")
    session.says("m1", {"type": "thinking", "thinking": "hm"}, usage=early).says("m1", text("I look."), usage=early)
    session.says("m1", use("c1", "Bash", command="ls"), usage=early | {"output_tokens": 50})
    session.says("m1", use("c2", "Read", file_path="a"), usage=early | {"output_tokens": 50})
    session.returns("c2", "second").returns("c1", [text("first"), text("line")])
    assert read(tmp_path, session) == [
        {"type": "user.message", "run_id": SESSION, "session_id": SESSION, "event_id": "1", "at": 1767225601000},
        {
            "run_id": SESSION, "session_id": SESSION, "node": "main", "event_id": "m1", "model": "claude-opus-4",
            "at": 1767225607000, "output": "I look.",
            "usage": {"input_tokens": 30, "cached_tokens": 7, "cache_write_tokens": 20, "output_tokens": 50},
            "tool_calls": [
                {"id": "c1", "name": "Bash", "args": {"command": "ls"}, "result": "first\nline"},
                {"id": "c2", "name": "Read", "args": {"file_path": "a"}, "result": "second"},
            ],
        },
    ]  # fmt: skip


def test_results_between_the_records_of_a_response_do_not_end_it(tmp_path: Path) -> None:
    session = (
        Session().says("m1", use("c1", "Bash")).returns("c1", "1").says("m1", use("c2", "Bash")).returns("c2", "2")
    )
    assert [len(turn["tool_calls"]) for turn in read(tmp_path, session)] == [2]


def test_a_failed_call_has_an_error_and_an_unanswered_one_neither(tmp_path: Path) -> None:
    session = Session().says("m1", use("c1", "Bash")).returns("c1", "Exit code 1", is_error=True)
    session.says("m2", use("c2", "Bash"), use("c3", "Bash")).returns("c2", "")
    failed, empty, open_ = calls_of(read(tmp_path, session))
    assert failed["error"] == "Exit code 1"
    assert "result" not in failed
    assert empty["result"] == ""
    assert not {"result", "error"} & set(open_)


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ("<command-name>/clear</command-name>", {}),
        ("<local-command-stdout>ok</local-command-stdout>", {}),
        ("<task-notification>done</task-notification>", {}),
        ("<bash-input>ls</bash-input>", {}),
        ("Caveat: The messages below were generated", {}),
        ([text("[Request interrupted by user]")], {}),
        ("<system-reminder>cwd changed</system-reminder>", {}),
        ("Base directory for this skill", {"isMeta": True}),
        ("This session is being continued", {"isCompactSummary": True}),
        ("done", {"origin": {"kind": "task-notification"}}),
        ("", {}),
        ([], {}),
    ],
)
def test_what_the_harness_writes_as_a_user_is_no_message_of_a_person(tmp_path: Path, content: Any, more: Row) -> None:
    assert read(tmp_path, Session().asks(content, **more)) == []


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ("Fix it.", {}),
        ([text("Fix it."), text("<system-reminder>today is Monday</system-reminder>")], {}),
        ([text("<system-reminder>cwd</system-reminder>\nFix it.")], {}),
        ([{"type": "image", "source": {"data": "abc"}}], {}),
        ("Fix it.", {"origin": {"kind": "human"}}),
    ],
)
def test_what_a_person_writes_is_a_message(tmp_path: Path, content: Any, more: Row) -> None:
    assert shape(read(tmp_path, Session().asks(content, **more))) == ["u"]


def test_what_a_person_types_while_the_agent_works_is_a_message(tmp_path: Path) -> None:
    session = Session().says("m1", use("c1", "Bash"))
    typed = {"type": "queued_command", "prompt": "also the tests", "commandMode": "prompt", "origin": {"kind": "human"}}
    session.add("attachment", attachment=typed)
    session.add("attachment", attachment=typed | {"commandMode": "task-notification"}).returns("c1", "ok")
    session.says("m2", text("Done.")).add("attachment", attachment={"type": "queued_command", "prompt": "<bash-input>"})
    assert shape(read(tmp_path, session)) == ["Bash", "u", "Done."]


def test_what_follows_the_end_of_a_task_in_the_background_answers_that(tmp_path: Path) -> None:
    ended = "<task-notification><task-id>b1</task-id><status>completed</status></task-notification>"
    session = Session().says("m1", use("c1", "Bash")).returns("c1", "started").asks(ended)
    session.says("m2", text("One is done.")).says("m3", text("I wait.")).asks(
        "b2", origin={"kind": "task-notification"}
    )
    session.says("m4", text("Two are done."))
    session.add("attachment", attachment={"type": "queued_command", "prompt": "b3", "commandMode": "task-notification"})
    session.says("m5", text("All are done."))
    answered = [turn.get("request") for turn in read(tmp_path, session)]
    assert answered == [None, ended, None, "b2", "b3"]


def test_a_session_that_answers_each_task_as_it_ends_is_no_talk_without_work(tmp_path: Path) -> None:
    session = Session().says("m", use("c", "Task")).returns("c", "started")
    for number in range(24):
        if number % 2:
            session.asks(f"<task-notification><task-id>{number}</task-id></task-notification>")
        session.says(f"m{number}", text(f"Agent {number} reports that its {'part ' * (9 - number // 3)} is done."))
    monitor = Monitor()
    assert [one.code for turn in read(tmp_path, session) for one in monitor.feed(turn)] == []


def test_a_call_that_a_person_declines_is_no_error(tmp_path: Path) -> None:
    session = Session().says("m1", use("c1", "Bash"))
    session.returns("c1", "The user doesn't want to proceed with this tool use.", is_error=True)
    events = read(tmp_path, session.asks([text("[Request interrupted by user for tool use]")]))
    assert shape(events) == ["Bash", "u"]
    assert "error" not in calls_of(events)[0]


@pytest.mark.parametrize("why", ["Sibling tool call errored", "Cancelled: parallel tool call Read(a.py) errored"])
def test_a_call_that_is_cancelled_because_another_one_failed_has_no_result(tmp_path: Path, why: str) -> None:
    session = Session()
    for n in range(7):
        session.says(f"m{n}", use(f"a{n}", "Read", path=f"{n}.py"), use(f"b{n}", "Bash", command=f"make {n}"))
        session.returns(f"a{n}", f"{n}.py does not exist", is_error=True)
        session.returns(f"b{n}", f"<tool_use_error>{why}</tool_use_error>", is_error=True)
        session.runs(f"c{n}", f"ls {n}", f"{n}.txt")
    events = read(tmp_path, session)
    assert [call.keys() & {"result", "error"} for call in calls_of(events)] == [{"error"}, set(), {"result"}] * 7
    assert halt_codes(events) == []


def test_reminders_are_no_part_of_a_result(tmp_path: Path) -> None:
    session = Session().says("m1", use("c1", "Read"))
    session.returns("c1", "1\tx\n\n<system-reminder>\nTodos: 3\n</system-reminder>\n")
    assert calls_of(read(tmp_path, session))[0]["result"] == "1\tx"


def test_many_reminders_without_an_end_are_read_in_linear_time(tmp_path: Path) -> None:
    session = (
        Session().says("m1", use("c1", "Read")).returns("c1", "</system-reminder>" + "<system-reminder>" * 200_000)
    )
    assert len(calls_of(read(tmp_path, session))[0]["result"]) > 1_000_000


def test_a_long_result_is_read_from_its_full_copy_or_without_the_path_of_its_file(tmp_path: Path) -> None:
    long = "<persisted-output>\nOutput too large (6.6MB). Full output saved to: /x/tool-results/{}.txt\n\nPreview:\nabc"
    session = Session()
    for number in (1, 2):
        session.says(f"m{number}", use(f"c{number}", "Bash")).returns(f"c{number}", long.format(f"b{number}ej"))
    session.says("m3", use("c3", "Bash")).returns("c3", long.format("z"), toolUseResult={"stdout": "all", "stderr": ""})
    first, second, full = (call["result"] for call in calls_of(read(tmp_path, session)))
    assert first == second
    assert "abc" in first
    assert full == "all"


def test_images_differ_by_their_content(tmp_path: Path) -> None:
    session = Session()
    for number, data in enumerate(["aaaa", "bbbb", "aaaa"]):
        image = {"type": "image", "source": {"type": "base64", "data": data}}
        session.says(f"m{number}", use(f"c{number}", "shot")).returns(f"c{number}", [text("ok"), image])
    one, other, again = (call["result"] for call in calls_of(read(tmp_path, session)))
    assert one == again != other
    assert "aaaa" not in one


def test_compaction_goes_on_with_the_run_and_repeats_nothing(tmp_path: Path) -> None:
    session = Session().asks("Go.").says("m1", text("Working."))
    session.add("system", subtype="compact_boundary", parentUuid=None, compactMetadata={"trigger": "auto"})
    session.asks("Summary of the session", isCompactSummary=True)
    session.rows.append(session.rows[1])  # some versions append preserved messages again
    session.says("m2", text("Still working."))
    reading = Import()
    events = read(tmp_path, session, reading=reading)
    assert [one["type"] for one in events if "output" not in one] == ["user.message", "context.compacted"]
    assert shape(one for one in events if one.get("type") != "context.compacted") == [
        "u", "Working.", "Still working.",
    ]  # fmt: skip
    assert reading.tally(NAME).repeated == 1


def test_both_branches_of_a_rewind_count(tmp_path: Path) -> None:
    session = Session().asks("One.").says("m1", text("First.")).asks("Two.", parentUuid="0").says("m2", text("Second."))
    assert shape(read(tmp_path, session)) == ["u", "First.", "u", "Second."]


def test_records_that_a_resumed_session_copies_count_once(tmp_path: Path) -> None:
    uuid = "aa000000-0000-4000-8000-00000000000{}"
    first = Session().asks("Go.", uuid=uuid.format(1)).says("m1", text("Done."), uuid=uuid.format(2))
    other = "0f000000-0000-4000-8000-000000000002"
    resumed = Session(other).asks("Go.", uuid=uuid.format(1)).says("m1", text("Done."), uuid=uuid.format(2))
    resumed.asks("More.", uuid=uuid.format(3), forkedFrom={"messageUuid": "unknown"})
    resumed.says("m1", text("Done."), uuid=uuid.format(4), forkedFrom={"messageUuid": uuid.format(2)})
    reading = Import()
    assert shape(read(tmp_path, first, reading=reading)) == ["u", "Done."]
    assert [event["run_id"] for event in read(tmp_path, resumed, f"{other}.jsonl", reading)] == [other]
    assert reading.tally(NAME).repeated == 3


def test_several_session_ids_in_one_file_are_one_run_named_by_the_file(tmp_path: Path) -> None:
    session = Session().asks("Go.").says("m1", text("a"), sessionId="0f000000-0000-4000-8000-00000000000f")
    assert {event["run_id"] for event in read(tmp_path, session)} == {SESSION}
    assert len({event["run_id"] for event in read(tmp_path, session, "all.jsonl")}) == 2


def test_sub_agents_are_runs_of_their_own_named_by_the_call_that_started_them(tmp_path: Path) -> None:
    main = Session().says("m1", use("c1", "Task", subagent_type="Explore", prompt="Look."))
    main.returns("c1", [text("Found."), text("agentId: a1 (use SendMessage)\n<usage>total: 9</usage>")],
                 toolUseResult={"agentId": "a1", "status": "completed"})  # fmt: skip
    agent = Session(isSidechain=True, agentId="a1").asks("Look.").says("m2", use("c2", "Grep")).returns("c2", "x")
    written(tmp_path / f"{SESSION}.jsonl", main.rows)
    written(tmp_path / SESSION / "subagents" / "agent-a1.jsonl", agent.rows)
    reading = Import()
    events = [event for path in log_paths([str(tmp_path)]) for event in read_log(NAME, tmp_path / path, reading)]
    assert [(event["run_id"], event["node"], event.get("parent_run_id")) for event in events] == [
        (SESSION, "main", None), (f"{SESSION}/a1", "Explore", SESSION),
    ]  # fmt: skip
    assert calls_of(events)[0]["result"] == "Found."
    assert events[1]["session_id"] == SESSION


def test_a_sub_agent_read_before_its_session_is_named_by_the_file_beside_it_or_by_its_id(tmp_path: Path) -> None:
    agents = tmp_path / SESSION / "subagents"
    for name in ("a1", "a2"):
        written(agents / f"agent-{name}.jsonl", Session(isSidechain=True).says(f"m{name}", text("Hi.")).rows)
    written(agents / "agent-a1.meta.json", {"agentType": "Plan"})
    assert [read_log(NAME, agents / f"agent-{name}.jsonl")[0]["node"] for name in ("a1", "a2")] == ["Plan", "a2"]


def test_the_files_beside_sub_agents_are_no_logs_and_no_mistake(tmp_path: Path) -> None:
    agents = tmp_path / SESSION / "subagents"
    written(agents / "agent-a1.meta.json", {"agentType": "Plan"})
    journal = [{"type": "started", "agentId": "a"}, {"type": "result", "agentId": "a"}]
    written(agents / "workflows" / "wf_1" / "journal.jsonl", journal)
    assert formats_found(tmp_path) == {NAME}
    assert [event for path in log_paths([str(tmp_path)]) for event in read_log(NAME, tmp_path / path)] == []


def in_progress(session: Session, agent: str, records: list[Row], prompt: str = "Look") -> Session:
    """Add records of a sub-agent as the session shows its progress; each has the session's time."""
    for record in records:
        inner = {key: value for key, value in record.items() if key not in ("sessionId", "isSidechain")}
        data = {"type": "agent_progress", "agentId": agent, "prompt": prompt, "message": inner}
        session.add("progress", data=data, toolUseID="agent_msg", parentToolUseID="t1")
    return session


def test_sub_agents_that_exist_only_in_progress_records_are_child_runs(tmp_path: Path) -> None:
    child = Session().asks([text("Look")]).runs("c1", "ls", "a").says("m9", text("Found it."))
    for number, row in enumerate(child.rows):
        row["uuid"] = f"child-{number}"
    session = Session().asks("Go.").says("m1", use("t1", "Task", prompt="Look", subagent_type="explorer"))
    in_progress(session, "a1b2", child.rows)
    in_progress(session, "a1b2", child.rows[1:3])  # some are written twice
    session.returns("t1", "Found it.")
    events = read(tmp_path, session)

    assert shape(event for event in events if event["run_id"] == SESSION) == ["u", "Task"]
    found = turns_of(event for event in events if event["run_id"] == f"{SESSION}/a1b2")
    assert [(one["node"], one["parent_run_id"]) for one in found] == [("explorer", SESSION)] * 2
    assert calls_of(found)[0]["result"] == "a"
    assert found[1]["output"] == "Found it."


@pytest.mark.parametrize("place", [f"{SESSION}/subagents/agent-a1b2.jsonl", "agent-a1b2.jsonl"])
def test_progress_of_a_sub_agent_with_a_file_of_its_own_counts_once(tmp_path: Path, place: str) -> None:
    child = Session(isSidechain=True, agentId="a1b2").runs("c1", "ls", "a")
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    written(tmp_path / place, child.rows)
    session = in_progress(Session().runs("c0", "pwd", "b"), "a1b2", [row | {"uuid": "other"} for row in child.rows])

    assert {event["run_id"] for event in read(tmp_path, session)} == {SESSION}


def test_interleaved_sub_agents_of_old_versions_are_told_apart_by_their_chains(tmp_path: Path) -> None:
    session = Session().says("m1", use("t1", "Task", subagent_type="Explore", prompt="Left."))
    session.says("m1", use("t2", "Task", subagent_type="Plan", prompt="Right."))
    side: Row = {"isSidechain": True}
    session.asks("Left.", **side, uuid="l1", parentUuid=None).asks("Right.", **side, uuid="r1", parentUuid=None)
    session.says("l", use("c1", "Grep"), **side, uuid="l2", parentUuid="l1")
    session.says("r", use("c2", "Read"), **side, uuid="r2", parentUuid="r1")
    session.returns("c2", "right", **side, uuid="r3", parentUuid="r2")
    session.returns("c1", "left", **side, uuid="l3", parentUuid="l2")
    session.says("r", text("R."), **side, uuid="r4", parentUuid="r3")
    session.returns("t2", "R.").returns("t1", "L.").says("m2", text("Both."))
    events = read(tmp_path, session)
    assert {(event["run_id"].removeprefix(SESSION), event["node"]) for event in events} == {
        ("", "main"), ("/l1", "Explore"), ("/r1", "Plan"),
    }  # fmt: skip
    assert {call["name"]: call["result"] for call in calls_of(events)}.items() >= {
        "Grep": "left",
        "Read": "right",
    }.items()
    assert "u" not in shape(events)


def test_failures_of_the_api_are_errors_that_say_whether_a_retry_helps(tmp_path: Path) -> None:
    session = Session().add("system", subtype="api_error", error={"status": 529, "message": "overloaded"})
    raw = '529 {"type":"error","error":{"type":"overloaded_error"},"request_id":"req_1"}'
    for fields in ({"message": raw, "formatted": "529 Overloaded"}, {"message": "529 again"}):
        session.add("system", subtype="api_error", error={"status": 529, **fields})
    session.add("system", subtype="api_error", error="lost")
    session.says("x", text("You've hit your limit"), isApiErrorMessage=True, error="rate_limit")
    session.says("y", text("Prompt is too long"), isApiErrorMessage=True, error="invalid_request")
    session.add("assistant", {"model": "<synthetic>", "content": [text("No response requested.")]})
    assert [event["errors"] for event in read(tmp_path, session)] == [
        [{"message": "529 overloaded", "class": "api_error", "retryable": True}],
        [{"message": "529 Overloaded", "class": "api_error", "retryable": True}],
        [{"message": "529 again", "class": "api_error", "retryable": True}],
        [{"message": "lost", "class": "api_error", "retryable": True}],
        [{"message": "You've hit your limit", "class": "rate_limit", "retryable": True}],
        [{"message": "Prompt is too long", "class": "invalid_request", "retryable": False}],
    ]


def test_unknown_records_are_counted_and_known_ones_are_not(tmp_path: Path) -> None:
    session = Session().add("summary").add("mode").add("progress").add("novelty").says("m1", {"type": "hologram"})
    reading = Import()
    read(tmp_path, session, reading=reading)
    assert reading.tally(NAME).ignored == {"novelty": 1, "content block hologram": 1}


def test_a_result_that_comes_late_still_finds_its_call_and_a_lost_one_delays_no_more_than_a_window(
    tmp_path: Path,
) -> None:
    session = Session().says("m0", use("lost", "Bash"), use("late", "Bash")).says("m1", text("a")).returns("late", "ok")
    for number in range(2, 60):
        session.says(f"m{number}", text(f"{number}"))
    path = written(tmp_path / f"{SESSION}.jsonl", session.rows)
    file = SessionFile(LogFile(path), Import())
    while_reading = []
    for row in LogFile(path).rows():
        file.take(row)
        while_reading += file.messages.buffer.ready()
    assert [call.get("result") for call in while_reading[0].event["tool_calls"]] == [None, "ok"]
    assert [one.event["output"] for one in while_reading[1:3]] == ["a", "2"]
    assert len(list(file.messages.buffer.close())) == 1


def test_a_stuck_session_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck, honest = Session().asks("Go."), Session().asks("Go.")
    for number in range(4):
        reminder = f"<system-reminder>{number} todos</system-reminder>"
        stuck.runs(f"c{number}", "pytest", f"1 failed\n{reminder}")
        honest.runs(f"c{number}", f"pytest tests/test_{number}.py", f"{number} passed in file {number}")
    assert "LOOP003" in halt_codes(read(tmp_path, stuck))
    assert halt_codes(read(tmp_path, honest)) == []


def test_a_person_between_equal_calls_ends_the_streak(tmp_path: Path) -> None:
    session = Session()
    for number in range(6):
        session.asks(f"Again, {number}.").runs(f"c{number}", "git status", "clean")
    assert halt_codes(read(tmp_path, session)) == []


def test_a_session_that_is_still_written_is_read_up_to_its_last_line(tmp_path: Path) -> None:
    path = written(tmp_path / f"{SESSION}.jsonl", Session().asks("Go.").says("m1", use("c1", "Bash")).rows)
    path.write_text(path.read_text() + '{"type":"user","mess')
    assert shape(read_log(NAME, path)) == ["u", "Bash"]
    path.write_text(path.read_text() + "\n{}\n")
    with pytest.raises(InvalidEvent, match="no JSON"):
        read_log(NAME, path)


def test_the_sample_of_two_formats_of_sub_agents() -> None:
    events = read_log(NAME, SAMPLES / "claude-code" / "sidechain_integrated.jsonl")
    session = "88a8d761-7b9a-4bf1-a8ca-c1febe6bf358"
    assert [(event["run_id"].removeprefix(session), event["usage"]) for event in events] == [
        ("", {"input_tokens": 141275, "cache_write_tokens": 141272, "output_tokens": 365}),
        (
            "/b674eedd-0d9d-49e7-8116-1f092cd750ed",
            {"input_tokens": 19833, "cache_write_tokens": 19830, "output_tokens": 183},
        ),
        ("", {"input_tokens": 144227, "cached_tokens": 141272, "cache_write_tokens": 2952, "output_tokens": 190}),
    ]


def test_the_sample_of_a_session_with_sub_agents_in_files_of_their_own() -> None:
    reading = Import()
    paths = log_paths([str(SAMPLES / "claude-code" / "showcase")])
    events = [event for path in paths for event in read_log(NAME, SAMPLES / path, reading)]
    assert shape(events) == [
        "u", "Now two agents, one per module, so their reports can be compared.+Agent+Agent", "Grep",
        turns_of(events)[-1]["output"],
    ]  # fmt: skip
    assert [event["node"] for event in turns_of(events)] == ["main", "general-purpose", "general-purpose"]
    assert reading.sentences() == [
        "read as: claude-code (1 session, 1 sub-agent, 3 turns; 100 % of calls have results)"
    ]


def test_the_sample_of_odd_records() -> None:
    reading = Import()
    events = read_log(NAME, SAMPLES / "claude-code" / "edge_cases.jsonl", reading)
    assert [event["event_id"] for event in events] == [
        "edge_001", "edge_002", "edge_003", "edge_004", "edge_009", "edge_011", "msg_004",
    ]  # fmt: skip
    assert reading.tally(NAME).ignored.total() == 6


def test_only_sessions_are_claimed() -> None:
    assert samples_matched(NAME) == {NAME}


SAMPLE = [
    json.loads(line)
    for path in log_paths([str(SAMPLES / "claude-code")])
    for line in (SAMPLES / path).read_text().splitlines()
]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=damaged([row for row in SAMPLE if isinstance(row, dict)]))
def test_no_shape_of_a_record_stops_the_import(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    path = tmp_path_factory.mktemp("odd") / f"{SESSION}.jsonl"
    read_log(NAME, written(path, rows))


def test_a_record_that_is_nested_too_deeply_is_counted(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = {"content": [deep]}
    reading = Import()
    assert read(tmp_path, Session().asks([deep]).says("m1", use("c1", "Bash", deep=deep)), reading=reading) == []
    assert reading.tally(NAME).ignored == {"nested too deeply": 2}


def test_names_that_are_too_long_are_cut_and_stay_different(tmp_path: Path) -> None:
    session = Session("s" * 500).says("m" * 300, use("c1", "n" * 300)).says("m" * 301, use("c2", "n" * 301))
    one, other = read(tmp_path, session, "log.jsonl")
    assert one["run_id"] == other["run_id"]
    assert one["event_id"] != other["event_id"]
