"""All healthy work, and runs composed of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks.quality.traces import (
    batches,
    boards,
    debugging,
    framing,
    look_alikes,
    others_words,
    patience,
    polling,
    reading,
    retries,
    second_thoughts,
    siblings,
    stagnation,
    talking,
    teamwork,
    work,
)
from benchmarks.quality.traces.script import Script

Section = Callable[[Script], None]

FRAGMENTS: Final[tuple[Section, ...]] = (
    *polling.FRAGMENTS, *reading.FRAGMENTS, *debugging.FRAGMENTS, *batches.FRAGMENTS, *siblings.FRAGMENTS,
    *retries.FRAGMENTS, *teamwork.FRAGMENTS, *second_thoughts.FRAGMENTS,
    *look_alikes.FRAGMENTS, *patience.FRAGMENTS,
    *boards.FRAGMENTS, *framing.FRAGMENTS, *talking.FRAGMENTS, *stagnation.FRAGMENTS, *others_words.FRAGMENTS,
)  # fmt: skip
LONG_RUN: Final = 500  # events


def around(section: Section) -> Section:
    """Return a run with this section among other work."""

    def write(script: Script) -> None:
        before(script)
        section(script)
        if script.chance(0.3):
            work.finding(script)
            section(script)
        after(script)

    write.__module__, write.__name__ = section.__module__, section.__name__
    return write


def mixed_day(script: Script) -> None:
    """A mix of everything."""
    for _ in range(script.times(5, 12)):
        script.dice.choice(FRAGMENTS)(script)
        work.finding(script)


def long_run(script: Script) -> None:
    """Hundreds of turns of healthy work."""
    while script.next < LONG_RUN:
        script.dice.choice(FRAGMENTS)(script)
        work.finding(script)


def before(script: Script) -> None:
    """Write the work before the loop; it ends with something new."""
    for _ in range(script.times(0, 3)):
        script.dice.choice(FRAGMENTS)(script)
    work.plain_steps(script)
    work.finding(script)


def after(script: Script) -> None:
    """Write the work after the loop, if any."""
    if script.chance(0.5):
        work.finding(script)
        work.plain_steps(script)
