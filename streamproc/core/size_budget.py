"""The bound on the size of a run's state. Each collection has its own cap; this is the cap on their sum, which a run
reaches only if nearly all collections are full at the same time.

A state is measured whenever it is packed, after each event, and the least useful entries of one that is too large are
dropped. The outcome depends only on the state and the event: it is the same in every process, compiled or not, however
often the state is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from streamproc.core.run_state import RunState
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.periods import OWN, own_stream
from streamproc.core.signals.spend import NodeCounts

FULL_BYTES: Final = 3_760  # past this size, the least useful entries are dropped ...
KEPT_BYTES: Final = 3_200  # ... down to this size, or the next turn would have to drop entries again

Find: TypeAlias = Callable[[RunState], Any]  # returns a part of a state
Drop: TypeAlias = tuple[Callable[[RunState], int], Callable[[RunState], object]]
"""How many bytes a part of the state takes, and a function that drops some of its entries."""


def shrink(run: RunState) -> int:
    """Drop the least useful entries of a state that is larger than `FULL_BYTES`; `evicted` counts each round. Return
    the size of the state. Only the part that a round drops from is measured again: all of them would take longer than
    the turn."""
    size = run.size_bytes()
    if size <= FULL_BYTES:
        return size
    for size_of, drop in _LEAST_USEFUL_FIRST:
        if size <= KEPT_BYTES:
            return size
        size += _dropped(run, size_of, drop)
    for size_of, drop in _LAST:
        if size <= FULL_BYTES:
            break
        size += _dropped(run, size_of, drop)
    return size


def _dropped(run: RunState, size_of: Callable[[RunState], int], drop: Callable[[RunState], object]) -> int:
    run.evicted += 1
    before = size_of(run)
    drop(run)
    return size_of(run) - before


def _of(find: Find, drop: Callable[[RunState], object]) -> Drop:
    return lambda run: find(run).size_bytes(), drop


def _half(find: Find) -> Drop:
    """Drop the older half of a table or a set."""

    def drop(run: RunState) -> None:
        part = find(run)
        part.keep_last(len(part) - len(part) // 2)

    return _of(find, drop)


def _all(find: Find) -> Drop:
    return _of(find, lambda run: find(run).clear())


def _of_cold(drop: Callable[[RunState], object]) -> Drop:
    return lambda run: run.size_of_cold(), drop


def _old_occurrences(run: RunState) -> None:
    """Keep the last two occurrences of older calls: they show that the answer is known."""
    for memory in run.calls.table.rows[:-2]:
        memory.times.keep_last(2)


def _half_of_names(run: RunState) -> None:
    names = run.cold.node_names
    for tag in list(names)[: len(names) // 2]:
        del names[tag]


def _old_recent_calls(run: RunState) -> None:
    log = run.cold.recent_calls
    del log[: len(log) - len(log) // 2]


def _idle_task_tokens(run: RunState) -> None:
    kept = run.cold.task_tokens
    for task in list(kept)[: len(kept) // 2]:
        del kept[task]


def _silent_nodes(run: RunState) -> None:
    least_useful = [node.key for node in sorted(run.nodes.rows, key=_use_of_node)]
    for tag in least_useful[: len(least_useful) // 2]:
        run.nodes.forget(tag)
        run.streams.windows.forget(own_stream(tag))


def _use_of_node(node: NodeState) -> tuple[bool, int]:
    """Nodes that repeat something stay, and of the others those that have acted last."""
    return node.repeats(), node.last_turn


def _rare_nodes(run: RunState) -> None:
    rarest = [counts.key for counts in sorted(run.node_counts.rows, key=_turns)]
    for tag in rarest[: len(rarest) // 2]:
        run.node_counts.forget(tag)


def _turns(counts: NodeCounts) -> int:
    return counts.turns


def _old_texts(run: RunState) -> None:
    kept = run.long_texts.sims.size - run.long_texts.sims.size // 2
    run.long_texts.sims.keep_last(kept)
    run.long_texts.turns.keep_last(kept)


def _own_streams(run: RunState) -> None:
    for window in list(run.streams.windows.rows):
        if window.key >= OWN:
            run.streams.windows.forget(window.key)


def _names_of_open_turns(run: RunState) -> None:
    for turn in run.open_turns:
        turn.name = ""


_CALLS: Final = _half(lambda run: run.calls.table)
_SEEN: Final = _half(lambda run: run.novelty.seen)
_NODES: Final = lambda run: run.nodes.size_bytes() + run.streams.size_bytes(), _silent_nodes
_LEAST_USEFUL_FIRST: Final[tuple[Drop, ...]] = (
    _of(lambda run: run.cycle_memories, lambda run: run.cycle_memories.drop_idle(run.turns)),
    _of(lambda run: run.calls, _old_occurrences),
    _half(lambda run: run.tools.table),
    _of(lambda run: run.callers, lambda run: run.callers.drop_half()),
    _half(lambda run: run.handovers.fruitless),
    _of_cold(_half_of_names),
    _of(lambda run: run.long_texts, _old_texts),
    _NODES,
    _half(lambda run: run.cycles.edges),
    _CALLS,
    _SEEN,
    _of(lambda run: run.cycle_memories, lambda run: run.cycle_memories.drop(run.turns)),
    _of(lambda run: run.streams, _own_streams),
    _NODES,
    _SEEN,
    _half(lambda run: run.metrics),
    _CALLS,
)
# Of a run whose scope, board and open turns have the longest names, or that has many nodes: what is left may still be
# too large. What is counted for a budget goes after what only shows repetitions: a limit that is forgotten is none.
_LAST: Final[tuple[Drop, ...]] = (
    _all(lambda run: run.metrics),
    _all(lambda run: run.tools.table),
    _all(lambda run: run.callers.table),
    _all(lambda run: run.streams.windows),
    _all(lambda run: run.calls.table),
    _of_cold(_names_of_open_turns),
    _of_cold(lambda run: run.cold.plugins.clear()),
    _of_cold(lambda run: run.cold.ended_tasks.clear()),
    _of_cold(_old_recent_calls),
    _of(lambda run: run.node_counts, _rare_nodes),
    _half(lambda run: run.cycles.table),
    _of(lambda run: run.event_ids, lambda run: run.event_ids.keep_last(run.event_ids.size // 2)),
    _half(lambda run: run.escalation.episodes),
    _of_cold(_idle_task_tokens),
)
