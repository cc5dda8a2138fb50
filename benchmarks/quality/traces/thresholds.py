"""The catalogue's words for repeats among other calls, in the slowest and plainest way.

Where a count along the way does not tell when a threshold is met, because other calls come in between, these do. They
look at everything again for each step, and share nothing with the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

WITHIN: int = 10  # "same tool, same args >= 3 times within 10 calls"
REPEATS: int = 3
PERIOD_MAX: int = 16  # "for every p from 2 to 16"


def repeated_call_at(
    steps: Sequence[Hashable], known: Collection[Hashable] = (), more: Mapping[Hashable, int] | None = None
) -> int | None:
    """The step with which a call has had the same answer three times within ten calls, and nothing new happened since
    the first of the three. `known` are the steps of earlier times; `more` are those that need more than three."""
    for end in range(len(steps)):
        times = (more or {}).get(steps[end], REPEATS)
        same = [i for i in range(max(0, end - WITHIN + 1), end + 1) if steps[i] == steps[end]]
        if len(same) >= times and not _anything_new(steps, same[-times] + 1, end, known):
            return end
    return None


def _anything_new(steps: Sequence[Hashable], start: int, end: int, known: Collection[Hashable]) -> bool:
    return any(steps[i] not in known and steps[i] not in steps[:i] for i in range(start, end + 1))


def full_periods_at(steps: Sequence[Hashable], periods: int) -> int | None:
    """The step with which the last steps are so many full periods of one length from 2 to 16."""
    for end in range(len(steps)):
        for length in range(2, PERIOD_MAX + 1):
            block = list(steps[end - length + 1 : end + 1])
            start = end - periods * length + 1
            if start >= 0 and len(set(block)) > 1 and list(steps[start : end + 1]) == block * periods:
                return end
    return None


def earliest(*steps: int | None) -> int:
    """The first of several thresholds, those that are never met aside."""
    met = [step for step in steps if step is not None]
    assert met, "a planted loop meets none of its thresholds"
    return min(met)


def stuck_poll_at(standstills: Sequence[int], least: int = 10, times: int = 3) -> int:
    """How many equal answers of a call that is known to be a poll are too many: a multiple of its longest standstill
    so far, and at least ten."""
    return max(least, times * max(standstills))
