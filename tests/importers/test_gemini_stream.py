"""Output of Gemini CLI's `stream-json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import
from tests.importers.cli_logs import damaged, formats_found, read_log, samples_matched, shape
from tests.importers.reading import Row, calls, calls_of, halts, turns_of, written
from tests.importers.test_gemini_cli import asked, called, said, session, shell

if TYPE_CHECKING:
    from pathlib import Path

NAME = "gemini-stream"
SESSION = "6727b31e-11a1"
STATS = {"total_tokens": 130, "input_tokens": 100, "output_tokens": 20, "cached": 60, "input": 40, "duration_ms": 9}


def row(second: int, kind: str, /, **fields: Any) -> Row:
    return {"type": kind, "timestamp": f"2026-01-30T06:{second // 60:02}:{second % 60:02}.000Z"} | fields


def init(second: int = 0, run: str = SESSION) -> Row:
    return row(second, "init", session_id=run, model="gemini-3-pro")


def user(second: int, text: str = "Fix it.") -> Row:
    return row(second, "message", role="user", content=text)


def piece(second: int, text: str, *, delta: bool = True) -> Row:
    return row(second, "message", role="assistant", content=text) | ({"delta": True} if delta else {})


def use(second: int, call_id: str, tool: str = "run_shell_command", **args: Any) -> Row:
    return row(second, "tool_use", tool_name=tool, tool_id=call_id, parameters=args)


def returns(second: int, call_id: str, output: Any = None, status: str = "success", **more: Any) -> Row:
    return (
        row(second, "tool_result", tool_id=call_id, status=status)
        | ({} if output is None else {"output": output})
        | more
    )


def refused(second: int, call_id: str, kind: str, message: str) -> Row:
    return returns(second, call_id, "Error", "error", error={"type": kind, "message": message})


def ended(second: int, status: str = "success", **more: Any) -> Row:
    return row(second, "result", status=status, stats=STATS, **more)


ROWS = [
    init(), user(1), piece(2, "I lo"), piece(3, "ok."), use(4, "c1", command="ls"), use(5, "c2", command="pwd"),
    returns(6, "c1", "a\nb"), returns(7, "c2", "/"), piece(8, "Done"), piece(9, "."), ended(10),
]  # fmt: skip


def read(tmp_path: Path, *rows: Any, reading: Import | None = None) -> list[Row]:
    return read_log(NAME, written(tmp_path / "out.jsonl", rows), reading)


def test_pieces_and_calls_up_to_the_first_result_are_one_turn(tmp_path: Path) -> None:
    heard, first, second = read(tmp_path, *ROWS)
    at = heard["at"]
    scope = {"run_id": SESSION, "session_id": SESSION}
    assert heard == {**scope, "type": "user.message", "event_id": heard["event_id"], "at": at}
    assert first == {
        **scope, "event_id": first["event_id"], "node": "gemini", "model": "gemini-3-pro", "at": at + 6_000,
        "output": "I look.",
        "tool_calls": [
            {"name": "run_shell_command", "args": {"command": "ls"}, "id": "c1", "result": "a\nb"},
            {"name": "run_shell_command", "args": {"command": "pwd"}, "id": "c2", "result": "/"},
        ],
    }  # fmt: skip
    assert (second["output"], second["at"]) == ("Done.", at + 8_000)


def test_tokens_of_a_run_are_those_of_its_last_turn(tmp_path: Path) -> None:
    resumed = [init(20), user(21), piece(22, "Hi."), ended(23)]
    used = {"input_tokens": 100, "output_tokens": 30, "cached_tokens": 60}  # what it has thought is in the total
    assert [turn.get("usage") for turn in turns_of(read(tmp_path, *ROWS, *resumed))] == [None, used, used]
    failed = turns_of(read(tmp_path, init(), user(1), ended(2)))
    assert [(turn["usage"], "output" in turn) for turn in failed] == [(used, False)]


def test_only_such_outputs_are_claimed(tmp_path: Path) -> None:
    assert samples_matched(NAME) == set()
    written(tmp_path / "whole.jsonl", ROWS)
    written(tmp_path / "late.jsonl", ROWS[4:])
    written(tmp_path / "list.json", ROWS)
    assert formats_found(tmp_path) == {NAME}


def test_results_are_those_that_a_session_file_has(tmp_path: Path) -> None:
    failed = called("mcp_find", {}, "no such index", "error", "error")
    found = [
        shell("ls", "a\nb"),
        shell("true", "(empty)"),
        shell("false", "(empty)", 1),
        called("mcp_find", {}, "x"),
        failed,
    ]
    of_session = calls(session(tmp_path / "a.json", asked(), said(1, *found)))
    tools = [use(2, "c1"), use(2, "c2"), use(2, "c3"), use(2, "c4", "mcp_find"), use(2, "c5", "mcp_find")]
    answers = [
        returns(3, "c1", "a\nb"), returns(3, "c2", ""), returns(3, "c3", "Command exited with code: 1"),
        returns(3, "c4", "x"), refused(3, "c5", "mcp_tool_error", "no such index"),
    ]  # fmt: skip
    of_stream = calls_of(read(tmp_path, init(), *tools, *answers))
    assert [(one.get("result"), one.get("error")) for one in of_stream] == [
        (one.get("result"), one.get("error")) for one in of_session
    ]
    assert of_session[2]["error"] == "Exit code 1\n(empty)"


def test_a_debugged_program_writes_the_whole_answer(tmp_path: Path) -> None:
    rows = [use(2, "c1"), returns(3, "c1", "Output: no\nExit Code: 2\nProcess Group PGID: 7")]
    assert [call["error"] for call in calls_of(read(tmp_path, *rows))] == ["Exit code 2\nno"]


@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        ("read_file", returns(3, "c1", "")),  # what was read is not in the output
        ("read_file", returns(3, "c1", "Read lines 1-9 of 90")),
        ("replace", returns(3, "c1")),
        ("run_shell_command", returns(3, "c1", "Command cancelled by user.\n\nOutput before cancellation:\na")),
        ("run_shell_command", refused(3, "c1", "policy_violation", "Tool execution denied by policy.")),
    ],
)
def test_what_is_not_in_the_output_or_was_not_made_is_neither_result_nor_failure(
    tmp_path: Path, tool: str, answer: Row
) -> None:
    [call] = calls_of(read(tmp_path, init(), use(2, "c1", tool), answer, piece(4, "Hm.")))
    assert not {"result", "error"} & set(call)


def test_runs_one_after_the_other_are_runs_of_their_own(tmp_path: Path) -> None:
    other = [init(60, "s2"), user(61), use(62, "c1", command="id"), returns(63, "c1", "me"), ended(64)]
    events = read(tmp_path, *ROWS[:5], *other)  # the first one was cut off
    assert [(event["run_id"], *shape([event])) for event in events] == [
        (SESSION, "u"), (SESSION, "I look.+run_shell_command"), ("s2", "u"), ("s2", "run_shell_command"),
    ]  # fmt: skip
    assert [call.get("result") for call in calls_of(events)] == [None, "me"]


def test_a_copy_of_a_run_counts_once_and_a_session_that_goes_on_is_one_run(tmp_path: Path) -> None:
    reading = Import()
    first = read(tmp_path, *ROWS, reading=reading)
    again = read(tmp_path, *ROWS, init(30), user(31, "Go on."), piece(32, "Yes."), reading=reading)
    assert (shape(again), reading.tally(NAME).repeated) == (["u", "Yes."], len(ROWS))
    events = [*first, *again]
    assert len({event["event_id"] for event in events}) == len(events)
    assert {event["run_id"] for event in events} == {SESSION}
    assert reading.name_of(SESSION) == '"Fix it."'


def test_an_output_without_its_beginning_is_named_after_its_file(tmp_path: Path) -> None:
    rows = [returns(1, "c0", "x"), use(2, "c1", command="ls"), returns(3, "c1", "a"), piece(4, "A", delta=False)]
    events = read(tmp_path, *rows, piece(5, "B", delta=False))
    assert ({event["run_id"] for event in events}, shape(events)) == ({"out"}, ["run_shell_command", "A", "B"])


def test_errors_of_the_service_may_be_retried(tmp_path: Path) -> None:
    failed = {"type": "Error", "message": "[API Error: quota exceeded]"}
    login = {"type": "FatalAuthenticationError", "message": "log in"}
    stopped = {"type": "FatalCancellationError", "message": "Operation cancelled."}
    rows = [
        init(), row(1, "error", severity="warning", message="Loop detected, stopping execution"),
        row(2, "error", severity="error", message="Maximum session turns exceeded"),
        row(3, "error", severity="error", message="The model returned nothing."), ended(4, "error"),
        init(5), ended(6, "error", error=failed), init(7), ended(8, "error", error=login),
        init(9), ended(10, "error", error=stopped),
    ]  # fmt: skip
    errors = [event["errors"][0] for event in turns_of(read(tmp_path, *rows)) if "errors" in event]
    assert [(error["class"], error["message"], error["retryable"]) for error in errors] == [
        ("invalid_stream", "The model returned nothing.", True), ("Error", "[API Error: quota exceeded]", True),
        ("FatalAuthenticationError", "log in", False),
    ]  # fmt: skip


def test_rows_of_unknown_types_are_counted(tmp_path: Path) -> None:
    reading = Import()
    odd = [row(1, "novelty"), row(1, "message", role="tool", content="x"), {"type": 7}, 7]
    assert shape(read(tmp_path, init(), *odd, piece(2, "Hi."), reading=reading)) == ["Hi."]
    assert reading.tally(NAME).ignored == {"novelty": 1, "tool": 1, "int": 2}


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    def runs(*outputs: str, tool: str = "run_shell_command") -> list[Row]:
        rows = [init(), user(1)]
        for second, output in enumerate(outputs, start=2):
            rows += [use(second, f"c{second}", tool, command="make"), returns(second, f"c{second}", output)]
        return rows

    assert halts(read(tmp_path, *runs("no rule", "no rule"))) == set()
    assert halts(read(tmp_path, *runs("no rule", "no rule", "no rule"))) == {(SESSION, "LOOP003")}
    assert halts(read(tmp_path, *runs(*map(str, range(9))))) == set()
    assert halts(read(tmp_path, *runs("", "", "", tool="read_file"))) == set()  # a file that grows, perhaps


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=damaged([*ROWS, refused(11, "c3", "policy_violation", "no"), row(12, "error", severity="error")]))
def test_a_damaged_output_never_raises(tmp_path: Path, rows: list[Any]) -> None:
    read(tmp_path, *rows)
