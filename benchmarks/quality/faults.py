"""Every miss and every false alarm, in words and with what it takes to see it again."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.quality import scoring
from benchmarks.quality.tally import Outcome, Tally, Told


def faults(tally: Tally) -> Iterator[str]:
    """One line each. A made-up run is named by its kind and seed: `--dump KIND/SEED` prints it as JSONL."""
    for outcome in tally.outcomes:
        yield from _about(outcome)
    yield from (_told("false halt", told) for told in tally.false_halts)
    yield from (_told("halted, but was solved", told) for told in tally.real.solved_halts)
    yield from (_told("halted twice", told) for told in tally.duplicates)
    yield from (_told("warned twice", told) for told in tally.repeated_warnings)


def _about(outcome: Outcome) -> Iterator[str]:
    episode = outcome.episode
    where = f"{outcome.run_id}: {episode.code} planted at {episode.onset}"
    if outcome.alarm is None:
        yield f"missed       {where}, due at {episode.due}, ends at {episode.end}"
        return
    late = scoring.delay(episode, outcome.alarm)
    if late:
        word = "too early" if late < 0 else "too late"
        yield f"{word:12} {where}, due at {episode.due}, told by {outcome.alarm.code} at {outcome.alarm.position}"
    if outcome.warned is False:
        yield f"not warned   {where}, due at {episode.warn_at}"


def _told(what: str, told: Told) -> str:
    alarm = told.alarm
    return f"{what:12} {told.run_id}: {alarm.code} at {alarm.position}: {alarm.message}"
