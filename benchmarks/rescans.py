"""What one would write in an afternoon: detectors that keep a list and look through it again each turn.

Honest peers: they read the same fingerprints, so the hashing is done for them, and both find a plain repeat. They
say nothing of news, polls, narration, cycles or budgets.
"""

from __future__ import annotations

from typing import Final

from streamproc.model.wire import Turn

WINDOW: Final = 10
REPEATS: Final = 3
PERIOD_MAX: Final = 16

Pair = tuple[int, int]


class LastTen:
    """The commonest rule there is: the same call with the same answer 3 times within the last 10."""

    def __init__(self) -> None:
        self._pairs: list[Pair] = []

    def step(self, turn: Turn) -> bool:
        """Take a turn in; True where it is stuck."""
        stuck = False
        for call in turn.calls:
            pair = (call.key, call.norm)
            self._pairs.append(pair)
            stuck = stuck or self._pairs[-WINDOW:].count(pair) >= REPEATS
        return stuck


class WholeHistory:
    """Keeps the turns, and asks the whole history each time: repeated calls, outputs and results, and alternation."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []

    def remember(self, turns: list[Turn]) -> None:
        """Take turns in without looking."""
        self._turns += turns

    def step(self, turn: Turn) -> bool:
        """Take a turn in; True where it is stuck."""
        self._turns.append(turn)
        return bool(self._same_call(turn) or self._same_said(turn) or self._same_failures(turn) or self._alternates())

    def _same_call(self, turn: Turn) -> bool:
        if not turn.calls:
            return False
        made = [call for turn in self._turns for call in turn.calls][-WINDOW:]
        last = turn.calls[-1]
        return sum(call.key == last.key and call.norm == last.norm for call in made) >= REPEATS

    def _same_said(self, turn: Turn) -> bool:
        if turn.output is None:
            return False
        said = [t.output.norm for t in self._turns if t.node == turn.node and t.output is not None][-REPEATS:]
        return len(said) == REPEATS and len(set(said)) == 1

    def _same_failures(self, turn: Turn) -> bool:
        if turn.tests is None:
            return False
        failed = [t.tests.failing_set for t in self._turns if t.node == turn.node and t.tests is not None][-REPEATS:]
        return len(failed) == REPEATS and len(set(failed)) == 1 and failed[0] != 0

    def _alternates(self) -> bool:
        steps = [_step(turn) for turn in self._turns[-2 * PERIOD_MAX :]]
        for period in range(2, min(PERIOD_MAX, len(steps) // 2) + 1):
            if steps[-period:] == steps[-2 * period : -period] and len(set(steps[-period:])) > 1:
                return True
        return False


def _step(turn: Turn) -> tuple[object, ...]:
    output = turn.output.norm if turn.output is not None and not turn.calls else None
    return (turn.node, output, *((call.key, call.norm) for call in turn.calls))
