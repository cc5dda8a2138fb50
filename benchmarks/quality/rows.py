"""The figures of the table: one row for each detector, one for all of them, one for each simple rule."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.quality import scoring
from benchmarks.quality.tally import Outcome, Reported, Tally
from benchmarks.quality.watchers import OURS

RECALL_MIN: Final = 0.99
DELAY_MAX: Final = 0  # turns, median
SOLVED_HALTS_MAX: Final = 1_000 / 4_000  # per 1 000 turns: one in 4 000
SOLVED_WARNINGS_MAX: Final = 3  # per 1 000 turns, of all detectors together


@dataclass(frozen=True, slots=True)
class Row:
    """Planted and found episodes, and false reports. Undefined figures are `nan`."""

    name: str
    planted: int
    found: int
    delay: float
    delay_most: float
    early: int
    warnings_due: int
    warned: int
    duplicates: int
    repeated_warnings: int
    false_halts: int
    false_halts_per_1000: float
    false_warnings_per_1000: float
    solved_halts: int
    solved_halts_per_1000: float
    solved_warnings: int
    solved_warnings_per_1000: float
    other_runs_halted: int
    simple_rule: bool = False

    @property
    def recall(self) -> float:
        """The share of planted episodes that were found; `nan` if none was planted."""
        return scoring.recall(self.found, self.planted)

    def missed_targets(self) -> list[str]:
        """Return the missed targets as sentences."""
        faults = {
            f"found {self.recall:.3f} of planted loops, target {RECALL_MIN}": self.recall < RECALL_MIN,
            f"median delay {self.delay:g} turns, target {DELAY_MAX}": self.delay > DELAY_MAX,
            f"{self.early} reported before the threshold was met, target 0": self.early > 0,
            f"{self.duplicates} duplicate halts, target 0": self.duplicates > 0,
            f"{self.false_halts} false halts on healthy work, target 0": self.false_halts > 0,
            f"{self.solved_halts_per_1000:.2f} halts per 1 000 turns of solved runs, target {SOLVED_HALTS_MAX:g}":
                self.solved_halts_per_1000 > SOLVED_HALTS_MAX,
            f"{self.solved_warnings_per_1000:.2f} warnings per 1 000 solved turns, target {SOLVED_WARNINGS_MAX}":
                self.solved_warnings_per_1000 > SOLVED_WARNINGS_MAX,
        }  # fmt: skip
        return [f"{self.name}: {fault}" for fault, missed in faults.items() if missed]

    def figures(self) -> dict[str, Any]:
        """Return the row for JSON; undefined figures are null."""
        named = {name: getattr(self, name) for name in self.__dataclass_fields__} | {"recall": self.recall}
        undefined = {name for name, value in named.items() if isinstance(value, float) and math.isnan(value)}
        return {name: None if name in undefined else value for name, value in named.items()}


def row(name: str, tally: Tally, outcomes: list[Outcome], code: str = "") -> Row:
    """Return the row of these episodes and of the alarms of one detector (without `code`: of all)."""
    delays = [scoring.delay(outcome.episode, outcome.alarm) for outcome in outcomes if outcome.alarm is not None]
    warned = [outcome.warned for outcome in outcomes if outcome.warned is not None]
    false_halts = _of(code, tally.false_halts)
    solved_halts = _of(code, tally.real.solved_halts)
    solved_warnings = _of(code, tally.real.solved_warnings)
    return Row(
        name,
        planted=len(outcomes),
        found=len(delays),
        delay=scoring.typical(delays),
        delay_most=max(delays, default=float("nan")),
        early=scoring.early(delays),
        warnings_due=len(warned),
        warned=sum(warned),
        duplicates=_of(code, tally.duplicates),
        repeated_warnings=_of(code, tally.repeated_warnings),
        false_halts=false_halts,
        false_halts_per_1000=scoring.per_thousand(false_halts, tally.honest_turns),
        false_warnings_per_1000=scoring.per_thousand(_of(code, tally.false_warnings), tally.honest_turns),
        solved_halts=solved_halts,
        solved_halts_per_1000=scoring.per_thousand(solved_halts, tally.real.solved_turns),
        solved_warnings=solved_warnings,
        solved_warnings_per_1000=scoring.per_thousand(solved_warnings, tally.real.solved_turns),
        other_runs_halted=_of(code, tally.real.other_halts),
    )


def _of(code: str, reported: Iterable[Reported]) -> int:
    return sum(not code or one.alarm.code == code for one in reported)


def rows(tallies: dict[str, Tally], titles: dict[str, str]) -> list[Row]:
    """Return one row for each code of `titles` (the detectors' names), one for all, one for each simple rule.

    Simple rules can only halt, so they are measured on the episodes that must be halted.
    """
    ours = tallies[OURS]
    found = [
        row(f"{code} {title}", ours, [outcome for outcome in ours.outcomes if outcome.episode.code == code], code)
        for code, title in titles.items()
    ]
    found.append(row("**all detectors**", ours, ours.outcomes))
    for name, tally in tallies.items():
        if name != OURS:
            halted = [outcome for outcome in tally.outcomes if outcome.episode.halt_at is not None]
            found.append(replace(row(f"*{name}*", tally, halted), simple_rule=True))
    return found
