"""The bound on the size of a run's state. Each collection has its own cap; this is the cap on their sum, which a run
reaches only if nearly all collections are full at the same time.

A state is measured whenever it is packed, after each event, and the least useful entries of one that is too large are
dropped. The outcome depends only on the state and the event: it is the same in every process, compiled or not, however
often the state is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamproc.core.records import Table
from streamproc.core.run_state import RunState
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.periods import OWN, own_stream
from streamproc.core.signals.spend import NodeCounts

FULL_BYTES: Final = 3_760  # past this size, the least useful entries are dropped ...
KEPT_BYTES: Final = 3_200  # ... down to this size, or the next turn would have to drop entries again


def shrink(run: RunState) -> None:
    """Drop the least useful entries of a state that is larger than `FULL_BYTES`; `evicted` counts each round."""
    for drops, enough in ((_LEAST_USEFUL_FIRST, KEPT_BYTES), (_LAST, FULL_BYTES)):
        for drop in drops:
            if run.size_bytes() <= enough:
                return
            run.evicted += 1
            drop(run)
        if run.size_bytes() <= FULL_BYTES:
            return


def _old_occurrences(run: RunState) -> None:
    """Keep the last two occurrences of older calls: they show that the answer is known."""
    for memory in run.calls.table.rows[:-2]:
        memory.times.keep_last(2)


def _half(table: Table) -> None:
    table.keep_last(len(table) - len(table) // 2)


def _half_of_names(run: RunState) -> None:
    names = run.cold.node_names
    for tag in list(names)[: len(names) // 2]:
        del names[tag]


def _silent_nodes(run: RunState) -> None:
    oldest = [node.key for node in sorted(run.nodes.rows, key=_last_turn)]
    for tag in oldest[: len(oldest) // 2]:
        run.nodes.forget(tag)
        run.streams.windows.forget(own_stream(tag))


def _last_turn(node: NodeState) -> int:
    return node.last_turn


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


def _memories_of_idle_cycles(run: RunState) -> None:
    run.cycle_memories.drop_idle(run.turns)


def _memories_of_cycles(run: RunState) -> None:
    run.cycle_memories.drop(run.turns)


def _half_of_seen(run: RunState) -> None:
    run.novelty.seen.keep_last(len(run.novelty.seen) - len(run.novelty.seen) // 2)


def _half_of_tools(run: RunState) -> None:
    _half(run.tools.table)


def _half_of_handovers(run: RunState) -> None:
    _half(run.handovers.fruitless)


def _half_of_edges(run: RunState) -> None:
    _half(run.cycles.edges)


def _half_of_calls(run: RunState) -> None:
    _half(run.calls.table)


def _half_of_cycles(run: RunState) -> None:
    _half(run.cycles.table)


def _half_of_metrics(run: RunState) -> None:
    _half(run.metrics)


def _all_metrics(run: RunState) -> None:
    run.metrics.clear()


def _all_tools(run: RunState) -> None:
    run.tools.table.clear()


def _all_calls(run: RunState) -> None:
    run.calls.table.clear()


def _all_streams(run: RunState) -> None:
    run.streams.windows.clear()


def _half_of_ids(run: RunState) -> None:
    run.event_ids.keep_last(run.event_ids.size // 2)


def _half_of_episodes(run: RunState) -> None:
    _half(run.escalation.episodes)


def _names_of_open_turns(run: RunState) -> None:
    for turn in run.open_turns:
        turn.name = ""


def _ends_of_tasks(run: RunState) -> None:
    run.cold.ended_tasks.clear()


def _memories_of_plugins(run: RunState) -> None:
    run.cold.plugins.clear()


_LEAST_USEFUL_FIRST: Final[tuple[Callable[[RunState], None], ...]] = (
    _memories_of_idle_cycles, _old_occurrences, _half_of_tools, _half_of_handovers, _half_of_names, _old_texts,
    _silent_nodes, _half_of_seen, _half_of_edges, _half_of_calls, _half_of_cycles, _memories_of_cycles, _own_streams,
    _silent_nodes, _half_of_seen, _half_of_metrics, _half_of_calls, _rare_nodes,
)  # fmt: skip
# Of a run whose scope, board and open turns have the longest names: what is left may still be too large.
_LAST: Final[tuple[Callable[[RunState], None], ...]] = (
    _all_metrics, _all_tools, _all_streams, _all_calls, _names_of_open_turns, _memories_of_plugins, _ends_of_tasks,
    _half_of_ids, _half_of_episodes,
)  # fmt: skip
