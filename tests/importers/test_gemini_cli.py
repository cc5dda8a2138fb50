"""Sessions of Gemini CLI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import
from streamproc.importers.content import items, mapping
from streamproc.importers.gemini_cli import FORMAT
from tests.importers.reading import calls, changed, formats_that_match, halts, imported, written

HEAD: dict[str, Any] = {
    "sessionId": "7befeae5", "projectHash": "f360", "startTime": "2026-01-30T06:08:50Z", "kind": "main",
}  # fmt: skip
TOKENS = {"input": 100, "output": 7, "cached": 60, "thoughts": 5, "tool": 3, "total": 115}


def asked(text: str = "Fix it.") -> dict[str, Any]:
    return {"id": "u1", "timestamp": "2026-01-30T06:08:50.429Z", "type": "user", "content": [{"text": text}]}


def said(number: int, *calls: dict[str, Any], text: str = "", **fields: Any) -> dict[str, Any]:
    at = f"2026-01-30T06:09:{number:02}.000Z"
    more = {"tokens": TOKENS, "model": "gemini-3-pro", "toolCalls": list(calls)} | fields
    return {"id": f"g{number}", "timestamp": at, "type": "gemini", "content": text, "thoughts": [], **more}


def called(tool: str, args: Any, output: str, status: str = "success", key: str = "output") -> dict[str, Any]:
    result = [{"functionResponse": {"id": "c", "name": tool, "response": {key: output}}}]
    at = "2026-01-30T06:10:00.000Z"
    return {"id": "c", "name": tool, "args": args, "result": result, "status": status, "timestamp": at}


def shell(command: str, output: str, code: int = 0, group: int = 128) -> dict[str, Any]:
    rest = f"Error: (none)\nExit Code: {code}\nSignal: 0\nBackground PIDs: (none)\nProcess Group PGID: {group}"
    wrapped = f"Command: {command}\nDirectory: (root)\nOutput: {output}\n{rest}"
    return called("run_shell_command", {"command": command}, wrapped)


def session(path: Path, *messages: Any) -> Path:
    return written(path, {**HEAD, "messages": list(messages)})


def test_a_message_of_the_model_is_a_turn_with_its_calls_and_tokens(tmp_path: Path) -> None:
    path = session(
        tmp_path / "session-1.json", asked(), said(1, called("read_file", {"p": "a"}, "x = 1"), text="I look.")
    )
    assert formats_that_match(path)[0] == "gemini-cli"
    assert imported(path) == [
        {"#": "message 1", "type": "user.message", "run_id": "7befeae5", "at": "2026-01-30T06:08:50.429000+00:00"},
        {
            "#": "message 2", "run_id": "7befeae5", "node": "gemini", "event_id": "7befeae5/g1",
            "at": "2026-01-30T06:10:00+00:00", "output": "I look.", "model": "gemini-3-pro",
            "tool_calls": [{"name": "read_file", "id": "c", "args": {"p": "a"}, "result": "x = 1"}],
            "usage": {"input_tokens": 103, "output_tokens": 12, "cached_tokens": 60},
        },
    ]  # fmt: skip


def test_a_session_of_lines_is_the_same_and_a_message_that_is_written_again_counts_once(tmp_path: Path) -> None:
    first, again = said(1), said(1, called("ls", {}, "a"))
    rows = [HEAD, asked(), {"$set": {"lastUpdated": "2026-01-30T06:09:00Z"}}, first, again, said(2, text="Done.")]
    reading = Import()
    events = imported(written(tmp_path / "session-1.jsonl", rows), FORMAT, reading)
    assert not reading.tally("gemini-cli").ignored
    document = imported(session(tmp_path / "session-1.json", asked(), again, said(2, text="Done.")))
    assert [event["#"] for event in events] == ["line 2", "line 4", "line 6"]
    assert [event | {"#": ""} for event in events] == [event | {"#": ""} for event in document]


def test_what_the_model_says_may_have_another_type(tmp_path: Path) -> None:
    older = {"id": "m4", "type": "model", "parts": [{"text": "Bye."}]}
    path = session(tmp_path / "a.json", said(1, text="Hi."), older)
    assert [event["output"] for event in imported(path)] == ["Hi.", "Bye."]


def test_what_the_shell_writes_around_the_output_is_no_result(tmp_path: Path) -> None:
    failed = called("run_shell_command", {}, "Output: no\nExit Code: 2\nProcess Group PGID: 7")
    path = session(tmp_path / "a.json", said(1, shell("ls", "a\nb"), shell("make\nx", "bad", 1), failed))
    assert [(call.get("result"), call.get("error")) for call in calls(path)] == [
        ("a\nb", None), (None, "Exit code 1\nbad"), (None, "Exit code 2\nno"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (called("read_file", {}, "not found", "error", "error"), {"error": "not found"}),
        (called("edit", {}, "", "cancelled"), {}),
        ({"name": "read_file", "status": "success"}, {}),
        ({"name": "read_file", "status": "success", "resultDisplay": "x"}, {"result": "x"}),
        (
            {"name": "shot", "status": "success", "result": [{"inlineData": {"data": "AAAA"}}]},
            {"result": "[image dguhwgvq]"},
        ),
    ],
)
def test_a_call_may_fail_or_have_no_result(tmp_path: Path, call: Any, answer: dict[str, str]) -> None:
    (found,) = calls(session(tmp_path / "a.json", said(1, call)))
    assert {key: found[key] for key in ("result", "error") if key in found} == answer


def test_a_declined_call_restarts_streaks_and_notes_of_the_program_are_no_turns(tmp_path: Path) -> None:
    notes = [{"id": f"n{n}", "type": kind, "content": "Update available"} for n, kind in enumerate(("info", "odd"))]
    reading = Import()
    path = session(tmp_path / "a.json", *notes, said(1, called("edit", {}, "", "cancelled")))
    assert [event.get("type", "turn") for event in imported(path, FORMAT, reading)] == ["turn", "user.message"]
    assert reading.tally("gemini-cli").ignored == {"odd": 1}


def test_what_the_program_tells_the_person_is_no_error_of_the_run(tmp_path: Path) -> None:
    errors = [{"id": f"e{n}", "type": "error", "content": f"Unknown command: /help{n}"} for n in range(4)]
    assert imported(session(tmp_path / "a.json", *errors, said(1, text="Hi."))) != []
    assert not any("errors" in event for event in imported(session(tmp_path / "b.json", *errors, said(1, text="Hi."))))


def test_an_error_of_the_service_may_be_retried(tmp_path: Path) -> None:
    errors = [{"id": f"e{n}", "type": "error", "content": "[API Error: quota exceeded]"} for n in range(4)]
    events = imported(session(tmp_path / "a.json", *errors))
    assert events[0]["errors"] == [{"message": "[API Error: quota exceeded]", "class": "api_error", "retryable": True}]
    assert halts(events) == set()


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = session(tmp_path / "stuck.json", asked(), *[said(n, shell("make", "no rule", 0, n)) for n in range(3)])
    honest = session(tmp_path / "honest.json", asked(), *[said(n, shell(f"cat {n}", f"{n}")) for n in range(9)])
    assert halts(imported(stuck)) == {("7befeae5", "LOOP003")}
    assert halts(imported(honest)) == set()


DOCUMENT = {
    **HEAD,
    "messages": [asked(), said(1, shell("ls", "a"), text="Hm."), said(2, called("x", {}, "y", "error"))],
}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=changed(DOCUMENT))
def test_any_shape_of_records_is_read(tmp_path: Path, document: Any) -> None:
    path = written(tmp_path / "a.json", document)
    formats_that_match(path)
    imported(path, FORMAT)
    rows = items(mapping(document).get("messages"))
    imported(written(tmp_path / "a.jsonl", [HEAD, *rows]), FORMAT)


def untrusted(output: str, group: int, advice: str = "") -> dict[str, Any]:
    """Return a call as version 0.61 writes it: in a frame, with what a hook has told the model after it."""
    frame = f"<untrusted_context>\nOutput: {output}\nProcess Group PGID: {group}\n</untrusted_context>"
    told = f"\n\n<hook_context>{advice}</hook_context>" if advice else ""
    return called("run_shell_command", {"command": "cat x"}, frame + told)


def answered(number: int) -> dict[str, Any]:
    response = {"functionResponse": {"id": "c", "name": "run_shell_command", "response": {"output": "x"}}}
    return {"id": f"r{number}", "timestamp": "2026-01-30T06:10:00.000Z", "type": "user", "content": [response]}


def test_the_frame_around_an_answer_and_what_a_hook_has_added_are_no_result(tmp_path: Path) -> None:
    found = calls(session(tmp_path / "a.json", said(1, untrusted("a\nb", 17)), said(2, untrusted("a\nb", 18, "Stop"))))
    assert [call["result"] for call in found] == ["a\nb", "a\nb"]
    odd = [called("ls", {}, text) for text in ("</hook_context>", "<untrusted_context>\n", "x\n\n<hook_context>")]
    assert [call["result"] for call in calls(session(tmp_path / "b.json", said(1, *odd)))] == [
        "</hook_context>", "", "x\n\n<hook_context>",
    ]  # fmt: skip


def test_the_same_call_with_the_same_answer_is_halted_in_a_session_of_lines(tmp_path: Path) -> None:
    """Answers are written again as messages of the user: no one has said anything."""
    rows = [HEAD, asked()]
    for number in range(1, 4):
        rows += [said(number, untrusted("a", number)), answered(number)]
    assert halts(imported(written(tmp_path / "session-1.jsonl", rows))) == {("7befeae5", "LOOP003")}


def test_what_sends_the_model_on_is_no_prompt(tmp_path: Path) -> None:
    def user(number: int, text: str, shown: str = "") -> dict[str, Any]:
        more = {"displayContent": [{"text": shown}]} if shown else {}
        return asked(text) | {"id": f"u{number}"} | more

    messages = [
        user(1, "Fix it."),
        user(2, "Go on.", "Fix it."),  # a hook's reason
        user(3, "Go on.", "Fix it."),
        user(4, "System: Potential loop detected. Details: Repeated tool call: ls"),
        user(5, "All of /fix", "/fix"),  # a person's command, written out
        user(6, "All of /fix", "/fix"),
        user(7, "Go on.", "/fix"),
        user(8, "Fix it.", "Fix it."),
    ]
    found = imported(session(tmp_path / "a.json", *messages))
    of_people = [event["#"] for event in found if event["type"] == "user.message"]
    of_hooks = [(event["#"], event["reason"]) for event in found if event["type"] == "run.continued"]
    assert of_people == [f"message {number}" for number in (1, 5, 6, 8)]
    assert of_hooks == [(f"message {number}", "Go on.") for number in (2, 3, 7)]
