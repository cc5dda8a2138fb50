"""`streamproc report` on logs: what it writes, and what it says when it cannot."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import ROOT, honest, jsonl, stuck

SAMPLES = ROOT / "streamproc" / "samples" / "trajectories.jsonl.gz"


def test_a_run_of_a_log_becomes_a_page(run, turns_file: Path) -> None:
    result = run("report", "stuck", "--log", turns_file)

    assert result.exit_code == 0
    assert result.stdout == ""
    assert "wrote run.html" in result.stderr
    page = Path("run.html").read_text()
    assert "coder repeated the same output 3 times in a row" in page
    assert "streamproc report stuck --log" in page


def test_all_runs_of_a_log_become_one_page(run, turns_file: Path) -> None:
    result = run("report", "--log", turns_file, "-q")

    assert result.exit_code == 0
    assert result.stderr == ""
    assert "1 of 2 runs was halted" in Path("runs.html").read_text()


def test_several_logs_are_one(run, tmp_path: Path) -> None:
    for number, events in enumerate((stuck(turns=2), stuck(turns=2), honest())):
        (tmp_path / f"{number}.jsonl").write_text(jsonl(events))
    result = run("report", "stuck", *(part for n in range(3) for part in ("--log", tmp_path / f"{n}.jsonl")), "-o", "-",
                 "--format", "json")  # fmt: skip

    report = json.loads(result.stdout)
    assert report["state"] == "halted"
    assert report["turns_total"] == 4
    assert report["log"].endswith(f"{tmp_path / '1.jsonl'}, line 2")


def test_it_can_be_written_to_standard_output(run, turns_file: Path) -> None:
    assert run("report", "stuck", "--log", turns_file, "-o", "-", "--format", "md").stdout.startswith(
        "# HALTED: `stuck`"
    )
    assert run("report", "stuck", "--log", "-", "-o", "-", input=jsonl(stuck())).stdout.startswith("<!DOCTYPE html>")


def test_a_dated_report_differs_from_an_undated_one(run, turns_file: Path) -> None:
    plain = run("report", "stuck", "--log", turns_file, "-o", "-").stdout

    assert run("report", "stuck", "--log", turns_file, "-o", "-").stdout == plain
    assert "Made at" in run("report", "stuck", "--log", turns_file, "-o", "-", "--dated").stdout


def test_an_unknown_run_is_named_with_those_that_are_close(run) -> None:
    result = run("report", "kimi_k2.5/fix-git__cCozJV", "--log", SAMPLES)

    assert result.exit_code == 2
    assert "40 runs, such as kimi_k2.5/fix-git__cCozJVA" in result.stderr
    assert not Path("run.html").exists()


def test_a_log_that_is_not_there_and_one_without_turns(run, tmp_path: Path) -> None:
    missing = run("report", "--log", tmp_path / "none.jsonl")
    assert missing.exit_code == 2
    assert "none.jsonl" in missing.stderr

    (tmp_path / "empty.jsonl").write_text("")
    empty = run("report", "--log", tmp_path / "empty.jsonl")
    assert empty.exit_code == 2
    assert "empty.jsonl" in empty.stderr


def test_a_run_that_only_commands_name_is_unknown_and_the_others_are_reported(run, tmp_path: Path) -> None:
    log = tmp_path / "commands.jsonl"
    commands = [
        {"type": "halt.acknowledged", "run_id": "typo-1", "by": "ada"},
        {"type": "operator.stop", "run_id": "typo-2", "by": "ada", "reason": "wrong branch"},
    ]
    log.write_text(jsonl(commands + stuck()))

    for name in ("typo-1", "typo-2"):
        result = run("report", name, "--log", log)
        assert result.exit_code == 2
        assert f"error: run {name} is unknown: only commands name it, and it has no turn in {log}" in result.stderr
    everything = run("report", "--log", log, "-o", "-", "--format", "md")
    assert everything.exit_code == 0
    assert "HALTED: `typo-2`" in everything.stdout


def test_a_report_names_the_terminal_status_and_the_stop_reason(run, turns_file: Path) -> None:
    page = run("report", "stuck", "--log", turns_file, "-o", "-").stdout
    ticket = run("report", "stuck", "--log", turns_file, "-o", "-", "--format", "md").stdout

    assert "It ends as <code>aborted_stuck</code>, stop reason <code>repeated_output</code>." in page
    assert "- Ends as: `aborted_stuck`, stop reason `repeated_output`" in ticket
