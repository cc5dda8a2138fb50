"""Every miss and every false alarm, described so it can be reproduced."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.quality import scoring
from benchmarks.quality.tally import Outcome, Reported, Tally


def faults(tally: Tally) -> Iterator[str]:
    """Yield one line for each. Synthetic runs are named by kind and seed: `--dump KIND/SEED` prints one as JSONL."""
    for outcome in tally.outcomes:
        yield from _about(outcome)
    yield from (_report_line("false halt", reported) for reported in tally.false_halts)
    yield from (_report_line("halted, but was solved", reported) for reported in tally.real.solved_halts)
    yield from (_report_line("halted twice", reported) for reported in tally.duplicates)
    yield from (_report_line("warned twice", reported) for reported in tally.repeated_warnings)


def _about(outcome: Outcome) -> Iterator[str]:
    episode = outcome.episode
    where = f"{outcome.run_id}: {episode.code} planted at {episode.onset}"
    if outcome.alarm is None:
        yield f"missed       {where}, due at {episode.due}, ends at {episode.end}"
        return
    late = scoring.delay(episode, outcome.alarm)
    if late:
        word = "too early" if late < 0 else "too late"
        yield f"{word:12} {where}, due at {episode.due}, reported by {outcome.alarm.code} at {outcome.alarm.position}"
    if outcome.warned is False:
        yield f"not warned   {where}, due at {episode.warn_at}"


def _report_line(what: str, reported: Reported) -> str:
    alarm = reported.alarm
    return f"{what:12} {reported.run_id}: {alarm.code} at {alarm.position}: {alarm.message}"
