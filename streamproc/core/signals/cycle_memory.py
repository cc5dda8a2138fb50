"""What a cycle keeps of its own: its windows of hashes, and when something new last happened in it.

A loop is judged by what its own nodes do. Without a memory of its own, progress in one loop of a run would excuse the
stall of another loop beside it. As long as all turns belong to one cycle, the memory of the run is the cycle's; the
first turn outside, right after one inside, copies it here. From then on `enter_cycle` puts the marks of the cycle in
force for the turns of its nodes, and `leave_cycle` puts those of the run back, to which whatever the turn brought
counts as well. Words of people and a resume end the repetitions of every cycle (`restart_cycles`).

A cycle without a memory goes on with that of the run: one that merges with another, that the run has left for
`AWAY_TURNS`, or in a run whose state is nearly full.

Memory: one row a cycle, with up to four windows. Read by every signal that asks what is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.core.records import Row, Table, ccall, cclass, cfunc, final, i32, i64, u32
from streamproc.core.signals.cycles import NOT_ENTERED, Cycle
from streamproc.core.signals.handovers import Handovers
from streamproc.core.signals.novelty import Novelty
from streamproc.core.signals.periods import ELEMENT_BYTES, OWN, PERIOD_BYTES, WINDOW_BYTES, HashWindow, HeldPeriod

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

AWAY_TURNS: Final = 32  # outside of a cycle in a row: then its memory is dropped, for it costs the run time and room
CYCLE_MEMORY_BYTES: Final = 53  # of a state, without the windows
ROOM_BYTES: Final = 1_000  # of a state, for a memory with four half-full windows; without, it would be dropped at once
CYCLE_STREAMS: Final = 4  # windows of one cycle: a stream each, without those of single nodes


@final
@cclass
class CycleMemory(Row):
    """What one cycle keeps of its own. Key: the id of the cycle.

    While a turn is in the cycle, the cycle's marks are in `run.novelty` and `run.handovers`, and the run's are here.
    """

    last_news: i32  # as in `Novelty`
    last_discovery: i32
    last_result: i32
    last_progress: i32
    last_answer_change: i32
    last_measurement: i32
    last_success: i32
    finder: u32  # as in `Handovers`
    found: i32
    others_found: i32
    last_turn: i32  # of the cycle
    windows: Table  # of `HashWindow`: the cycle's windows of hashes, by stream

    def __init__(self) -> None:
        self.windows = Table(HashWindow, CYCLE_STREAMS)
        super().__init__(self.windows)


@cfunc
def enter_cycle(run: RunState, cycle: Cycle | None) -> None:
    """Put the marks and windows of a cycle in force; None: those of the run."""
    memory: CycleMemory | None
    if run.inside is not None:
        leave_cycle(run)
    if not len(run.cycle_memories):
        return
    memory = run.cycle_memories.find(cycle.key) if cycle is not None else None
    if memory is not None:
        _exchange(run, memory)
        memory.last_turn = run.turns
        run.inside, run.inner_windows = memory, memory.windows


@ccall
def leave_cycle(run: RunState) -> None:
    """Put the marks of the run in force again. What was new in the cycle was new in the run."""
    memory: CycleMemory | None = run.inside
    news: Novelty = run.novelty
    known: Handovers = run.handovers
    if memory is None:
        return
    _exchange(run, memory)
    run.inside = run.inner_windows = None
    news.last_news = max(news.last_news, memory.last_news)
    news.last_discovery = max(news.last_discovery, memory.last_discovery)
    news.last_result = max(news.last_result, memory.last_result)
    news.last_progress = max(news.last_progress, memory.last_progress)
    news.last_answer_change = max(news.last_answer_change, memory.last_answer_change)
    news.last_measurement = max(news.last_measurement, memory.last_measurement)
    news.last_success = max(news.last_success, memory.last_success)
    if memory.found > known.found:
        if memory.finder != known.finder:
            known.others_found = known.found
        known.finder, known.found = memory.finder, memory.found


@cfunc
def _exchange(run: RunState, memory: CycleMemory) -> None:
    """Exchange the marks in force for those that the memory holds."""
    news: Novelty = run.novelty
    known: Handovers = run.handovers
    news.last_news, memory.last_news = memory.last_news, news.last_news
    news.last_discovery, memory.last_discovery = memory.last_discovery, news.last_discovery
    news.last_result, memory.last_result = memory.last_result, news.last_result
    news.last_progress, memory.last_progress = memory.last_progress, news.last_progress
    news.last_answer_change, memory.last_answer_change = memory.last_answer_change, news.last_answer_change
    news.last_measurement, memory.last_measurement = memory.last_measurement, news.last_measurement
    news.last_success, memory.last_success = memory.last_success, news.last_success
    known.finder, memory.finder = memory.finder, known.finder
    known.found, memory.found = memory.found, known.found
    known.others_found, memory.others_found = memory.others_found, known.others_found


@cfunc
def pass_others(run: RunState, inside: Cycle | None, cost_usd_micro: i64, last_event_ms: i64) -> None:
    """Apply a turn to the cycles that it is outside of: it uses none of their time and money, and from now on excuses
    none of their repetitions. The time since the run's last event (0: there was none) is that of the turn."""
    cycle: Cycle
    memory: CycleMemory | None
    for cycle in run.cycles.table.rows:
        if cycle is inside or cycle.spent_before == NOT_ENTERED:
            continue
        cycle.spent_before += cost_usd_micro
        if cycle.since_ms and last_event_ms:
            cycle.since_ms += run.at_ms - last_event_ms
        memory = run.cycle_memories.find(cycle.key)
        if memory is not None:
            if run.turns - memory.last_turn > AWAY_TURNS:
                run.cycle_memories.forget(cycle.key)
        elif run.size_left > ROOM_BYTES and cycle.inside(run.handovers.previous_node):
            _begin(run, run.cycle_memories.add(cycle.key))


def _begin(run: RunState, memory: CycleMemory) -> None:
    """Begin a memory with what the run remembers so far. Memories of cycles that are gone make room."""
    for row in list(run.cycle_memories.rows):
        if run.cycles.table.find(row.key) is None:
            run.cycle_memories.forget(row.key)
    _copy_marks(run, memory)
    memory.last_turn = run.turns - 1
    run.size_left -= CYCLE_MEMORY_BYTES
    for window in run.windows.rows:
        if window.key < OWN and window.tags.size:
            _copy_window(window, memory.windows.add(window.key))
            run.size_left -= WINDOW_BYTES + ELEMENT_BYTES * window.tags.size + PERIOD_BYTES * len(window.held)


@cfunc
def _copy_marks(run: RunState, memory: CycleMemory) -> None:
    news: Novelty = run.novelty
    known: Handovers = run.handovers
    memory.last_news, memory.last_discovery, memory.last_result = news.last_news, news.last_discovery, news.last_result
    memory.last_progress, memory.last_answer_change = news.last_progress, news.last_answer_change
    memory.last_measurement, memory.last_success = news.last_measurement, news.last_success
    memory.finder, memory.found, memory.others_found = known.finder, known.found, known.others_found


def _copy_window(window: HashWindow, copy: HashWindow) -> None:
    size = window.tags.size
    for number, turn in zip(window.tags.last_numbers(size), window.tags.last_turns(size), strict=True):
        copy.tags.push(number, turn)
    held: HeldPeriod
    row: HeldPeriod
    for held in window.held.rows:
        row = copy.held.add(held.key)
        row.matches, row.onset = held.matches, held.onset


@ccall
def restart_cycles(run: RunState) -> None:
    """Let whatever ended the repetitions of the run just now end those of all its cycles."""
    memory: CycleMemory
    window: HashWindow
    leave_cycle(run)
    for memory in run.cycle_memories.rows:
        _copy_marks(run, memory)
        for window in memory.windows.rows:
            window.forget()
