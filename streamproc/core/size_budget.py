"""The bound on the size of a run's state. Each collection has its own cap (`run_state`); this is the cap on their sum,
which a run reaches only if nearly all collections are full at the same time.

Measuring a state means encoding it, which costs as much as a turn. So every addition subtracts its bytes from
`RunState.size_left` (replacing an entry is free), and the state is measured only when that falls below 0. Rare and
possibly large additions set it to 0. The outcome depends only on the state and the event: it is the same in every
process, however often the state is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streamproc.core.run_state import RunState, dump
from streamproc.core.signals.periods import OWN, own_stream

STATE_BYTES: Final = 3_900  # limit of `size_left`; the guarantee is 4 096, and short numbers may get longer
PASSING_BYTES: Final = 45 + 40  # a monologue and a text-only streak: they come and go, so they are always counted
FULL_BYTES: Final = 3_400  # past this size, the least useful entries are dropped ...
KEPT_BYTES: Final = 3_000  # ... down to this size, or the next turn would have to drop entries again

# Bytes that an event can add besides the entries counted where they are added, with the largest numbers.
TURN_BYTES: Final = 16  # any turn: tags that replace shorter ones
CALL_HASH_BYTES: Final = 8  # each call: hashes that replace shorter ones
TEXT_BYTES: Final = 10  # a text: one hash kept as evidence
RESULT_BYTES: Final = 20  # artifacts and test results: two hashes kept as evidence
OTHER_EVENT_BYTES: Final = 1_100  # an event that is not a turn: a task with the longest id, or a full board


def shrink_to_size(run: RunState) -> None:
    """Measure a state, and drop its least useful entries if it is too large; `evicted` counts each round."""
    size = _size(run)
    if size > FULL_BYTES:
        for drop in _LEAST_USEFUL_FIRST:
            run.evicted += 1
            drop(run)
            size = _size(run)
            if size <= KEPT_BYTES:
                break
    run.size_left = STATE_BYTES - PASSING_BYTES - size


def _size(run: RunState) -> int:
    """Return the size in bytes, without the position in the log: a scan has no position, and must drop entries in the
    same turns as a worker."""
    position = run.partition, run.offset
    run.partition = run.offset = -1
    size = len(dump(run))
    run.partition, run.offset = position
    return size


def _old_occurrences(run: RunState) -> None:
    """Keep the last two occurrences of older calls: they show that the answer is known."""
    for memory in list(run.calls.values())[:-2]:
        del memory.call_turns[:-2], memory.turns[:-2]


def _half_of(name: str) -> Callable[[RunState], None]:
    def drop(run: RunState) -> None:
        entries: dict[Any, Any] = getattr(run, name)
        for key in list(entries)[: len(entries) // 2]:
            del entries[key]

    return drop


def _silent_nodes(run: RunState) -> None:
    oldest = sorted(run.nodes, key=lambda tag: run.nodes[tag].last_turn)
    for tag in oldest[: len(oldest) // 2]:
        del run.nodes[tag]
        run.hash_windows.pop(own_stream(tag), None)


def _rare_nodes(run: RunState) -> None:
    rarest = sorted(run.node_counts, key=lambda tag: run.node_counts[tag][0])
    for tag in rarest[: len(rarest) // 2]:
        del run.node_counts[tag]


def _old_cycles(run: RunState) -> None:
    del run.cycles[: len(run.cycles) // 2]


def _old_metrics(run: RunState) -> None:
    for tag in list(run.metrics)[: len(run.metrics) // 2]:
        del run.metrics[tag]


def _old_texts(run: RunState) -> None:
    del run.recent_simhashes[: len(run.recent_simhashes) // 2]


def _own_streams(run: RunState) -> None:
    for stream in [stream for stream in run.hash_windows if stream >= OWN]:
        del run.hash_windows[stream]


_LEAST_USEFUL_FIRST: Final = (
    _old_occurrences, _half_of("tools"), _half_of("fruitless_handovers"), _half_of("node_names"), _old_texts,
    _rare_nodes, _silent_nodes, _half_of("seen"), _half_of("edges"), _half_of("calls"), _old_cycles, _own_streams,
    _silent_nodes, _half_of("seen"), _old_metrics, _half_of("calls"),
)  # fmt: skip
