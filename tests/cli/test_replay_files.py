"""``streamproc replay`` over files: the decisions of a scan, compared with control events in a file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from streamproc import Monitor
from tests.cli.conftest import honest, jsonl, stuck


@pytest.fixture
def published(run, turns_file: Path, tmp_path: Path) -> Path:
    """The control events of a scan."""
    path = tmp_path / "controls.jsonl"
    path.write_text(run("scan", turns_file, "--format", "jsonl").stdout)
    return path


def test_a_replay_of_files_is_a_scan(run, turns_file: Path) -> None:
    scanned = run("scan", turns_file, "--format", "jsonl").stdout

    assert run("replay", turns_file, "--json").stdout == scanned
    assert run("replay", turns_file, "--format", "jsonl").stdout == scanned
    assert run("replay", turns_file, "--run", "honest", "--json").stdout == ""


def test_files_are_compared_with_control_events_in_a_file(run, turns_file: Path, published: Path) -> None:
    same = run("replay", turns_file, "--against", published)
    quiet = run("replay", turns_file, "--against", published, "-q")

    assert (same.exit_code, same.stdout) == (0, "2 identical; 0 missing; 0 extra\n")
    assert (quiet.exit_code, quiet.stdout) == (0, "")


def test_another_policy_is_exit_1_and_named(run, turns_file: Path, published: Path, tmp_path: Path) -> None:
    policy = tmp_path / "patient.yaml"
    policy.write_text("name: patient\ndetectors: {LOOP001: {halt: 4}}\n")

    result = run("replay", turns_file, "--against", published, "--policy", policy)

    assert result.exit_code == 1
    assert "later   stuck  halt LOOP001 at turn 3, published at turn 2\n" in result.stdout
    assert "LOOP001.halt 3 there and 4 here\n" in result.stdout
    assert result.stdout.endswith(
        "0 identical; 1 the same under another policy; 1 missing; 0 extra; 1 later\n1 run differs: stuck\n"
    )


def test_control_events_of_runs_that_the_files_do_not_have_are_outside(run, published: Path, tmp_path: Path) -> None:
    log = tmp_path / "others.jsonl"
    log.write_text(jsonl(honest("other")))

    result = run("replay", log, "--against", published)

    assert (result.exit_code, result.stdout) == (0, "0 identical; 0 missing; 0 extra\n")
    assert "ignored 2 control events for turns outside the replayed part of the log" in result.stderr


def test_times_select_decisions(run, tmp_path: Path) -> None:
    log = tmp_path / "timed.jsonl"
    log.write_text(jsonl(event | {"at": 1_769_860_800_000 + n * 1000} for n, event in enumerate(stuck())))

    late = run("replay", log, "--since", "2026-01-31T12:00:02Z", "--json").stdout.splitlines()
    early = run("replay", log, "--until", "2026-01-31T12:00:01Z", "--json").stdout.splitlines()

    assert [json.loads(line)["severity"] for line in (*late, *early)] == ["halt", "warn"]


def test_the_names_of_earlier_versions_are_taken_with_a_note(run, tmp_path: Path) -> None:
    log = tmp_path / "timed.jsonl"
    log.write_text(jsonl(event | {"at": 1_769_860_800_000 + n * 1000} for n, event in enumerate(stuck())))
    new = ("--since", "2026-01-31T12:00:01Z", "--until", "2026-01-31T12:00:01Z", "--from", "raw")
    old = ("--from", "2026-01-31T12:00:01Z", "--to=2026-01-31T12:00:01Z", "--log-format", "raw")

    now, before = (run("replay", log, "--json", *names) for names in (new, old))

    assert len(now.stdout.splitlines()) == 1
    assert (before.stdout, before.exit_code) == (now.stdout, 0)
    notes = [line for line in before.stderr.splitlines() if "since version" in line]
    assert [note.partition(" since")[0] for note in notes] == [
        "--from is called --since", "--to is called --until", "--log-format is called --from",
    ]  # fmt: skip
    assert "since version" not in now.stderr


def test_an_age_selects_by_the_time_of_now(run, tmp_path: Path) -> None:
    log = tmp_path / "recent.jsonl"
    now_ms = int(time.time() * 1000)
    log.write_text(jsonl(event | {"at": now_ms - 3_600_000 + n * 1000} for n, event in enumerate(stuck())))

    assert len(run("replay", log, "--since", "2h", "--json").stdout.splitlines()) == 2
    assert run("replay", log, "--since", "30m", "--json").stdout == ""


@pytest.mark.parametrize(("arguments", "mistake"), [
    ([], "choose what to replay"), (["FILE", "--diff"], "--against CONTROLS.jsonl"),
    (["FILE", "--offsets", "0:1-2"], "files have none"),
    (["FILE", "--run", "unknown"], "run unknown is not in these files"),
    (["FILE", "--against", "FILE"], "no control event"), (["nowhere.jsonl"], "nowhere.jsonl: No such file"),
    (["FILE", "--from", "odd"], "no format is named odd (choose from raw, "),
    (["FILE", "--from", "yesterday"], "no format is named yesterday"),
    (["FILE", "--against", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
])  # fmt: skip
def test_what_cannot_be_replayed_is_exit_2(run, turns_file: Path, arguments: list[str], mistake: str) -> None:
    result = run("replay", *(str(turns_file) if one == "FILE" else one for one in arguments))

    assert result.exit_code == 2
    assert mistake in result.stderr


@pytest.mark.parametrize("name", ["replay", "backtest"])
def test_logs_of_other_tools_are_read_by_content_or_in_the_format_that_is_named(run, tmp_path: Path, name: str) -> None:
    row = {"role": "assistant", "content": "I will try again."}
    rows = [row, *({"role": "tool", "tool_call_id": "x", "content": "y"} for _ in range(2)), row, row]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    found = run(name, tmp_path, "--json")
    named = run(name, tmp_path, "--from", "messages", "--json")
    wrong = run(name, tmp_path, "--from", "otlp", "--json")
    missing = run(name, "--all", "--from", "messages")

    assert (found.exit_code, named.exit_code, named.stdout) == (0, 0, found.stdout)
    assert "read as: messages (1 session, 3 turns" in named.stderr
    assert (wrong.exit_code, "it is no log of otlp, but of messages" in wrong.stderr) == (2, True)
    assert (missing.exit_code, "--from is the format of files" in missing.stderr) == (2, True)


def test_calls_of_models_open_the_breaker_that_opens_in_a_monitor(run, tmp_path: Path) -> None:
    calls = [
        {
            "type": "model.called",
            "run_id": f"r{second % 4}",
            "model": "m",
            "status": 429,
            "at": f"2026-01-01T10:00:{second:02}Z",
        }
        for second in range(20)
    ]
    log, controls = tmp_path / "calls.jsonl", tmp_path / "controls.jsonl"
    log.write_text(jsonl(calls))
    monitor = Monitor()
    states = [control for call in calls for control in monitor.feed(call)]
    controls.write_text("".join(f"{state.model_dump_json(exclude_none=True)}\n" for state in states))

    assert [state.severity for state in states] == ["info", "warn"]  # no retries any more, then no calls
    shown = run("replay", log)
    assert "PROVIDER001  m is open: 20 of 20 calls of 4 runs failed in 60 s, the last with 429.\n" in shown.stdout
    compared = run("replay", log, "--against", controls)
    assert (compared.exit_code, compared.stdout) == (0, "2 identical; 0 missing; 0 extra\n"), compared.output
