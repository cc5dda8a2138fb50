"""Sessions of OpenCode, in the four forms in which they are found."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.errors import InvalidEvent
from streamproc.importers import Import
from streamproc.importers.discovery import log_paths
from streamproc.importers.opencode import FORMAT
from tests.importers.reading import changed, events_of, formats_that_match, halts, imported, written

T0 = 1_776_898_604_000
TOKENS = {"input": 7, "output": 3, "reasoning": 2, "cache": {"read": 90, "write": 1}}


def info(session_id: str = "ses_1", **fields: Any) -> dict[str, Any]:
    known = {"id": session_id, "projectID": "p1", "directory": "/home/me/shop", "title": "Fix the login"}
    return {**known, "time": {"created": T0, "updated": T0}, **fields}


def asked(number: int, text: str = "Fix it.", **part: Any) -> dict[str, Any]:
    message = {"id": f"msg_{number:02}", "sessionID": "ses_1", "role": "user", "time": {"created": T0 + number}}
    return {"info": message, "parts": [{"type": "text", "text": text, **part}]}


def said(number: int, *parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    at = {"created": T0 + number, "completed": T0 + number + 9}
    message = {
        "id": f"msg_{number:02}", "sessionID": "ses_1", "role": "assistant", "time": at, "agent": "build",
        "modelID": "big-pickle", "providerID": "opencode", **fields,
    }  # fmt: skip
    return {"info": message, "parts": list(parts)}


def tool(tool_name: str, args: Any, output: str, status: str = "completed", end: int = T0 + 5) -> dict[str, Any]:
    answer = {"output" if status == "completed" else "error": output} if status in ("completed", "error") else {}
    state = {"status": status, "input": args, "time": {"start": T0, "end": end}, **answer}
    return {"type": "tool", "tool": tool_name, "callID": f"call_{output}", "state": state}


def finished(cost: float = 0.25) -> dict[str, Any]:
    return {"type": "step-finish", "reason": "tool-calls", "tokens": TOKENS, "cost": cost}


def session(path: Path, *messages: Any, **fields: Any) -> Path:
    return written(path, {"info": info(**fields), "messages": list(messages)})


def stored(root: Path, messages: list[dict[str, Any]], **fields: Any) -> Path:
    """Write a session as versions before 1.2 keep it, with a file for each message and part."""
    session_id = info(**fields)["id"]
    for message in messages:
        message_id = message["info"]["id"]
        written(root / f"storage/message/{session_id}/{message_id}.json", message["info"])
        for number, part in enumerate(message["parts"]):
            written(root / f"storage/part/{message_id}/prt_{number:02}.json", part)
    return written(root / f"storage/session/p1/{session_id}.json", info(**fields))


def database(path: Path, *sessions: tuple[dict[str, Any], list[dict[str, Any]]]) -> Path:
    """Write sessions as versions since 1.2 keep them."""
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE session (id, parent_id, directory, title, time_created)")
        made.execute("CREATE TABLE message (id, session_id, time_created, time_updated, data)")
        made.execute("CREATE TABLE part (id, message_id, session_id, time_created, time_updated, data)")
        for one, messages in sessions:
            row = (one["id"], one.get("parentID"), one["directory"], one["title"], one["time"]["created"])
            made.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?)", row)
            for message in messages:
                data = {key: value for key, value in message["info"].items() if key not in ("id", "sessionID")}
                created = data["time"]["created"]
                key = message["info"]["id"]
                made.execute(
                    "INSERT INTO message VALUES (?, ?, ?, ?, ?)", (key, one["id"], created, created, json.dumps(data))
                )
                for number, part in enumerate(message["parts"]):
                    values = (f"prt_{number:02}", key, one["id"], created, created, json.dumps(part))
                    made.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", values)
    return path


STEPS = [
    asked(1),
    said(
        2, {"type": "step-start"}, {"type": "text", "text": "I look."}, tool("bash", {"command": "ls"}, "a"), finished()
    ),
    said(3, {"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "Done."}, finished(0)),
]
EVENTS = [
    {"type": "user.message", "run_id": "ses_1", "session_id": "ses_1", "at": T0 + 1},
    {
        "run_id": "ses_1", "session_id": "ses_1", "node": "build", "event_id": "msg_02/2/1", "at": T0 + 11,
        "model": "big-pickle", "provider": "opencode", "output": "I look.",
        "tool_calls": [{"name": "bash", "id": "call_a", "args": {"command": "ls"}, "result": "a"}],
        "usage": {"input_tokens": 98, "output_tokens": 5, "cached_tokens": 90, "cost_usd": "0.25"},
    },
    {
        "run_id": "ses_1", "session_id": "ses_1", "node": "build", "event_id": "msg_03/3/1", "at": T0 + 12,
        "model": "big-pickle", "provider": "opencode", "output": "Done.",
        "usage": {"input_tokens": 98, "output_tokens": 5, "cached_tokens": 90},
    },
]  # fmt: skip


def read(path: Path, reading: Import | None = None) -> list[dict[str, Any]]:
    return events_of(path, FORMAT, reading)


def test_an_exported_session_has_a_turn_for_each_step(tmp_path: Path) -> None:
    path = session(tmp_path / "a.json", *STEPS)
    assert formats_that_match(path)[0] == "opencode"
    assert read(path) == EVENTS


def test_the_files_of_the_old_store_are_one_session(tmp_path: Path) -> None:
    path = stored(tmp_path, STEPS)
    reading = Import()
    events = [event for log in log_paths([str(tmp_path)]) for event in read(Path(log), reading)]
    assert all(formats_that_match(Path(log))[0] == "opencode" for log in log_paths([str(tmp_path)]))
    assert events == read(path) == EVENTS
    assert reading.sentences()[0].startswith("read as: opencode (1 session, 2 turns;")


def test_the_database_holds_all_sessions_and_sub_agents_are_runs_with_a_parent(tmp_path: Path) -> None:
    child = [asked(11), said(12, {"type": "text", "text": "Found."}, finished(), agent="explore")]
    path = database(tmp_path / "opencode.db", (info(), STEPS), (info("ses_2", parentID="ses_1"), child))
    assert log_paths([str(tmp_path)]) == [str(path)]
    assert formats_that_match(path)[0] == "opencode"
    events = read(path)
    assert events[:3] == EVENTS
    [found] = events[3:]  # what a sub-agent is asked is no message of a person
    assert (found["run_id"], found["parent_run_id"], found["node"]) == ("ses_2", "ses_1", "explore")


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00 and no more"])
def test_a_database_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(content)
    with pytest.raises(InvalidEvent, match=r"opencode\.db: file: "):
        read(path)


def test_printed_parts_are_turns(tmp_path: Path) -> None:
    kinds = {"step-start": "step_start", "step-finish": "step_finish", "tool": "tool_use"}
    parts = [part for message in STEPS[1:] for part in message["parts"]]
    rows: list[dict[str, Any]] = [
        {"type": kinds.get(part["type"], part["type"]), "timestamp": T0 + 7, "sessionID": "ses_1", "part": part}
        for part in parts
    ]
    error = {"name": "APIError", "data": {"message": "overloaded", "isRetryable": True}}
    rows.append({"type": "error", "timestamp": T0 + 9, "sessionID": "ses_1", "error": error})
    path = written(tmp_path / "run.jsonl", rows)
    assert formats_that_match(path)[0] == "opencode"
    first, second, failed = read(path)
    assert (first["output"], first["tool_calls"], first["usage"]) == tuple(
        EVENTS[1][key] for key in ("output", "tool_calls", "usage")
    )
    assert second["output"] == "Done."
    assert failed["errors"] == [{"message": "overloaded", "class": "APIError", "retryable": True}]


def test_calls_that_failed_were_declined_or_never_ended(tmp_path: Path) -> None:
    declined = "The user rejected permission to use this specific tool call."
    calls = [
        tool("bash", {}, "exit 1", "error"), tool("bash", {}, "", "running"), tool("edit", {}, declined, "error")
    ]  # fmt: skip
    turn, heard = read(session(tmp_path / "a.json", said(2, *calls, finished())))
    assert [{key: one[key] for key in ("result", "error") if key in one} for one in turn["tool_calls"]] == [
        {"error": "exit 1"}, {}, {},
    ]  # fmt: skip
    assert heard["type"] == "user.message"


def test_a_response_that_a_person_stops_is_no_error(tmp_path: Path) -> None:
    aborted = said(2, {"type": "text", "text": "I"}, error={"name": "MessageAbortedError", "data": {"message": "x"}})
    assert [event.get("type", "turn") for event in read(session(tmp_path / "a.json", aborted))] == [
        "turn", "user.message",
    ]  # fmt: skip


def test_what_the_program_adds_is_no_message_of_a_person(tmp_path: Path) -> None:
    assert read(session(tmp_path / "a.json", asked(1, synthetic=True))) == []


def test_messages_with_redacted_ids_are_told_apart_by_their_times(tmp_path: Path) -> None:
    messages = [said(n, tool("bash", {"command": f"ls {n}"}, f"a{n}"), finished(), id="REDACTED") for n in range(3)]
    path, reading = session(tmp_path / "a.json", *messages), Import()
    assert [turn["tool_calls"][0]["result"] for turn in read(path, reading)] == ["a0", "a1", "a2"]
    assert read(path, reading) == []
    assert reading.tally("opencode").repeated == 3


def test_a_session_whose_id_is_redacted_is_named_after_its_file(tmp_path: Path) -> None:
    path = session(tmp_path / "ses_9.json", *STEPS, session_id="REDACTED", parentID="REDACTED")
    assert formats_that_match(path)[0] == "opencode"
    events = read(path)  # it is a sub-agent, though its parent is not known
    assert [(event["run_id"], event["session_id"], "parent_run_id" in event) for event in events] == [
        ("ses_9", "ses_9", False), ("ses_9", "ses_9", False),
    ]  # fmt: skip


def test_an_image_beside_an_output_is_a_part_of_the_result(tmp_path: Path) -> None:
    shots = []
    for number, data in enumerate(("AAAA", "AAAA", "BBBB"), start=1):
        call = tool("screenshot", {}, "Took it.")
        call["state"]["attachments"] = [{"id": f"prt_{number}", "type": "file", "mime": "image/png", "url": data}]
        shots.append(said(number, call))
    first, again, other = (call["result"] for event in imported(session(tmp_path / "a.json", asked(0), *shots))
                           for call in event.get("tool_calls", ()))  # fmt: skip
    assert first == again != other
    assert first.startswith("Took it.\n[file ")


def test_a_session_that_repeats_a_command_is_halted(tmp_path: Path) -> None:
    loop = [said(n, tool("bash", {"command": "ls"}, "a"), finished()) for n in range(5)]
    assert halts(imported(session(tmp_path / "a.json", *loop))) == {("ses_1", "LOOP003")}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(document=changed({"info": info(), "messages": STEPS}))
def test_a_damaged_session_never_raises(tmp_path: Path, document: Any) -> None:
    imported(written(tmp_path / "a.json", document), FORMAT)
