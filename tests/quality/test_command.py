"""`make quality` prints and writes its table; its exit code shows whether the targets were met."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality import __main__ as command
from benchmarks.quality.labels import RawEvent
from benchmarks.quality.real import runs_in, sample_runs
from benchmarks.quality.table import HEADINGS


@pytest.fixture
def quality(monkeypatch, tmp_path):
    """Run the command over a few kinds, with a directory of two real runs."""
    data(
        tmp_path / "data", {"a": [{"output": "x"}, {"output": "y"}], "b": [{"output": "z"}] * 3}, {"a": True, "b": 0.0}
    )

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["quality", "--seeds", "1", "--data", str(tmp_path / "data"), *arguments])
        return command.main()

    return run


def data(directory: Path, runs: dict[str, list[RawEvent]], outcomes: dict[str, Any]) -> None:
    directory.mkdir()
    lines = [json.dumps({"run_id": run_id, "node": "n", **event}) for run_id in runs for event in runs[run_id]]
    (directory / "some.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    known = {run_id: {"outcome": outcome} for run_id, outcome in outcomes.items()}
    (directory / "some.outcomes.json").write_text(json.dumps(known))


def test_it_prints_one_table_and_writes_it_as_json(quality, tmp_path, capsys) -> None:
    quality("--only", "repeated_call.in_a_row", "--json", str(tmp_path / "q.json"))

    printed = capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads((tmp_path / "q.json").read_text())}
    assert printed.count("| detector") == 1
    assert all(heading in printed for heading in HEADINGS)
    assert rows["LOOP003 repeated_call"]["recall"] == 1.0
    assert rows["LOOP001 repeated_output"]["recall"] is None
    assert rows["*at most 25 steps*"]["simple_rule"] is True


def test_it_prints_the_missed_targets(quality, tmp_path, capsys) -> None:
    (tmp_path / "policy.yaml").write_text("detectors: {LOOP003: false}")

    code = quality("--only", "repeated_call.in_a_row", "--policy", str(tmp_path / "policy.yaml"), "--faults")

    reported = capsys.readouterr()
    assert code == command.EXIT_MISSED
    assert "missed: LOOP003 repeated_call: found 0.000 of planted loops" in reported.err
    assert "missed       repeated_call.in_a_row/0: LOOP003 planted at" in reported.out


def test_it_exits_0_if_the_targets_are_met(quality) -> None:
    assert quality("--only", "repeated_call.in_a_row") == command.EXIT_OK


@pytest.mark.parametrize(
    ("arguments", "what"),
    [(("--policy", "nowhere.yaml"), "cannot be read"), (("--dump", "nothing/1"), "is not KIND/SEED")],
)
def test_it_names_unusable_arguments(quality, capsys, arguments: tuple[str, ...], what: str) -> None:
    assert quality(*arguments) == command.EXIT_UNUSABLE
    assert what in capsys.readouterr().err


def test_a_synthetic_run_can_be_printed(quality, capsys) -> None:
    assert quality("--dump", "repeated_call.in_a_row/0") == command.EXIT_OK

    reported = capsys.readouterr()
    assert {json.loads(line)["run_id"] for line in reported.out.splitlines()} == {"repeated_call.in_a_row/0"}
    assert "LOOP003" in reported.err


def test_only_runs_with_a_full_score_are_solved(tmp_path) -> None:
    outcomes = {"a": True, "b": 1.0, "c": False, "d": 0.5, "e": None}
    data(tmp_path / "data", {run_id: [{"output": run_id}] for run_id in outcomes}, outcomes)

    assert [run.run_id for run in runs_in(tmp_path / "data") if run.solved] == ["a", "b"]


def test_a_run_without_an_outcome_is_refused(tmp_path) -> None:
    data(tmp_path / "data", {"a": [{}]}, {})

    with pytest.raises(ValueError, match="has no outcome for a"):
        runs_in(tmp_path / "data")


def test_a_directory_without_runs_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"has no \*\.jsonl"):
        runs_in(tmp_path)


def test_the_samples_are_real_runs_of_both_kinds() -> None:
    assert {run.solved for run in sample_runs()} == {True, False}
