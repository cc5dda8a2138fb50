"""The recorded runs of the demo, with the decisions of a scan: the demo must come to the same result."""

from __future__ import annotations

from typing import NamedTuple

from streamproc.model.raw_events import RawEvent, RawTurn
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.samples import outcomes, trajectory_file


class Trajectory(NamedTuple):
    """A recorded run: its turns, whether it solved its task, and the turn at which a scan halts it, if any."""

    run_id: str
    turns: tuple[RawEvent, ...]
    solved: bool
    halt_at: int | None


def load_trajectories(now_ms: int) -> list[Trajectory]:
    """Load the sample runs as if each had ended just now: times are shifted, the gaps between turns stay."""
    solved = {run_id: outcome.solved for run_id, outcome in outcomes().items()}
    with trajectory_file() as path:
        halts: dict[str, int] = {}
        for decision in Scan([Source(path)], load_policy()):
            if decision.severity == "halt" and decision.turn is not None:
                halts.setdefault(decision.run_id, decision.turn)
        runs: dict[str, list[RawEvent]] = {}
        for line in Source(path):
            if isinstance(line.raw, RawEvent):  # as all are in a file of raw turns
                runs.setdefault(line.raw.run_id, []).append(line.raw)
    return [
        Trajectory(run_id, _shifted(turns, now_ms), solved[run_id], halts.get(run_id)) for run_id, turns in runs.items()
    ]


def _shifted(turns: list[RawEvent], now_ms: int) -> tuple[RawEvent, ...]:
    times = [turn.at for turn in turns if turn.at is not None]
    if not times:
        return tuple(turns)
    shift_ms = now_ms - max(times)
    return tuple(turn if turn.at is None else turn.model_copy(update={"at": turn.at + shift_ms}) for turn in turns)


class Savings(NamedTuple):
    """Turns, time and tokens that a halt saved; None for what was not recorded."""

    turns: int
    time_ms: int | None
    tokens: int | None


def savings(trajectory: Trajectory, taken: int) -> Savings:
    """Return what a halt after `taken` turns saved."""
    left = trajectory.turns[taken:]
    times = [turn.at for turn in (*trajectory.turns[max(0, taken - 1) : taken], *left) if turn.at is not None]
    usages = [turn.usage for turn in left if isinstance(turn, RawTurn) and turn.usage is not None]
    tokens = [usage.total_tokens or usage.input_tokens + usage.output_tokens for usage in usages]
    return Savings(len(left), max(times) - times[0] if len(times) > 1 else None, sum(tokens) if tokens else None)
