"""The summary of the demo, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from streamproc.demo.agents import LOOP_RUN, DemoRun
from streamproc.demo.scenario import DemoOutcome
from streamproc.demo.trajectories import savings

MINUTE_MS = 60_000


def sentences(outcome: DemoOutcome) -> Iterator[str]:
    """Say which runs were halted, which were left alone, how fast the guards reacted, and what the halts saved."""
    halted = [run for run in outcome.runs if run.halt is not None]
    recorded = [run for run in outcome.runs if run.run_id != LOOP_RUN]
    yield (
        f"{len(recorded)} recorded runs and a scripted loop in {outcome.seconds:.0f} s: {len(halted)} halted, "
        f"{len(outcome.runs) - len(halted)} ended by themselves."
    )
    yield _solved(recorded)
    if not outcome.surprises():
        yield "Every recorded run was halted at the same turn as in `streamproc scan`, or not at all, as there."
    reactions = sorted(run.reaction_ms for run in halted if run.reaction_ms is not None)
    if reactions:
        yield (
            f"Reaction time, from publishing a turn to cancelling its agent: {median(reactions):.0f} ms (median), "
            f"{reactions[-1]:.0f} ms (maximum). The embedded broker delays consumers by up to 500 ms; a real broker "
            "takes milliseconds."
        )
    yield _saved(recorded)


def _solved(recorded: list[DemoRun]) -> str:
    solved = [run for run in recorded if run.trajectory is not None and run.trajectory.solved]
    halted = [run.run_id for run in solved if run.halt is not None]
    if halted:
        return f"Of the {len(solved)} runs that solved their task, {len(halted)} halted: {', '.join(halted)}."
    return f"All {len(solved)} runs that solved their task were left alone."


def _saved(recorded: list[DemoRun]) -> str:
    saved = [savings(run.trajectory, run.taken) for run in recorded if run.trajectory is not None and run.halt]
    turns = sum(one.turns for one in saved)
    times = [one.time_ms for one in saved if one.time_ms is not None]
    tokens = [one.tokens for one in saved if one.tokens is not None]
    text = f"The halts saved {turns} of {sum(run.total for run in recorded)} recorded turns"
    more = []
    if times:
        more.append(f"{sum(times) / MINUTE_MS:.0f} minutes of agent time (recorded for {len(times)} runs)")
    if tokens:
        more.append(f"{_grouped(sum(tokens))} tokens (recorded for {len(tokens)} runs)")
    return f"{text}: {' and '.join(more)}." if more else f"{text}."


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")
