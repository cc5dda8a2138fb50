"""A pydantic-ai agent that its own instrumentation traces, by a collector's file: `streamproc scan FILE`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamproc.cli import build
from streamproc.importers.otlp import spans_of
from tests.importers.reading import events_of, turns_of
from tests.otel.traced_agent import FAILING, CollectorFile, traced_run

RESULTS = [f"test_{name} failed" for name in ("login", "logout", "cart", "pay", "mail", "search", "help")]

Scan = Callable[..., Result]


@pytest.fixture
def scan(nobodys_settings: None, tmp_path: Path) -> Scan:
    """Run an agent with these results of its tool, and scan the file of its spans."""

    def traced(results: list[str], *options: str, **content: Any) -> Result:
        path = tmp_path / "spans.jsonl"
        traced_run(CollectorFile(path), results, "chat-9", **content)
        return CliRunner().invoke(build(), ["scan", str(path), *options])

    return traced


# Whatever else is recorded, arguments and results are: each mode shows the same repeat.
MODES: dict[str, dict[str, Any]] = {
    "the default": {},
    "all spans at the end": {"batch": True},
    "no files": {"include_binary_content": False},
    "no parameters of requests": {"include_model_request_parameters": False},
    "another format": {"version": 6},
    "usage named otherwise": {"use_aggregated_usage_attribute_names": False},
}


@pytest.mark.parametrize("mode", MODES)
def test_a_stuck_agent_is_named_with_its_repeat(scan: Scan, mode: str) -> None:
    result = scan([FAILING] * 4, **MODES[mode])
    assert result.exit_code == 1
    assert "halt  chat-9  turn 2 in coder" in result.stdout
    assert "LOOP003  run returned the same result for the same arguments at turns 0, 1 and 2" in result.stdout
    assert f'→ "{FAILING}"' in result.stdout
    assert "HALTED  chat-9  at turn 2 of 5, 2 more followed" in result.stdout
    assert "read as: otlp (1 session, 5 turns; 100 % of calls have results)" in result.stderr


@pytest.mark.parametrize("aggregated", [True, False])
def test_tokens_of_the_model_calls_count_once(tmp_path: Path, aggregated: bool) -> None:
    """The span of the agent has the sum of its model calls, under names that a setting changes."""
    path = tmp_path / "spans.jsonl"
    traced_run(CollectorFile(path), RESULTS, "chat-9", use_aggregated_usage_attribute_names=aggregated)
    spans = [mapped for row in path.read_text().splitlines() for mapped in spans_of(json.loads(row))]
    models = [one.attributes["gen_ai.usage.output_tokens"] for one in spans if one.name.startswith("chat")]
    assert sum(turn["usage"].get("output_tokens", 0) for turn in turns_of(events_of(path))) == sum(models) > 0


@pytest.mark.parametrize("mode", MODES)
def test_an_honest_agent_is_left_alone(scan: Scan, mode: str) -> None:
    result = scan(RESULTS, **MODES[mode])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "1 run, 8 turns: 0 halted, 0 warned, 1 without findings."


@pytest.mark.parametrize("results", [[FAILING] * 40, RESULTS], ids=["stuck", "honest"])
def test_without_content_nothing_is_halted_and_what_cannot_be_seen_is_said(scan: Scan, results: list[str]) -> None:
    """Stuck and honest look alike there: a repeat that is not recorded must not be made up."""
    result = scan(results, include_content=False)
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last == f"1 run, {len(results) + 1} turns: 0 halted, 0 warned, 1 without findings."
    assert "no arguments and no results of tools in these traces: repeated calls cannot be seen" in result.stderr
