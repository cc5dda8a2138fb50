"""mini-SWE-agent trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.importers import Import, LogFile
from streamproc.importers.mini_swe_agent import FORMAT
from tests.importers.reading import SAMPLES, calls, changed, expected, formats_that_match, halts, imported, written

SAMPLE_NAMES = ("acme__stats-7", "old_list")
FIRST = [{"role": "system", "content": "Be good."}, {"role": "user", "content": "Solve this."}]


def sample(name: str) -> Path:
    return SAMPLES / f"mini-swe-agent/{name}.traj.json"


def asked(command: str) -> dict[str, Any]:
    return {"role": "assistant", "content": f"THOUGHT: hm\n\n```mswea_bash_command\n{command}\n```"}


def returned(text: str, code: int = 0) -> dict[str, Any]:
    return {"role": "user", "content": f"<returncode>{code}</returncode>\n<output>\n{text}\n</output>"}


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_a_sample_is_read_as_expected(name: str) -> None:
    assert imported(sample(name)) == expected(SAMPLES.parent / f"expected/mini-swe-agent/{name}.jsonl")


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_a_sample_is_of_no_other_format(name: str) -> None:
    assert formats_that_match(sample(name)) == ["mini-swe-agent"]


def test_the_exit_code_says_what_failed_and_its_tags_are_no_result(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", [*FIRST, asked("make"), returned("broken", 2), asked("ls"), returned("a")])
    assert [(call.get("error"), call.get("result")) for call in calls(path)] == [
        ("Exit code 2\nbroken", None),
        (None, "a"),
    ]


def test_the_number_of_characters_left_out_is_no_result(tmp_path: Path) -> None:
    answers = [f"<returncode>0</returncode>\n<elided_chars>\n{n} characters elided\n</elided_chars>" for n in (1, 22)]
    steps = [message for answer in answers for message in (asked("ls -R /"), {"role": "user", "content": answer})]
    one, other = calls(written(tmp_path / "a.json", [*FIRST, *steps]))
    assert one == other


def test_results_as_json_text_are_read(tmp_path: Path) -> None:
    answer = {"role": "user", "content": '{"returncode": 3, "output": "no"}'}
    assert calls(written(tmp_path / "a.json", [*FIRST, asked("x"), answer])) == [
        {"name": "bash", "args": "x", "error": "Exit code 3\nno"}
    ]


def test_a_bash_block_of_the_first_versions_is_a_command(tmp_path: Path) -> None:
    answer = {"role": "assistant", "content": "```bash\nls\n```"}
    assert calls(written(tmp_path / "a.json", [*FIRST, answer, returned("a")]))[0]["args"] == "ls"


@pytest.mark.parametrize("before", ["", "<args>\n['bash', '-c', 'make']\n</args>\n"])
def test_lists_of_the_first_versions_are_known_by_what_a_command_returned(tmp_path: Path, before: str) -> None:
    answer = {"role": "assistant", "content": "I build.\n\n```bash\nmake\n```"}
    outputs = [(0, ("stdout", ""), ("stderr", "")), (2, ("stderr", "no rule\n"), ("stdout", "cc a.c\n"))]
    steps = [
        message
        for code, *streams in outputs
        for text in ["".join(f"\n<{name}>\n{text}\n</{name}>" for name, text in streams)]
        for message in (answer, {"role": "user", "content": f"{before}<returncode>\n{code}\n</returncode>{text}"})
    ]
    path = written(tmp_path / "a.traj.json", [*FIRST, *steps])
    assert formats_that_match(path) == ["mini-swe-agent"]
    assert calls(path) == [
        {"name": "bash", "args": "make", "result": ""},
        {"name": "bash", "args": "make", "error": "Exit code 2\nno rule\ncc a.c\n"},
    ]


def test_a_command_that_printed_nothing_has_an_empty_result_and_the_last_one_none() -> None:
    found = calls(sample("old_list"))
    assert found[-1]["result"] == ""
    assert {"error", "result"}.isdisjoint(calls(sample("acme__stats-7"))[-1])


def test_only_the_task_and_what_a_person_says_are_messages_of_a_user() -> None:
    events = imported(sample("acme__stats-7"))
    assert [event["#"] for event in events if event.get("type") == "user.message"] == ["message 2", "message 9"]
    events = imported(sample("old_list"))
    assert [event["#"] for event in events if event.get("type") == "user.message"] == ["message 2"]


def test_an_answer_that_was_not_understood_is_a_turn_with_its_cost() -> None:
    turn = imported(sample("acme__stats-7"))[2]
    assert turn["tool_calls"] == [{
        "name": "bash", "args": "I will fix it now.", "error": "Tool call error: no tool calls found in the response.",
    }]  # fmt: skip
    assert turn["usage"]["cost_usd"] == "0.001"


def test_of_several_commands_in_one_answer_none_was_run(tmp_path: Path) -> None:
    answer = asked("make")["content"] + asked("make test")["content"]
    refused = {"role": "user", "content": "Please always provide EXACTLY ONE action in triple backticks, found 2."}
    steps = [*FIRST, {"role": "assistant", "content": answer}, refused, asked("make"), returned("ok")]
    assert calls(written(tmp_path / "a.json", steps)) == [
        {"name": "bash", "args": answer, "error": refused["content"]},
        {"name": "bash", "args": "make", "result": "ok"},
    ]


def test_a_command_that_timed_out_has_failed(tmp_path: Path) -> None:
    killed = {"role": "user", "content": "The last command <command>make</command> timed out and has been killed."}
    (call,) = calls(written(tmp_path / "a.json", [*FIRST, asked("make"), killed]))
    assert call == {"name": "bash", "args": "make", "error": killed["content"]}


def reprimanded(times: int) -> list[dict[str, Any]]:
    text = "No tool calls found in the response. Every response MUST include at least one tool call."
    return [{"role": "user", "content": text, "extra": {"interrupt_type": "FormatError"}}] * times


def test_answers_that_could_not_be_parsed_halt_late(tmp_path: Path) -> None:
    done = [asked("ls"), returned("a.py")]
    said = {"response": {"choices": [{"message": {"content": "I will fix it now."}}]}}
    kept = [{**message, "extra": message["extra"] | said} for message in reprimanded(6)]
    few = written(tmp_path / "few.json", {"info": {}, "messages": [*FIRST, *kept[:2], *done, *kept[:2]]})
    many = written(tmp_path / "many.json", {"info": {}, "messages": [*FIRST, *done, *kept]})
    assert halts(imported(few)) == set()
    assert {run for run, _ in halts(imported(many))} == {"many"}


def test_answers_that_are_not_in_the_log_are_not_judged(tmp_path: Path) -> None:
    """Only the reprimands are kept. In 45 runs (RussellRyanH/CSCI-635-LiveSWE-Agent), each of 213 such streaks, of up
    to 40 answers, ended with a command."""
    reading = Import()
    log = written(tmp_path / "a.json", {"info": {}, "messages": [*FIRST, asked("ls"), returned("a"), *reprimanded(40)]})
    assert halts(imported(log, FORMAT, reading)) == set()
    assert "are not in these logs" in " ".join(reading.sentences())


def test_commands_that_exit_with_an_error_and_new_output_are_no_streak(tmp_path: Path) -> None:
    checks = [
        (f"pylint {name}.py", f"{name}.py:{size}: {name * 3} is not allowed") for size, name in enumerate("abcdefghij")
    ]
    steps = [message for command, found in checks for message in (asked(command), returned(found, 4))]
    assert halts(imported(written(tmp_path / "a.json", [*FIRST, *steps]))) == set()


def test_the_same_name_in_another_directory_is_another_run(tmp_path: Path) -> None:
    reading = Import()
    paths = [written(tmp_path / name / "a/a.traj.json", [*FIRST, asked("ls")]) for name in ("one", "two")]
    assert [imported(path, FORMAT, reading)[0]["run_id"] for path in paths] == ["a", "two/a"]


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = written(tmp_path / "stuck.json", [*FIRST, *[asked("cat a.py"), returned("x = 1")] * 3])
    steps = [message for name in "abc" for message in (asked(f"cat {name}"), returned(f"{name} = 1"))]
    honest = written(tmp_path / "honest.json", [*FIRST, *steps])
    assert formats_that_match(stuck) == ["mini-swe-agent"]
    assert halts(imported(stuck)) == {("stuck", "LOOP003")}
    assert halts(imported(honest)) == set()


@pytest.mark.parametrize("name", SAMPLE_NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=changed({name: LogFile(sample(name)).document() for name in SAMPLE_NAMES}))
def test_any_shape_of_records_is_read(tmp_path: Path, name: str, data: Any) -> None:
    path = written(tmp_path / "a.json", data.get(name))
    formats_that_match(path)
    imported(path, FORMAT)
