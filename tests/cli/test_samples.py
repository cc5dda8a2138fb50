"""The sample trajectories are readable, described, attributed and small."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files

from streamproc.replay.source import Source
from streamproc.samples import outcomes, trajectory_file


def test_every_line_is_a_turn_and_every_run_has_an_outcome() -> None:
    with trajectory_file() as path:
        counted = Counter(line.raw.run_id for line in Source(path))

    assert counted == {run_id: outcome.turns for run_id, outcome in outcomes().items()}


def test_every_source_is_attributed() -> None:
    text = (files("streamproc.samples") / "ATTRIBUTION.md").read_text("utf-8")

    for source in ("NJU-LINK/CodeTracer", "ag2ai/Agents_Failure_Attribution", "sierra-research/tau-bench", "MIT"):
        assert source in text
    assert Counter(outcome.source for outcome in outcomes().values()) == {
        "codetracer_kimi": 12, "codetracer_claude_code": 12, "whowhen": 8, "taubench_airline_gpt4o": 8,
    }  # fmt: skip


def test_they_are_less_than_a_megabyte() -> None:
    with trajectory_file() as path:
        assert path.stat().st_size < 1_000_000
