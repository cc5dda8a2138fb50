"""What the demo came to, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from streamproc.demo.agents import LOOP_RUN, Play
from streamproc.demo.scenario import DemoOutcome
from streamproc.demo.trajectories import spared

MINUTE_MS = 60_000


def sentences(outcome: DemoOutcome) -> Iterator[str]:
    """What was halted, what was left alone, how fast it went and what it saved."""
    halted = [play for play in outcome.plays if play.halt is not None]
    recorded = [play for play in outcome.plays if play.run_id != LOOP_RUN]
    yield (
        f"{len(recorded)} recorded runs and a scripted loop in {outcome.seconds:.0f} s: {len(halted)} halted, "
        f"{len(outcome.plays) - len(halted)} ended by themselves."
    )
    yield _solved(recorded)
    if not outcome.surprises():
        yield "Each was halted at the turn at which `streamproc scan` halts it, or not at all, as there."
    reactions = sorted(play.reaction_ms for play in halted if play.reaction_ms is not None)
    if reactions:
        yield (
            f"A guard had cancelled its agent {median(reactions):.0f} ms (median; at worst {reactions[-1]:.0f} ms) "
            "after the turn that did it was handed to the publisher. The embedded broker makes readers wait for up to "
            "half a second; a real one takes milliseconds."
        )
    yield _saved(recorded)


def _solved(recorded: list[Play]) -> str:
    solved = [play for play in recorded if play.trajectory is not None and play.trajectory.solved]
    stopped = [play.run_id for play in solved if play.halt is not None]
    if stopped:
        return f"Of {len(solved)} runs that had solved their task, {len(stopped)} were halted: {', '.join(stopped)}."
    return f"All {len(solved)} runs that had solved their task were left alone."


def _saved(recorded: list[Play]) -> str:
    savings = [spared(play.trajectory, play.taken) for play in recorded if play.trajectory is not None and play.halt]
    turns = sum(saving.turns for saving in savings)
    times = [saving.time_ms for saving in savings if saving.time_ms is not None]
    tokens = [saving.tokens for saving in savings if saving.tokens is not None]
    text = f"What that saved: {turns} of {sum(play.total for play in recorded)} recorded turns were not taken"
    more = []
    if times:
        more.append(f"{sum(times) / MINUTE_MS:.0f} minutes of agents' time ({len(times)} runs have times)")
    if tokens:
        more.append(f"{_grouped(sum(tokens))} tokens ({len(tokens)} runs have tokens)")
    return f"{text}; by the recording that is {' and '.join(more)}." if more else f"{text}."


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")
