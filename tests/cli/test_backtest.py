"""``streamproc backtest`` over files: the table, JSON, the page, sweeps, and what `scan` says of the same policies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamproc.model.controls import read_control
from streamproc.samples import outcomes, trajectory_file
from tests.cli.conftest import honest, jsonl, stuck


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """The samples of the package, with outcomes."""
    folder = tmp_path / "logs"
    folder.mkdir()
    with trajectory_file() as path:
        (folder / "runs.jsonl.gz").write_bytes(path.read_bytes())
    (folder / "runs.outcomes.json").write_text(
        json.dumps({run_id: {"outcome": one.solved} for run_id, one in outcomes().items()})
    )
    return folder


def rows(result) -> list[dict]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_lines_of_a_sweep_are_what_scan_says_under_each_policy(run, samples: Path, tmp_path: Path) -> None:
    log = samples / "runs.jsonl.gz"
    found = rows(run("backtest", log, "--set", "LOOP003.halt=2..5", "--json"))

    assert [row["policy"]["name"] for row in found] == [
        "standard",
        *(f"standard LOOP003.halt={n}" for n in range(2, 6)),
    ]
    for row, halt in ((found[1], 2), (found[2], 3), (found[4], 5)):
        policy = tmp_path / f"{halt}.yaml"
        policy.write_text(f"name: by hand\ndetectors: {{LOOP003: {{halt: {halt}}}}}\n")
        scanned = run("scan", log, "--policy", policy, "--format", "jsonl").stdout.splitlines()
        first: dict[str, tuple[str, int | None]] = {}
        for control in map(read_control, scanned):
            if control.halts and control.trigger is not None:
                first.setdefault(control.run_id, (control.code, control.trigger.turn))
        by_hand = {one["run_id"]: (one["code"], one["turn"]) for one in row["halts"] if one["change"] != "never"}
        assert by_hand == first
        assert row["halted"] == len(first) > 5
    report = run("scan", log).stdout
    assert f"{found[0]['turns_saved']} turns came after a halt" in report
    assert found[2]["turns_saved"] == found[0]["turns_saved"]  # 3 is the default
    assert (found[1]["earlier"] > 0, found[4]["later"] > 0, found[2]["same"]) == (True, True, found[0]["halted"])


def test_two_policies_are_compared_run_by_run(run, turns_file: Path, tmp_path: Path) -> None:
    policy = tmp_path / "patient.yaml"
    policy.write_text("name: patient\ndetectors: {LOOP001: {halt: 4}}\n")

    result = run("backtest", turns_file, "--policy", "standard", "--policy", policy)

    assert result.exit_code == 0
    assert "2 runs, 8 turns; no outcomes" in result.stdout
    assert "  later    stuck  LOOP001 at turn 3, first policy: LOOP001 at turn 2\n" in result.stdout


def test_outcomes_and_feedback_in_the_log_make_false_halts(run, tmp_path: Path) -> None:
    said = {"type": "feedback", "run_id": "judged", "verdict": "false-alarm", "by": "ada"}
    log = tmp_path / "runs.jsonl"
    log.write_text(jsonl([*stuck("solved"), *stuck("judged"), *stuck("failed"), *honest(), said]))
    (tmp_path / "runs.outcomes.json").write_text(
        '{"solved": {"outcome": 1.0}, "failed": {"outcome": "failed", "stuck": true}}'
    )

    [row] = rows(run("backtest", log, "--json"))
    [unlabelled] = rows(run("backtest", log, "--outcomes", "-", "--json"))

    assert (row["false_halts"], row["right_halts"], row["healthy_runs"]) == (["judged", "solved"], ["failed"], 2)
    assert (unlabelled["false_halts"], unlabelled["right_halts"]) == (["judged"], [])


def test_a_part_of_the_runs_can_be_chosen(run, tmp_path: Path) -> None:
    log = tmp_path / "runs.jsonl"
    events = [event | {"workflow": name} for name in ("nightly", "hourly") for event in stuck(name)]
    log.write_text(jsonl(events))

    [row] = rows(run("backtest", log, "--workflow", "nightly", "--json"))
    nothing = run("backtest", log, "--run", "unknown")

    assert (row["runs"], [one["run_id"] for one in row["halts"]]) == (1, ["nightly"])
    assert nothing.exit_code == 2
    assert "no run of the log is in the chosen part" in nothing.stderr


def test_the_page_is_one_file_that_asks_for_nothing_and_trusts_no_text(run, tmp_path: Path) -> None:
    log = tmp_path / "runs.jsonl"
    log.write_text(jsonl([*stuck("<script>alert(1)</script>"), *honest()]))
    (tmp_path / "runs.outcomes.json").write_text('{"honest": {"outcome": true}}')
    pages = []
    for name in ("a.html", "b.html"):
        result = run("backtest", log, "--set", "LOOP001.halt=3,4", "--html", tmp_path / name, "-q")
        assert (result.exit_code, result.stdout) == (0, "")
        pages.append((tmp_path / name).read_text())

    assert pages[0] == pages[1]
    assert "<script>" not in pages[0]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[0]
    assert "<svg" in pages[0]
    assert not [part for part in ("http://", "https://", "src=", "url(", "@import") if part in pages[0]]


@pytest.mark.parametrize(("arguments", "mistake"), [
    (["--set", "LOOP003.halt=1..15", "--set", "LOOP002.halt=1..15"], "225 combinations, more than 200"),
    (["--set", "LOOP003.hold=3"], "unknown limit"), (["--policy", "nowhere.yaml"], "cannot be read"),
    (["--outcomes", "nowhere.json"], "nowhere.json: No such file"), (["--log-format", "odd"], "no format is named odd"),
])  # fmt: skip
def test_what_cannot_be_compared_is_exit_2(run, turns_file: Path, arguments: list[str], mistake: str) -> None:
    result = run("backtest", turns_file, *arguments)

    assert result.exit_code == 2
    assert mistake in result.stderr


def test_a_log_has_to_be_chosen(run) -> None:
    result = run("backtest", "--policy", "standard")

    assert result.exit_code == 2
    assert "choose a log" in result.stderr


def test_the_result_goes_to_a_file(run, turns_file: Path, tmp_path: Path) -> None:
    result = run("backtest", turns_file, "--json", "-o", tmp_path / "rows.jsonl")

    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads((tmp_path / "rows.jsonl").read_text())["halted"] == 1


def test_breakers_of_providers_are_compared(run, tmp_path: Path) -> None:
    log, policy = tmp_path / "storm.jsonl", tmp_path / "off.yaml"
    log.write_text(jsonl([
        {"type": "model.called", "run_id": f"r{number % 4}", "provider": "anthropic", "model": "m", "status": 429,
         "at": f"2026-01-01T10:{number // 60:02}:{number % 60:02}Z"}
        for number in range(120)
    ] + [{"run_id": "r1", "node": "a", "output": "done"}]))  # fmt: skip
    policy.write_text("name: without\nproviders: {enabled: false}\n")

    policies = ("--policy", "standard", "--policy", policy)
    text = run("backtest", log, *policies).stdout
    ours, off = (row["providers"] for row in rows(run("backtest", log, *policies, "--json")))

    assert ours["opened"] == ours["openings"]["anthropic/m"] >= 1
    assert ours["failed_calls"] > 50
    assert off == {"opened": 0, "held_seconds": 0.0, "failed_calls": 0, "answered_calls": 0, "openings": {}}
    assert f"standard: opened {ours['opened']} times, for" in text
    assert "without: opened 0 times, for 0.0 s; 0 calls that failed, 0 that were answered" in text


def test_a_log_without_failed_calls_says_nothing_of_breakers(run, turns_file: Path) -> None:
    assert "breakers" not in run("backtest", turns_file, "--policy", "standard").stdout
