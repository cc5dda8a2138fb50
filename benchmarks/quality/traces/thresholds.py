"""The catalogue's definitions of repeats among other calls, in their simplest and slowest form.

If other calls come in between, a running count cannot show when a threshold is met. These functions rescan all steps
each time, and share no code with the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

WITHIN: int = 10  # "same tool, same args >= 3 times within 10 calls"
REPEATS: int = 3
PERIOD_MAX: int = 16  # "for every p from 2 to 16"


def repeated_call_at(
    steps: Sequence[Hashable], known: Collection[Hashable] = (), more: Mapping[Hashable, int] | None = None
) -> int | None:
    """Return the step at which a call had the same answer three times within ten calls, with nothing new since the
    first of the three. `known` are steps seen earlier; `more` maps steps to a higher count that they need."""
    for end in range(len(steps)):
        times = (more or {}).get(steps[end], REPEATS)
        same = [i for i in range(max(0, end - WITHIN + 1), end + 1) if steps[i] == steps[end]]
        if len(same) >= times and not _anything_new(steps, same[-times] + 1, end, known):
            return end
    return None


def _anything_new(steps: Sequence[Hashable], start: int, end: int, known: Collection[Hashable]) -> bool:
    return any(steps[i] not in known and steps[i] not in steps[:i] for i in range(start, end + 1))


def full_periods_at(steps: Sequence[Hashable], periods: int) -> int | None:
    """Return the step that completes `periods` full periods of one length from 2 to 16."""
    for end in range(len(steps)):
        for length in range(2, PERIOD_MAX + 1):
            block = list(steps[end - length + 1 : end + 1])
            start = end - periods * length + 1
            if start >= 0 and len(set(block)) > 1 and list(steps[start : end + 1]) == block * periods:
                return end
    return None


def earliest(*steps: int | None) -> int:
    """Return the first of several thresholds, without those that are never met."""
    met = [step for step in steps if step is not None]
    assert met, "a planted loop meets none of its thresholds"
    return min(met)


def stuck_poll_at(standstills: Sequence[int], least: int = 10, times: int = 3) -> int:
    """Return how many equal answers of a known poll are too many: a multiple of its longest pause so far, and at least
    ten."""
    return max(least, times * max(standstills))
