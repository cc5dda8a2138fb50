"""The figures by source: what `streamproc scan` reports, by label, with intervals."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.quality import sources
from benchmarks.quality.planted import planted
from benchmarks.quality.scoring import poisson, rate, wilson
from benchmarks.quality.traces import HONEST, LOOPS, all_traces, name_of

if TYPE_CHECKING:
    from pathlib import Path

STUCK = [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "ls", "arguments": "{}"}}]},
         {"role": "tool", "tool_call_id": "1", "content": "a"}] * 4  # fmt: skip


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    """Return a log of chat messages: three conversations, each stuck at its third answer."""
    log = tmp_path / "chats.jsonl"
    log.write_text("\n".join(json.dumps({"messages": STUCK}) for _ in range(3)))
    return log


def test_the_figures_come_from_a_scan_and_the_labels_of_the_runs(
    messages: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    outcomes = tmp_path / "outcomes.json"
    outcomes.write_text(json.dumps({"chats/1": {"solved": True}, "chats/2": {"outcome": 0.0}}))
    monkeypatch.setattr(sys, "argv", ["sources", f"Chats: a={messages}", "--outcomes", str(outcomes)])

    assert sources.main() == 0

    printed = capsys.readouterr().out.splitlines()
    rows = {tuple(cells[:2]): cells for line in printed if (cells := line.strip("| ").split(" | "))[1:]}
    assert rows["Chats: a", "solved"][2:4] == ["1", "4"]
    assert rows["Chats: a", "not solved"][4].startswith("1 (")
    assert rows["**all**", "solved or no label"][2:6] == ["2", "8", "2 (34.2% to 100.0%)", rate(2, 8)]
    assert rows["**Chats**", "solved or no label"][7] == "LOOP003 2"
    assert [line[:30] for line in printed if line.startswith("- ")] == [
        "- Chats: a: `chats/1`, turn 2,", "- Chats: a: `chats/3`, turn 2,"
    ]  # fmt: skip


def test_another_policy_may_be_measured(messages: Path) -> None:
    found = sources.figures(str(messages), {}, "tickets")

    assert [halt["policy"]["name"] for halt in found[sources.UNLABELLED].halts] == ["tickets"] * 3


def test_a_log_that_cannot_be_read_ends_the_command(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nowhere"):
        sources.figures(str(tmp_path / "nowhere.jsonl"), {}, "standard")


def test_planted_loops_are_found_by_a_scan() -> None:
    plain = ("repeated_call.in_a_row", "batches.files_written", "presets.a_plan_that_advances")
    traces = list(all_traces(2, [kind for kind in (*LOOPS, *HONEST) if name_of(kind) in plain]))

    loops, honest = planted(traces, "standard", sources.printed)

    assert loops == "Planted loops: 2 of 2 found (34.24% to 100.00%), 0 missed."
    assert "false halts per 1 000 turns 0: 0.00 (0.00 to " in honest


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.390), (100, 81.364, 121.627)]
)
def test_counts_have_the_exact_interval_of_poisson(count: int, low: float, high: float) -> None:
    assert poisson(count) == pytest.approx((low, high), abs=0.001)


def test_shares_have_the_interval_of_wilson() -> None:
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=0.0001)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=0.0001)
    assert wilson(0, 0) == (0.0, 1.0)
