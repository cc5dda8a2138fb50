"""Simple detectors that keep a list and rescan it each turn, for comparison.

They read the same fingerprints, without the cost of hashing, and both find a plain repeat. They do not cover
novelty, polling, narration, cycles or budgets.
"""

from __future__ import annotations

from typing import Final

from streamproc.model.wire import Turn

WINDOW: Final = 10
REPEATS: Final = 3
PERIOD_MAX: Final = 16

Pair = tuple[int, int]


class LastTen:
    """The most common rule: the same call with the same result 3 times within the last 10 calls."""

    def __init__(self) -> None:
        self._pairs: list[Pair] = []

    def step(self, turn: Turn) -> bool:
        """Add a turn; return whether the run is stuck."""
        stuck = False
        for call in turn.calls:
            pair = (call.key, call.norm)
            self._pairs.append(pair)
            stuck = stuck or self._pairs[-WINDOW:].count(pair) >= REPEATS
        return stuck


class WholeHistory:
    """Scans the whole history each time for repeated calls, outputs and test results, and for alternation."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []

    def remember(self, turns: list[Turn]) -> None:
        """Add turns without checking."""
        self._turns += turns

    def step(self, turn: Turn) -> bool:
        """Add a turn; return whether the run is stuck."""
        self._turns.append(turn)
        return bool(self._same_call(turn) or self._same_output(turn) or self._same_failures(turn) or self._alternates())

    def _same_call(self, turn: Turn) -> bool:
        if not turn.calls:
            return False
        calls = [call for turn in self._turns for call in turn.calls][-WINDOW:]
        last = turn.calls[-1]
        return sum(call.key == last.key and call.norm == last.norm for call in calls) >= REPEATS

    def _same_output(self, turn: Turn) -> bool:
        if turn.output is None:
            return False
        outputs = [t.output.norm for t in self._turns if t.node == turn.node and t.output is not None][-REPEATS:]
        return len(outputs) == REPEATS and len(set(outputs)) == 1

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
