"""SWE-agent trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from streamproc.errors import InvalidEvent
from streamproc.importers import Import, LogFile
from streamproc.importers.swe_agent import FORMAT
from tests.importers.reading import SAMPLES, changed, expected, formats_that_match, halts, imported, written

SAMPLE = SAMPLES / "swe-agent/fix-average/acme__stats-7/acme__stats-7.traj"
DOCUMENT = LogFile(SAMPLE).document()


def step(action: str, observation: str | None, **fields: Any) -> dict[str, Any]:
    return {"action": action, "observation": observation, "thought": "Hm.", "response": "", "state": {}} | fields


def trajectory(path: Path, *steps: Any, **fields: Any) -> Path:
    return written(path, {"trajectory": list(steps), "history": [], "info": {}, "environment": "swe_main"} | fields)


def test_the_sample_is_read_as_expected() -> None:
    assert imported(SAMPLE) == expected(SAMPLES.parent / "expected/swe-agent/acme__stats-7.jsonl")


def test_the_sample_is_of_no_other_format() -> None:
    assert formats_that_match(SAMPLE) == ["swe-agent"]


def test_the_same_instance_of_two_experiments_is_two_runs(tmp_path: Path) -> None:
    reading = Import()
    for experiment in ("first", "second"):
        trajectory(tmp_path / experiment / "a__b-1/a__b-1.traj", step("ls", "x"))
        trajectory(tmp_path / experiment / "c.traj", step("ls", "x"))
    runs = [imported(path, reading=reading)[0]["run_id"] for path in sorted(tmp_path.rglob("*.traj"))]
    assert runs == ["first/a__b-1", "first/c", "second/a__b-1", "second/c"]


def test_as_much_of_the_path_is_in_the_name_as_tells_runs_apart(tmp_path: Path) -> None:
    """Results of a benchmark keep all runs of a model in `MODEL/trajs`."""
    reading = Import()
    paths = [trajectory(tmp_path / model / "trajs/a__b-1.traj", step("ls", model)) for model in ("one", "two")]
    runs = [imported(path, reading=reading)[0]["run_id"] for path in paths]
    assert runs == ["trajs/a__b-1", "two/trajs/a__b-1"]


def test_each_step_has_an_equal_part_of_what_the_run_has_spent(tmp_path: Path) -> None:
    """Else all of it would seem to come after a halt."""
    stats = {"tokens_sent": 1_001, "tokens_received": 2, "instance_cost": 1.2}
    steps = [step(f"cat {n}", f"text {n}") for n in range(4)]
    usages = [
        event["usage"] for event in imported(trajectory(tmp_path / "a.traj", *steps, info={"model_stats": stats}))
    ]
    assert [usage["input_tokens"] for usage in usages] == [250, 250, 250, 251]
    assert sum(usage.get("output_tokens", 0) for usage in usages) == 2
    assert [usage["cost_usd"] for usage in usages] == ["0.3"] * 4


def test_demonstrations_in_the_history_are_not_turns(tmp_path: Path) -> None:
    history = [
        {"role": "assistant", "content": "ls", "agent": "demo", "is_demo": True, "message_type": "action"},
        {"role": "user", "content": "the issue", "agent": "primary", "message_type": "observation"},
    ]
    events = imported(trajectory(tmp_path / "a.traj", step("ls", "x"), history=history))
    assert [(event["node"], event["tool_calls"][0]["args"]) for event in events] == [("primary", "ls")]


def test_an_answer_without_a_command_has_no_call(tmp_path: Path) -> None:
    (event,) = imported(trajectory(tmp_path / "a.traj", step(" \n", "")))
    assert "tool_calls" not in event
    assert event["output"] == "Hm."


@pytest.mark.parametrize("state", ['{"open_file": "n/a"}', {"open_file": "n/a"}, None])
def test_the_state_may_be_text_or_an_object(tmp_path: Path, state: Any) -> None:
    assert len(imported(trajectory(tmp_path / "a.traj", step("ls", "x", state=state)))) == 1


def test_line_ends_of_a_terminal_do_not_matter(tmp_path: Path) -> None:
    one, other = imported(trajectory(tmp_path / "a.traj", step("ls", "a\r\nb"), step("ls", "a\nb")))
    assert one["tool_calls"] == other["tool_calls"]


def test_a_demonstration_without_a_trajectory_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.traj", {"history": [{"role": "user", "content": "Hi", "message_type": "x"}]})
    assert formats_that_match(path) == ["swe-agent"]
    with pytest.raises(InvalidEvent, match=r"a\.traj: trajectory: it is a demonstration of SWE-agent"):
        imported(path)


def test_attempts_of_a_retry_agent_are_runs_of_one_session(tmp_path: Path) -> None:
    attempts = [{"trajectory": [step("ls", "x")], "info": {"exit_status": status}} for status in ("a", "b")]
    path = written(tmp_path / "lab/a.traj", {"attempts": attempts, **attempts[1]})
    events = imported(path)
    assert formats_that_match(path) == ["swe-agent"]
    assert [(event["run_id"], event.get("session_id"), event.get("status")) for event in events] == [
        ("lab/a/attempt-1", "lab/a", None), ("lab/a/attempt-1", None, "a"),
        ("lab/a/attempt-2", "lab/a", None), ("lab/a/attempt-2", None, "b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("observation", "failed"),
    [
        ("Your proposed edit has introduced new syntax error(s). Please read", True),
        ("\nEXECUTION TIMED OUT", True),
        ("Usage: open <path> [<line_number>]", True),
        ("Traceback (most recent call last):\n  File", True),
        ("/bin/bash: line 1: rg: command not found", True),
        ("/bin/bash: line 3: syntax error near unexpected token `}'", True),
        ("bash: ./run.sh: Permission denied", True),
        ("File a.py not found", True),
        ("Error: File 'a.py' not found.", True),
        ("No file open. Use the `open` command first.", True),
        ("Files that were not found are listed here", False),
        ("Operation 'vim a.py' is not supported by this environment.", True),
        ("Found 1 matches", False),
        ("The tests say: Traceback (most recent call last)", False),
        ("", False),
    ],
)
def test_a_failed_command_is_known_by_what_it_says(tmp_path: Path, observation: str, *, failed: bool) -> None:
    (event,) = imported(trajectory(tmp_path / "a.traj", step("x", observation)))
    assert ("error" in event["tool_calls"][0], "result" in event["tool_calls"][0]) == (failed, not failed)


def test_a_command_without_an_observation_is_unanswered(tmp_path: Path) -> None:
    (event,) = imported(trajectory(tmp_path / "a.traj", step("ls", None)))
    assert event["tool_calls"] == [{"name": "ls", "args": "ls"}]


def test_a_tool_that_writes_has_its_file_its_place_and_its_text_as_arguments(tmp_path: Path) -> None:
    state = {"open_file": "/app/a.py", "working_dir": "/app"}
    (event,) = imported(trajectory(tmp_path / "a.traj", step("edit 3:5\nx = 1\ny = 2\nend_of_edit", "ok", state=state)))
    args = {"path": "/app/a.py", "place": "3:5", "new_text": "x = 1\ny = 2"}
    assert event["tool_calls"] == [{"name": "edit", "args": args, "result": "ok"}]


def test_what_deletes_lines_is_an_edit(tmp_path: Path) -> None:
    state = {"open_file": "/app/a.py"}
    (event,) = imported(trajectory(tmp_path / "a.traj", step("edit 22:22\nend_of_edit", "ok", state=state)))
    assert event["tool_calls"][0]["args"] == {"path": "/app/a.py", "place": "22:22", "new_text": ""}


@pytest.mark.parametrize(("said", "failed"), [
    ("[File: a.py (9 lines total)]\n1:x\nFile updated. Please review the changes.", False),
    ("Your proposed edit was not applied.", True),
])  # fmt: skip
def test_an_edit_is_written_if_its_tool_says_so_whatever_its_linter_says_before(
    tmp_path: Path, said: str, *, failed: bool
) -> None:
    observation = f'Traceback (most recent call last):\n  File "lint", line 3\nValueError: odd\n{said}'
    (event,) = imported(trajectory(tmp_path / "a.traj", step("edit 1:1\nx\nend_of_edit", observation)))
    assert ("error" in event["tool_calls"][0]) is failed


def test_the_same_edit_that_makes_the_file_longer_each_time_is_halted(tmp_path: Path) -> None:
    edit = f"edit 1:1\n{'import a_module_with_a_long_name' * 5}\nend_of_edit"
    steps = [
        step(edit, f"[File: /app/a.py ({n} lines total)]\n1:{'x' * n}", state={"open_file": "/app/a.py"})
        for n in range(5)
    ]
    assert halts(imported(trajectory(tmp_path / "lab/a.traj", *steps))) == {("lab/a", "LOOP003")}


def test_a_stuck_run_is_halted_and_an_honest_one_is_not(tmp_path: Path) -> None:
    stuck = trajectory(tmp_path / "lab/stuck.traj", *[step("cat a.py", "x = 1")] * 3)
    honest = trajectory(tmp_path / "lab/honest.traj", *[step(f"cat {name}.py", f"{name} = 1") for name in "abc"])
    assert halts(imported(stuck)) == {("lab/stuck", "LOOP003")}
    assert halts(imported(honest)) == set()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=changed(DOCUMENT))
def test_any_shape_of_records_is_read(tmp_path: Path, document: Any) -> None:
    path = written(tmp_path / "a.traj", document)
    formats_that_match(path)
    if isinstance(document, dict) and not {"trajectory", "attempts"} & document.keys():
        assert not FORMAT.matches(LogFile(path).sample()) or "history" in document
        return
    imported(path, FORMAT)
