"""The findings of `streamproc scan` for people: places, times, words, and the turns around a halt."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from streamproc.model.controls import read_control
from streamproc.replay.source import Source
from streamproc.replay.turn_log import TURNS_MAX, TurnLog, packed_turn
from tests.cli.conftest import ROOT, honest, jsonl, stuck
from tests.cli.terminals import in_terminal
from tests.replay.toy_format import TOY

SAMPLES = ROOT / "streamproc" / "samples" / "trajectories.jsonl.gz"
KEY = "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8sT" * 4


def git_status(at: str = "2026-01-31T10:00:0{}Z", **more: Any) -> list[dict[str, Any]]:
    """A run that calls `git status` three times, with other turns in between."""
    call = {"name": "Bash", "args": {"command": "git status", "description": "Look"}, "result": "nothing to commit"}
    turns: list[dict[str, Any]] = []
    for number in range(3):
        turns.append({"run_id": "r", "node": "coder", "output": f"Let me look, {number}."})
        turns.append({"run_id": "r", "node": "coder", "tool_calls": [call | more], "at": at.format(number)})
    return turns


def test_a_repeated_call_is_shown_with_its_lines_times_and_answer(run, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(jsonl(git_status()))

    shown = run("scan", path).stdout

    assert f"halt  r  turn 5 in coder  {path}:6, 2026-01-31 10:00:02\n" in shown
    lines = "lines 2, 4, 6, 2026-01-31 10:00:00 to 10:00:02"
    assert f'      Bash: git status ({lines}) → "nothing to commit"\n' in shown


def test_logs_are_named_where_a_finding_spans_several(run, tmp_path: Path) -> None:
    events = git_status(at="2026-01-31T10:00:0{}Z")
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text(jsonl(events[2 * number : 2 * number + 2]))

    shown = run("scan", tmp_path).stdout

    assert "Bash: git status (0.jsonl line 2; 1.jsonl line 2; 2.jsonl line 2, " in shown


def test_outputs_errors_handovers_and_queries_are_quoted(run) -> None:
    error = [{"run_id": "e", "node": "tester", "errors": "ImportError: no module named x"} for _ in range(2)]
    query = [
        {"run_id": "q", "node": "researcher", "query": "Who invented sourdough?", "output": str(n)} for n in range(5)
    ]
    result = run("scan", "-", input=jsonl([*stuck(), *error]))
    asked = run("scan", "-", "--policy", "planner", input=jsonl(query))

    assert 'coder: "I will try again." (lines 1, 2, 3)' in result.stdout
    assert "tester: ImportError: no module named x (lines 5, 6)" in result.stdout
    assert 'researcher asked "Who invented sourdough?" (lines ' in asked.stdout


def test_secrets_in_arguments_and_answers_are_not_shown(run) -> None:
    events = git_status(args={"command": f"curl -H 'Authorization: Bearer {KEY}'"}, result=f"key={KEY}")

    shown = run("scan", "-", "--show", "3", "-v", input=jsonl(events)).stdout

    assert KEY[:20] not in shown
    assert "<redacted" in shown


def test_show_prints_the_turns_before_a_halt_and_those_after_it(run) -> None:
    other = honest(turns=1)
    result = run("scan", "-", "--show", "2", input=jsonl([*stuck(turns=3), *other, *stuck(turns=6)]))

    text = result.stdout
    assert text.index("    > turn 2, line 3  coder") > text.index("turn 1, line 2  coder")
    after = text[text.index("after the halt of stuck:") : text.index("HALTED")]
    assert [line.split()[1] for line in after.splitlines() if line.startswith("      turn")] == ["3,", "4,"]


def test_findings_come_in_log_order_and_the_summary_last(run) -> None:
    pairs = [event for number in range(4) for run_id in "ab" for event in stuck(run_id, turns=1)]
    lines = run("scan", "-", input=jsonl(pairs)).stdout.splitlines()
    heads = [line.split("  ")[:2] for line in lines if line and not line.startswith(" ")]
    findings = [["warn", "a"], ["warn", "b"], ["halt", "a"], ["halt", "b"]]
    assert heads[:-1] == [*findings, ["HALTED", "a"], ["HALTED", "b"]]


def test_json_is_the_same_as_its_format_and_goes_to_a_file(run, turns_file: Path, tmp_path: Path) -> None:
    printed = run("scan", turns_file, "--format", "jsonl").stdout
    target = tmp_path / "found.jsonl"

    result = run("scan", turns_file, "--json", "-o", target)

    assert (result.exit_code, result.stdout) == (1, "")
    assert target.read_text() == printed == run("scan", turns_file, "--json").stdout
    assert all(read_control(line) for line in printed.splitlines())


def test_quiet_is_the_summary_and_verbose_adds_the_evidence(run, turns_file: Path, tmp_path: Path) -> None:
    quiet = run("scan", turns_file, "-q")
    assert quiet.stdout.splitlines()[0].startswith("HALTED  stuck")
    assert len(quiet.stdout.splitlines()) == 2
    target = tmp_path / "report.txt"
    assert run("scan", turns_file, "-v", "-o", target).exit_code == 1
    assert "evidence: repeated_output, count 3" in target.read_text()
    assert "\x1b" not in target.read_text()


@pytest.mark.parametrize("options", [(), ("--show", "3", "-v")])
@pytest.mark.parametrize("columns", [60, 100])
def test_findings_fit_into_a_terminal_between_words(run, columns: int, options: tuple[str, ...]) -> None:
    shown = in_terminal("scan", SAMPLES, *options, columns=columns)

    ids = {control.run_id for control in map(read_control, run("scan", SAMPLES, "--json").stdout.splitlines())}
    words = " ".join(shown.lines).split()
    assert ids <= set(words)
    assert words == run("scan", SAMPLES, *options).stdout.split()
    assert all(len(line) <= columns or " " not in line.strip() for line in shown.lines)


def test_several_processes_print_the_same(run, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text(jsonl([*stuck(f"r{number}"), *honest(f"h{number}")]))

    one, several = (run("scan", tmp_path, "--show", "1", "-j", jobs) for jobs in (1, 3))

    assert several.stdout == one.stdout
    assert several.exit_code == one.exit_code == 1


def test_the_logs_of_the_last_days_are_found_where_tools_keep_them(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("streamproc.importers.FORMATS", (TOY._replace(places=(".toy/*/logs",)),))
    result = run("scan", "--recent", "--json")
    assert result.exit_code == 2
    assert f"no logs of the last 7 days; looked at {tmp_path}/.toy/*/logs" in result.stderr

    logs = tmp_path / ".toy" / "project" / "logs"
    logs.mkdir(parents=True)
    for name, days in (("new", 2), ("old", 12)):
        (logs / f"{name}.jsonl").write_text(jsonl(stuck(name)))
        os.utime(logs / f"{name}.jsonl", (time.time() - days * 86_400,) * 2)

    assert "1 run, 4 turns" in run("scan", "--recent").stdout
    assert "1 run, 4 turns" in run("scan", "--recent", "11").stdout
    assert "2 runs, 8 turns" in run("scan", "--recent", "13").stdout


def test_memory_for_turns_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(json.dumps({"run_id": "r", "node": "n", "output": "x" * 10_000}))
    [(event, raw, number, unit)] = Source(path).read()
    packed = packed_turn(event, raw, number, unit)
    assert len(packed) < 600
    log = TurnLog()
    for run in range(400):
        for index in range(300):
            log.add(f"r{run}", index, 0, packed)
    assert len(log.turns("r399", 0, 300)) == TURNS_MAX
    assert log.turns("r0", 0, 300) == {}
    assert sum(len(log.turns(f"r{run}", 0, 300)) for run in range(400)) <= 32_768
