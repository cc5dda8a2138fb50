"""The table and its explanation."""

from __future__ import annotations

import math
from typing import Final

from benchmarks.quality.rows import Row
from benchmarks.quality.tally import Real, Tally
from docs.tables import aligned

HEADINGS: Final = (
    "detector", "planted", "found", "delay: median (most)", "too early", "warned in time", "reported twice",
    "false halts, honest work", "per 1 000 turns", "false halts, solved runs", "per 1 000 turns",
    "warnings, solved runs", "warnings per 1 000 turns", "other runs halted",
)  # fmt: skip


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:g}"


def _rate(value: float) -> str:
    return "" if math.isnan(value) else "0" if value == 0 else f"{value:.2f}"


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as text."""
    delay = "" if math.isnan(row.delay) else f"{row.delay:g} ({_number(row.delay_most)})"
    return (
        row.name,
        f"{row.planted}",
        f"{row.found} ({row.recall:.1%})" if row.planted else "",
        delay,
        f"{row.early}",
        f"{row.warned} of {row.warnings_due}" if row.warnings_due else "",
        f"{row.duplicates}",
        f"{row.false_halts}",
        _rate(row.false_halts_per_1000),
        f"{row.solved_halts}",
        _rate(row.solved_halts_per_1000),
        f"{row.solved_warnings}",
        _rate(row.solved_warnings_per_1000),
        f"{row.other_runs_halted}",
    )


def markdown(rows: list[Row], lines: list[str]) -> str:
    """Return the table as aligned Markdown, after the lines of explanation."""
    return "\n".join([*lines, "", aligned([HEADINGS, *map(cells, rows)])])


def explanation(tally: Tally, traces: int, policy: str, machine: list[str]) -> list[str]:
    """Return the data that the table is based on."""
    real = tally.real
    return [
        *machine,
        f"Policy `{policy}`, or a run's own preset. Synthetic, from seeds: {traces} runs with {len(tally.outcomes)} "
        f"planted episodes, and {tally.honest_turns} turns of healthy work around and beside them.",
        f"Real: {real.solved_runs} runs that were solved ({real.solved_turns} turns), in which any halt is a false "
        f"one, and {real.other_runs} others.{_saved(real)}",
        "Delay is counted in turns from the one at which the catalogue's threshold is met.",
    ]


def _saved(real: Real) -> str:
    if not real.other_halts:
        return ""
    share = real.other_turns_after_halt / real.other_turns
    return f" Of the others, {len(real.other_halts)} were halted, with {share:.0%} of all their turns still to come."
