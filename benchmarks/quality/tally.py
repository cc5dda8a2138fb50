"""The results of one watcher on all traces, and their sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.quality import scoring
from benchmarks.quality.labels import Episode, Trace
from benchmarks.quality.real import RealRun
from benchmarks.quality.scoring import Alarm
from benchmarks.quality.watchers import OURS, Watcher, breaker_of_preset


class Outcome(NamedTuple):
    """The result for one planted episode."""

    run_id: str
    episode: Episode
    alarm: Alarm | None
    warned: bool | None


class Reported(NamedTuple):
    """An alarm and its run."""

    run_id: str
    alarm: Alarm


@dataclass(slots=True)
class Real:
    """Real runs: those that were solved, and the others. Turns are all events of a run.

    An unsolved run is not necessarily stuck, so a halt of one is neither right nor wrong: only the first of each run is
    kept, for display.
    """

    solved_runs: int = 0
    solved_turns: int = 0
    solved_halts: list[Reported] = field(default_factory=list)
    solved_warnings: list[Reported] = field(default_factory=list)
    other_runs: int = 0
    other_turns: int = 0
    other_turns_after_halt: int = 0
    other_halts: list[Reported] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """All alarms of one watcher."""

    outcomes: list[Outcome] = field(default_factory=list)
    false_halts: list[Reported] = field(default_factory=list)
    false_warnings: list[Reported] = field(default_factory=list)
    duplicates: list[Reported] = field(default_factory=list)
    repeated_warnings: list[Reported] = field(default_factory=list)
    honest_turns: int = 0
    real: Real = field(default_factory=Real)

    def add_trace(self, trace: Trace, alarms: Sequence[Alarm]) -> None:
        """Score the alarms of one labelled trace."""
        matching = scoring.match(alarms, trace.episodes)
        for number, episode in enumerate(trace.episodes):
            hits = matching.hits.get(number, [])
            outcome = scoring.detection(episode, hits), scoring.warned_in_time(episode, hits)
            self.outcomes.append(Outcome(trace.run_id, episode, *outcome))
        self.duplicates += [Reported(trace.run_id, alarm) for alarm in scoring.duplicate_halts(matching)]
        self.repeated_warnings += [Reported(trace.run_id, alarm) for alarm in scoring.repeated_warnings(matching)]
        if trace.recorded:
            return
        self.honest_turns += scoring.honest_turns(len(trace.events), trace.episodes)
        for alarm in matching.false_alarms:
            (self.false_halts if alarm.halts else self.false_warnings).append(Reported(trace.run_id, alarm))

    def add_run(self, run: RealRun, alarms: Sequence[Alarm]) -> None:
        """Add the alarms of a real run: any halt of a solved run is a false one."""
        halts = [alarm for alarm in alarms if alarm.halts]
        real, turns = self.real, len(run.events)
        self.duplicates += [Reported(run.run_id, alarm) for alarm in scoring.duplicate_halts(scoring.match(halts, ()))]
        if run.solved:
            real.solved_runs += 1
            real.solved_turns += turns
            real.solved_halts += [Reported(run.run_id, alarm) for alarm in halts]
            real.solved_warnings += [Reported(run.run_id, alarm) for alarm in alarms if not alarm.halts]
            return
        real.other_runs += 1
        real.other_turns += turns
        if halts:
            real.other_halts.append(Reported(run.run_id, halts[0]))
            real.other_turns_after_halt += turns - 1 - halts[0].position


def tallies(watchers: dict[str, Watcher], traces: Iterable[Trace], runs: Iterable[RealRun]) -> dict[str, Tally]:
    """Run every watcher on every trace and run. A trace with a preset is watched by the engine under that one."""
    found = {name: Tally() for name in watchers}
    for trace in traces:
        for name, watch in watchers.items():
            chosen = breaker_of_preset(trace.preset) if trace.preset and name == OURS else watch
            found[name].add_trace(trace, list(chosen(trace.events)))
    for run in runs:
        for name, watch in watchers.items():
            found[name].add_run(run, list(watch(run.events)))
    return found
