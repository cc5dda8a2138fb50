"""The bound on the whole of a run's memory. Each collection has a cap of its own (`run.py`); here is the cap on
their sum, which a run reaches only if nearly all of them are full at the same time.

Encoding a state to see its size costs as much as a turn, so it is done only when what came since the last look could
have filled it: whoever adds to a state takes that off its `room` (what replaces something else is free), and below
nothing it is time to look. What is rare and may be large sets the room to nothing. Nothing but the state and the event
decide, so that it does not matter who stores it and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streamproc.core.run_state import RunState, dump

STATE_BYTES: Final = 3_900  # what a state may come to, and numbers that were short get longer; the promise is 4 096
FULL_BYTES: Final = 3_400  # past it, what is missed least is forgotten ...
KEPT_BYTES: Final = 3_000  # ... down to this, so that the next turn does not begin the same again

# What an event can add besides, in bytes, in the largest numbers there are.
ANY_TURN: Final = 16  # tags in place of shorter ones
EACH_CALL: Final = 8  # hashes in place of shorter ones
SAID: Final = 10  # a hash to show
RESULTS: Final = 20  # two hashes to show
OTHER_EVENT: Final = 1_100  # a task with the longest id, or all that a board may hold


def shrink_to_size(run: RunState) -> None:
    """Forget the oldest, where a run takes up too much; `evicted` counts it."""
    size = _size(run)
    if size > FULL_BYTES:
        for forget in _LEAST_MISSED_FIRST:
            run.evicted += 1
            forget(run)
            size = _size(run)
            if size <= KEPT_BYTES:
                break
    run.room = STATE_BYTES - size


def _size(run: RunState) -> int:
    """In bytes, without the place in the log, a large number here and a small one there: a scan knows of no place,
    and must forget at the same turn."""
    place = run.partition, run.offset
    run.partition = run.offset = -1
    size = len(dump(run))
    run.partition, run.offset = place
    return size


def _old_occurrences(run: RunState) -> None:
    """Of calls with an answer that is long known, the last two occurrences say that it is."""
    for memory in list(run.calls.values())[:-2]:
        del memory.steps[:-2], memory.turns[:-2]


def _half_of(name: str) -> Callable[[RunState], None]:
    def forget(run: RunState) -> None:
        entries: dict[Any, Any] = getattr(run, name)
        for key in list(entries)[: len(entries) // 2]:
            del entries[key]

    return forget


def _silent_nodes(run: RunState) -> None:
    oldest = sorted(run.nodes, key=lambda tag: run.nodes[tag].last)
    for tag in oldest[: len(oldest) // 2]:
        del run.nodes[tag]


def _rare_nodes(run: RunState) -> None:
    rarest = sorted(run.counts, key=lambda tag: run.counts[tag][0])
    for tag in rarest[: len(rarest) // 2]:
        del run.counts[tag]


def _old_cycles(run: RunState) -> None:
    del run.cycles[: len(run.cycles) // 2]


def _old_metrics(run: RunState) -> None:
    for tag in list(run.metrics)[: len(run.metrics) // 2]:
        del run.metrics[tag]


def _old_texts(run: RunState) -> None:
    del run.sims[: len(run.sims) // 2]


_LEAST_MISSED_FIRST: Final = (
    _old_occurrences, _half_of("tools"), _half_of("hops"), _old_texts, _rare_nodes, _silent_nodes, _half_of("seen"),
    _half_of("edges"), _half_of("calls"), _old_cycles, _silent_nodes, _half_of("seen"), _old_metrics,
    _half_of("calls"),
)  # fmt: skip
