"""`--json` and `--quiet`: records in the exported shapes, or nothing but the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import Result

from streamproc.model.printed import PRINTED
from tests.cli.conftest import jsonl, stuck

GRAPH = {"nodes": ["plan", "code"], "edges": [["plan", "code"], ["code", "plan"]]}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("turns.jsonl").write_text(jsonl(stuck()))
    Path("unsafe.json").write_text(json.dumps(GRAPH))
    Path("safe.json").write_text(json.dumps(GRAPH | {"nodes": ["plan", "code", "end"], "edges": [
        *GRAPH["edges"], ["code", "end"]]}))  # fmt: skip


@pytest.mark.parametrize(("command", "kind", "code"), [
    ("explain", "detector-summary", 0), ("explain LOOP001", "detector-summary", 0),
    ("explain FLEET001", "detector-summary", 0), ("graph check safe.json", "graph-cycle", 0),
    ("graph check unsafe.json", "graph-cycle", 1), ("baseline turns.jsonl", "workflow-baseline", 0),
    ("topics acls --role publisher", "kafka-right", 0), ("doctor --brokers 127.0.0.1:1", "doctor-check", 1),
])  # fmt: skip
def test_records_have_the_exported_shape_and_quiet_prints_none(
    run: Callable[..., Result], command: str, kind: str, code: int
) -> None:
    printed, silent = run(*command.split(), "--json"), run(*command.split(), "--quiet")

    rows = [msgspec.json.decode(row, type=PRINTED[kind]) for row in printed.stdout.splitlines()]
    assert rows
    assert (printed.exit_code, silent.exit_code, silent.stdout) == (code, code, "")


def test_quiet_leaves_notes_out_and_keeps_errors(run: Callable[..., Result]) -> None:
    assert run("stats", "turns.jsonl", "--quiet").stderr == ""
    failed = run("stats", "nowhere.jsonl", "--quiet")
    assert (failed.exit_code, "nowhere.jsonl: No such file" in failed.stderr) == (2, True)
    assert "turns" in run("stats", "turns.jsonl").stdout  # and the next command in this process prints again


def test_a_policy_and_a_report_are_printed_as_json(run: Callable[..., Result]) -> None:
    policy = json.loads(run("policy", "show", "--json").stdout)
    report = json.loads(run("report", "stuck", "--log", "turns.jsonl", "--json").stdout)

    assert policy["detectors"]["LOOP001"]
    assert (report["run_id"], report["terminal_status"]) == ("stuck", "aborted_stuck")
    assert not Path("run.json").exists()


def test_a_policy_that_is_named_twice_is_checked_once(run: Callable[..., Result]) -> None:
    Path("wrong.yaml").write_text("budgetz: {}")
    assert run("policy", "check", "wrong.yaml", "wrong.yaml").stderr.count("unknown setting") == 1
