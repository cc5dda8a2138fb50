"""A discrete simulation: some workers of a group die under load, and the others take their partitions over.

Partitions are alike, and so are workers with the same number of own and of inherited partitions: one of each kind is
simulated. Arithmetic is not enough here, because a worker that recovers inherited partitions keeps its own waiting, and
then shares its processor time between both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

STEP_S: Final = 0.1  # at first; then a thousandth of the time that has passed
CAUGHT_UP_S: Final = 1.0  # a partition is caught up when its oldest turn has waited for less
LONGEST_S: Final = 86_400.0


class Takeover(NamedTuple):
    """The longest time that a turn waited for its step, and when every partition had caught up, in seconds after the
    death; None if that takes more than a day."""

    worst_delay_s: float
    caught_up_s: float | None


@dataclass
class _Survivor:
    """A worker, with the turns that wait in one of its own and in one of its inherited partitions."""

    own: int
    inherited: int
    waiting_own: float = 0.0
    waiting_inherited: float = 0.0

    def arrive(self, turns: float) -> None:
        """Add so many turns to each partition."""
        self.waiting_own += turns
        self.waiting_inherited += turns if self.inherited else 0.0

    def step(self, turns: float) -> None:
        """Step so many turns: equal shares for all partitions in which turns wait."""
        if not self.inherited:
            self.waiting_own = max(0.0, self.waiting_own - turns / self.own)
            return
        small = min(self.waiting_own, self.waiting_inherited, turns / (self.own + self.inherited))
        left = turns - small * (self.own + self.inherited)
        self.waiting_own -= small
        self.waiting_inherited -= small
        if self.waiting_inherited > self.waiting_own:
            self.waiting_inherited = max(0.0, self.waiting_inherited - left / self.inherited)
        else:
            self.waiting_own = max(0.0, self.waiting_own - left / self.own)

    @property
    def most(self) -> float:
        """The turns that wait in the fuller kind of partition."""
        return max(self.waiting_own, self.waiting_inherited)


def simulate_takeover(
    partitions: int, workers: int, killed: int, turns_per_s: float, worker_per_s: float,
    detected_s: float, recovery_s: float,
) -> Takeover:  # fmt: skip
    """Kill some of the workers at once. `worker_per_s` is the most that a worker steps, `detected_s` the time until the
    dead workers' partitions are assigned again, `recovery_s` that of one partition's states.

    Raises `ValueError` unless some worker survives and each worker has a partition.
    """
    if not 0 < killed < workers <= partitions:
        raise ValueError(f"{killed} of {workers} workers with {partitions} partitions: one must survive with some")
    alive = workers - killed
    each_s = turns_per_s / partitions  # that arrive in one partition
    if turns_per_s >= alive * worker_per_s:
        return Takeover(float("inf"), None)
    survivors = [_Survivor(own, inherited) for own, inherited in _kinds(partitions, workers, killed)]
    return _simulate(survivors, each_s, worker_per_s, detected_s, recovery_s)


def _kinds(partitions: int, workers: int, killed: int) -> set[tuple[int, int]]:
    """Return how many own and inherited partitions a survivor may have. The first workers have one more than the
    others; of them die the first, and the first survivors inherit one more."""
    alive = workers - killed
    each, more_own = divmod(partitions, workers)
    inherited, more_inherited = divmod(killed * each + min(killed, more_own), alive)
    ranks = {0, more_inherited, max(0, more_own - killed)}
    return {(each + (killed + rank < more_own), inherited + (rank < more_inherited)) for rank in ranks if rank < alive}


def _simulate(
    survivors: list[_Survivor], each_s: float, worker_per_s: float, detected_s: float, recovery_s: float
) -> Takeover:
    now_s = worst = 0.0
    while now_s < LONGEST_S:
        step_s = max(STEP_S, now_s / 1_000)
        now_s += step_s
        for one in survivors:
            one.arrive(each_s * step_s)
            if now_s <= detected_s:
                one.waiting_own = max(0.0, one.waiting_own - worker_per_s * step_s / one.own)
            elif now_s > detected_s + one.inherited * recovery_s:
                one.step(worker_per_s * step_s)
        delay = max(one.most for one in survivors) / each_s
        worst = max(worst, delay)
        if delay < CAUGHT_UP_S and now_s > detected_s:
            return Takeover(worst, now_s)
    return Takeover(worst, None)
