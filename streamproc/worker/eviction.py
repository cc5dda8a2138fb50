"""Which runs a worker forgets first once it has more than it may have, and what it keeps of a halted one.

Every client that may write turns can begin runs without end. So the run idle longest is not simply the one to go:

- Finished runs go first.
- Then *new* runs, of a few turns, as long as they take up more than a part of the limit. A flood of made-up run ids
  evicts its own kind first.
- Then halted runs, as long as they take up more than a part. A halted run leaves a *stub*, which is halted all the
  same: it has no memory of turns, but its spend, its scope, and what only an operator may change. The decision that
  halted it is in its last status, which is not replaced by one without it. Stubs have a limit of their own.
- Then open runs. What the others leave to them is at least half of the limit.

Within a rank, the run idle longest goes first. The limit is divided among the partitions of a worker: run ids decide
the partition, and so a flood of one partition does not reach the runs of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from streamproc.core.run_state import RunState
from streamproc.worker.limits import (
    FINISHED_KEEP_MS,
    IDLE_KEEP_MS,
    NEW_TURNS_MAX,
    SPARED_PART,
    STUB_KEEP_MS,
    STUBS_A_RUN,
)

FINISHED, NEW, OPEN, HALTED, STUB = RANKS = range(5)
KEEP_MS: Final = (FINISHED_KEEP_MS, IDLE_KEEP_MS, IDLE_KEEP_MS, IDLE_KEEP_MS, STUB_KEEP_MS)
"""How long an idle run of each rank is kept. After it, a halted run becomes a stub and every other run is removed."""
ORDER: Final = (FINISHED, NEW, HALTED, OPEN, STUB)
"""The ranks in the order in which their runs go."""


class Leaving(NamedTuple):
    """A run that has to go. `early`: only because of the run limit."""

    key: bytes
    rank: int
    early: bool


def rank_of(state: RunState, halt: bytes | None) -> int:
    """Return the rank of a run; `halt` is the decision kept with a halted one.

    A halted run that has finished is halted, or an agent could lift its halt by finishing and waiting.
    """
    if state.halted >= 0:
        return STUB if halt is None else HALTED
    if state.finished:
        return FINISHED
    return NEW if 0 <= state.turns <= NEW_TURNS_MAX else OPEN


def surplus(counts: Sequence[int], runs_max: int) -> list[int]:
    """Return how many runs of each rank have to go. `counts` are those of each rank, `runs_max` is the limit."""
    spared = {NEW: max(1, runs_max // SPARED_PART), HALTED: max(1, runs_max // SPARED_PART)}
    found = [0] * len(RANKS)
    left = sum(counts[:STUB]) - runs_max
    for rank in ORDER[:STUB]:
        found[rank] = max(0, min(left, counts[rank] - spared.get(rank, 0)))
        left -= found[rank]
    found[STUB] = max(0, counts[STUB] - STUBS_A_RUN * runs_max)
    return found
