"""A scan goes on after a bad file: the file is skipped, named and counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import jsonl, stuck

CLAUDE = {"type": "assistant", "sessionId": "s", "uuid": "u", "message": {"content": []}}
GOOD = {"run_id": "good", "node": "coder", "output": "Done."}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory with a log of a stuck run, and one whose second line is no JSON."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a_bad.jsonl").write_text(jsonl([GOOD]) + "no JSON\n" + jsonl([GOOD | {"run_id": "never read"}]))
    (folder / "b_stuck.jsonl").write_text(jsonl(stuck()))
    return folder


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bad_line_of_a_log_in_a_directory_skips_the_rest_of_that_log_only(run, logs: Path, jobs: int) -> None:
    result = run("scan", logs, "-j", jobs)

    assert result.exit_code == 1
    assert "2 runs, " in result.stdout
    assert "1 file skipped, or read in part." in result.stdout
    assert f"read in part: {logs / 'a_bad.jsonl'}:2: " in " ".join(result.stderr.split())


def test_skipped_files_do_not_change_the_exit_code_unless_they_shall(run, logs: Path) -> None:
    (logs / "b_stuck.jsonl").write_text(jsonl([GOOD | {"run_id": "better"}]))

    codes = [run("scan", logs, *options).exit_code for options in ((), ("--fail-on-skipped",), ("--lenient",))]

    assert codes == [0, 2, 0]


def test_a_bad_file_among_several_named_ones_is_exit_code_2_after_the_findings(run, logs: Path, tmp_path: Path) -> None:
    result = run("scan", logs / "a_bad.jsonl", tmp_path / "missing.jsonl", logs / "b_stuck.jsonl")

    assert result.exit_code == 2
    assert "HALTED" in result.stdout
    assert "2 files skipped" in result.stdout
    assert "missing.jsonl (No such file or directory)" in result.stderr


def test_a_file_that_is_named_alone_ends_the_scan_at_its_first_bad_line(run, logs: Path) -> None:
    result = run("scan", logs / "a_bad.jsonl")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "a_bad.jsonl:2: " in result.stderr


def test_nothing_that_can_be_read_is_exit_code_2(run, logs: Path) -> None:
    for log in logs.iterdir():
        log.write_text("no JSON\n")

    result = run("scan", logs)

    assert result.exit_code == 2
    assert "a_bad.jsonl" in result.stderr


def test_a_bad_file_does_not_end_the_scan_of_recent_logs(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / ".claude/projects/-home-me"
    project.mkdir(parents=True)
    answer = {"role": "assistant", "id": "msg", "content": [{"type": "text", "text": "Done."}]}
    record = {"type": "assistant", "sessionId": "one", "uuid": "u1", "message": answer}
    (project / "a.jsonl").write_text(json.dumps(record) + "\nno JSON\n{}\n")
    (project / "b.jsonl").write_bytes(bytes(range(256)))
    (project / "c.jsonl").write_text(json.dumps(record | {"sessionId": "two", "uuid": "u2"}) + "\n")

    result = run("scan", "--recent")

    assert result.exit_code == 0
    assert "2 runs, 2 turns" in result.stdout
    assert "2 files skipped" in result.stdout
    assert run("scan", "--recent", "--exclude", "[ab].jsonl", "--fail-on-skipped").exit_code == 0


@pytest.mark.parametrize("pattern", ["a_*", "old", "old/", "*/old/*"])
def test_what_is_excluded_is_not_read(run, logs: Path, pattern: str) -> None:
    (logs / "old").mkdir()
    (logs / "a_bad.jsonl").rename(logs / "old/a_bad.jsonl")

    result = run("scan", logs, "--exclude", pattern, "--fail-on-skipped")

    assert result.exit_code == 1
    assert "1 run, " in result.stdout


def test_a_file_that_is_named_is_not_excluded(run, logs: Path) -> None:
    assert run("scan", logs / "b_stuck.jsonl", "--exclude", "b_*").exit_code == 1


def test_the_report_of_a_scan_goes_on_after_a_bad_file(run, logs: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    assert run("scan", logs, "--html", page).exit_code == 1
    assert "b_stuck.jsonl" in page.read_text()


def test_records_that_share_a_line_are_all_read(run, tmp_path: Path) -> None:
    joined = tmp_path / "joined.jsonl"
    joined.write_text(jsonl(stuck()).replace("}\n{", "}{", 1))

    assert "1 run, 4 turns: 1 halted" in run("scan", joined).stdout


def test_a_line_with_a_second_record_that_is_cut_off_is_refused_with_its_place(run, tmp_path: Path) -> None:
    joined = tmp_path / "joined.jsonl"
    joined.write_text(jsonl([GOOD]).strip() + '{"run_id": "x", "no\n' + jsonl([GOOD]))

    assert "joined.jsonl:1: " in run("scan", joined).stderr


def test_a_document_with_a_run_id_is_no_raw_turn(run, tmp_path: Path) -> None:
    log = tmp_path / "a.json"
    log.write_text('{\n  "run_id": "a",\n  "results": []\n}\n')
    assert "it is a JSON document of no format that is known (write a raw turn on one line" in run("scan", log).stderr


@pytest.mark.parametrize(("content", "options", "message"), [
    ({"runId": "a", "node": "x"}, (), "it has runId in place of run_id (name it run_id; a turn needs run_id and node)"),
    ({"Run-ID": "a"}, (), "it has Run-ID in place of run_id"),
    (CLAUDE, ("--from", "otlp"), "it is no log of otlp, but of claude-code (leave --from out)"),
    (CLAUDE, ("--from", "raw"), "it is no log of raw, but of claude-code (leave --from out)"),
])  # fmt: skip
def test_a_log_that_is_not_what_it_should_be_says_what_it_is(
    run, tmp_path: Path, content: dict[str, str], options: tuple[str, ...], message: str
) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(jsonl([content]))

    result = run("scan", log, *options)

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_pattern_that_excludes_every_log_is_named(run, logs: Path) -> None:
    result = run("scan", logs, "--exclude", "*")

    assert result.exit_code == 2
    assert "--exclude: it matches every log" in result.stderr
