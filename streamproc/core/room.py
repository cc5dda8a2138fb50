"""The bound on the whole of a run's memory. Each collection has a cap of its own (`run.py`); here is the cap on
their sum, which a run reaches only if nearly all of them are full at the same time.

Looked at every fourth turn, and after turns with many calls. Nothing but the state decides, so that it does not
matter who stores it and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streamproc.core.run import RunState, dump

TURNS_BETWEEN: Final = 4  # encoding a state takes some microseconds
CALLS_FEW: Final = 4  # a turn with more calls can add much at once
ROOM_BYTES: Final = 2_560  # leaves 1 500 bytes for what four turns can add


def make_room(run: RunState, calls: int) -> None:
    """Forget the oldest, where a run takes up too much after a turn with so many calls; `evicted` counts it."""
    if run.turns % TURNS_BETWEEN and calls <= CALLS_FEW:
        return
    for forget in _LEAST_MISSED_FIRST:
        if len(dump(run)) <= ROOM_BYTES:
            return
        run.evicted += 1
        forget(run)


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
