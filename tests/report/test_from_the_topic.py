"""Reports of the turns topic, on a real broker: the same facts as from the file that was published."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamproc.cli import build
from tests.report.runs import looping, written


def invoke(*arguments: str) -> Any:
    result = CliRunner().invoke(build(), list(arguments))
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("content", [True, False], ids=["with content", "fingerprints only"])
def test_a_run_of_the_topic_is_reported_as_its_file(
    brokers: str, nobodys_settings: None, tmp_path: Path, content: bool
) -> None:
    path = str(written(tmp_path, looping() + looping("other")))
    options = ("--brokers", brokers, "--topic-prefix", f"report-{uuid.uuid4().hex[:8]}")
    invoke("topics", "apply", *options)
    invoke("publish", path, *options, *(["--include-content"] if content else []))

    told = json.loads(invoke("report", "loop", *options, "-o", "-", "--format", "json").stdout)
    read = json.loads(invoke("report", "loop", "--log", path, "-o", "-", "--format", "json").stdout)

    for field in ("sentence", "code", "turns_total", "stretches", "decision_id", "budgets"):
        assert told[field] == read[field]
    for field in ("before", "during", "after"):  # but for the time: that of the topic is the broker's
        assert told[field] | {"ms": 0} == read[field] | {"ms": 0}
    assert [one["match"] for one in told["occurrences"]] == ["first", "same", "same"]
    assert told["content"] is content
    assert (told["occurrences"][0]["args"] == "git status") is content
    assert bool(told["notes"]) is not content
    assert "partition" in told["log"]
    unknown = CliRunner().invoke(build(), ["report", "lop", *options])
    assert unknown.exit_code == 2
    assert "it has 2 runs, such as loop" in unknown.stderr
    assert any("streamproc replay --run loop" in one for one in told["reproduce"])
