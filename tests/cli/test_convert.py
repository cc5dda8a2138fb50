"""`streamproc convert`: what it writes scans to the same decisions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from tests.cli.conftest import ROOT, jsonl, stuck

SAMPLES = ROOT / "streamproc" / "samples" / "trajectories.jsonl.gz"


@pytest.mark.parametrize("name", ["turns.jsonl", "turns.jsonl.gz", "turns.jsonl.zst"])
def test_the_converted_log_scans_to_the_same_decisions(run, tmp_path: Path, name: str) -> None:
    target = tmp_path / name

    result = run("convert", SAMPLES, "-o", target)

    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr == f"{target}: 1215 events of 40 runs\n"
    opened = {"gz": gzip.decompress, "zst": lambda raw: zstandard.decompress(raw, 1 << 26)}
    raw = opened.get(name.rpartition(".")[2], bytes)(target.read_bytes())
    assert len(raw.splitlines()) == 1215
    assert run("scan", target, "--json").stdout == run("scan", SAMPLES, "--json").stdout


def test_several_logs_become_one_with_the_same_event_ids(run, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for path in paths:
        path.write_text(jsonl(stuck(turns=1)))

    written = run("convert", *paths)

    assert written.exit_code == 0
    assert len({json.loads(line)["event_id"] for line in written.stdout.splitlines()}) == 3
    assert run("scan", "-", "--json", input=written.stdout).stdout == run("scan", *paths, "--json").stdout


def test_nothing_to_convert_and_nowhere_to_write_are_errors(run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert run("convert", empty).exit_code == 2

    result = run("convert", SAMPLES, "-o", tmp_path / "no" / "turns.jsonl")

    assert result.exit_code == 2
    assert f"{tmp_path / 'no' / 'turns.jsonl'}: No such file or directory" in result.stderr
