"""The table of `make faults`: the faults, how often each occurred, and the results."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Final

from docs.tables import aligned
from tests.faults.scenario import Result

SUMMED: Final = ("times", "turns", "controls", "lost", "made_up", "duplicates")
HEADINGS: Final = (
    "fault", "path", "rounds", *(name.replace("_", " ") for name in SUMMED), "longest stall", "slowest halt",
)  # fmt: skip
HEARD: Final = ("fault", "surface", "after", "words")


def table(results: Sequence[Result]) -> str:
    """Return one line for each fault on each path of the worker."""
    lines = [HEADINGS]
    for fault, path in dict.fromkeys((one.fault, one.path) for one in results):
        group = [one for one in results if (one.fault, one.path) == (fault, path)]
        sums = [sum(getattr(one, name) for one in group) for name in SUMMED]
        worst = f"{max(one.stall_s for one in group):.1f} s"
        halt_s = max(one.halt_s for one in group)
        halt = f"{halt_s * 1000:.0f} ms" if halt_s else ""
        lines.append((fault, path, str(len(group)), *(f"{value:,}".replace(",", " ") for value in sums), worst, halt))
    return aligned(lines)


def surfaces(results: Sequence[Result]) -> str:
    """Return when each surface said that the workers or the broker are gone, at the latest, and its words."""
    latest: dict[tuple[str, str], tuple[float, str]] = {}
    for one in results:
        for name, heard in one.heard.items():
            place = one.fault, name
            latest[place] = max(heard, latest.get(place, heard))
    lines = [HEARD, *((*place, f"{after_s:.1f} s", words) for place, (after_s, words) in latest.items())]
    return aligned(lines) if latest else ""


def head(minutes: float, seed: int, commit: str) -> str:
    """Return the line above the table: seeds, duration, commit, machine."""
    return (
        f"Seeds from {seed}, {minutes:.0f} minutes, commit {commit}, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        "a real Apache Kafka on the same machine."
    )
