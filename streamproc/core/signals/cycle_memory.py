"""What a cycle keeps of its own: its windows of hashes, and when something new last happened in it.

A loop is judged by what its own nodes do. Without a memory of its own, progress in one loop of a run would excuse the
stall of another loop beside it. As long as all turns belong to one cycle, the memory of the run is the cycle's; the
first turn outside, right after one inside, copies it here. From then on `enter` puts the marks of the cycle in force
for the turns of its nodes, and `leave` puts those of the run back, to which whatever the turn brought counts as well.
Words of people and a resume end the repetitions of every cycle (`reset`).

Of a later cycle, only the marks are copied: the windows of the run hold the tags of all cycles.

A cycle without a memory goes on with that of the run: one that merges with another, that the run has left for
`AWAY_TURNS`, or in a run whose state is nearly full.

Memory: one row a cycle, with up to four windows. Read by every signal that asks what is new.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import Record, Row, Table, ccall, cclass, cfunc, final, i32, i64, u32
from streamproc.core.signals.cycles import CYCLES_MAX, NOT_ENTERED, Cycle
from streamproc.core.signals.handovers import Handovers
from streamproc.core.signals.novelty import Novelty
from streamproc.core.signals.periods import OWN, HashWindow, HeldPeriod, Streams

AWAY_TURNS: Final = 32  # outside of a cycle in a row: then its memory is dropped, for it costs the run time and room
IDLE_TURNS: Final = 8  # after which a memory makes room for others in a full state
CYCLE_STREAMS: Final = 4  # windows of one cycle: a stream each, without those of single nodes


@final
@cclass
class CycleMemory(Row):
    """What one cycle keeps of its own. Key: the id of the cycle.

    While a turn is in the cycle, its marks are in `Novelty` and `Handovers`, and those of the run are here.
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
    def exchange(self, news: Novelty, known: Handovers) -> None:
        """Exchange the marks in force for those that are here."""
        news.last_news, self.last_news = self.last_news, news.last_news
        news.last_discovery, self.last_discovery = self.last_discovery, news.last_discovery
        news.last_result, self.last_result = self.last_result, news.last_result
        news.last_progress, self.last_progress = self.last_progress, news.last_progress
        news.last_answer_change, self.last_answer_change = self.last_answer_change, news.last_answer_change
        news.last_measurement, self.last_measurement = self.last_measurement, news.last_measurement
        news.last_success, self.last_success = self.last_success, news.last_success
        known.finder, self.finder = self.finder, known.finder
        known.found, self.found = self.found, known.found
        known.others_found, self.others_found = self.others_found, known.others_found

    @cfunc
    def copy_marks(self, news: Novelty, known: Handovers) -> None:
        """Copy the marks in force."""
        self.last_news, self.last_discovery, self.last_result = news.last_news, news.last_discovery, news.last_result
        self.last_progress, self.last_answer_change = news.last_progress, news.last_answer_change
        self.last_measurement, self.last_success = news.last_measurement, news.last_success
        self.finder, self.found, self.others_found = known.finder, known.found, known.others_found

    @cfunc
    def add_marks(self, news: Novelty, known: Handovers) -> None:
        """Add the marks that are here to those in force: what was new in the cycle was new in the run."""
        news.last_news = max(news.last_news, self.last_news)
        news.last_discovery = max(news.last_discovery, self.last_discovery)
        news.last_result = max(news.last_result, self.last_result)
        news.last_progress = max(news.last_progress, self.last_progress)
        news.last_answer_change = max(news.last_answer_change, self.last_answer_change)
        news.last_measurement = max(news.last_measurement, self.last_measurement)
        news.last_success = max(news.last_success, self.last_success)
        if self.found > known.found:
            if self.finder != known.finder:
                known.others_found = known.found
            known.finder, known.found = self.finder, self.found


@final
@cclass
class CycleMemories(Record):
    """The memories of the cycles of a run, and the one whose marks and windows are in force."""

    crowded: i32  # turn in which they were dropped because the state was full; -1: never
    table: Table  # of `CycleMemory`, by cycle
    inside: CycleMemory | None  # the one in force; None between events
    novelty: Novelty  # the marks in force; stored beside this record, as those below
    handovers: Handovers
    streams: Streams

    def __init__(self, novelty: Novelty, handovers: Handovers, streams: Streams) -> None:
        self.novelty, self.handovers, self.streams, self.inside = novelty, handovers, streams, None
        self.table = Table(CycleMemory, CYCLES_MAX)
        super().__init__(self.table)

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.crowded = -1

    def drop_idle(self, turn: int) -> None:
        """Drop the memories of cycles that had no turn for a while, because the state is full."""
        for row in list(self.table.rows):
            if turn - row.last_turn > IDLE_TURNS:
                self.table.forget(row.key)

    def drop(self, turn: int) -> None:
        """Drop all memories, because the state is full. New ones would be dropped at once, so none begins for a while:
        the cycles go on with the memory of the run."""
        if len(self.table):
            self.table.clear()
            self.crowded = turn

    @cfunc
    def _is_crowded(self, turn: i32) -> bool:
        return self.crowded >= 0 and turn - self.crowded <= IDLE_TURNS

    @ccall
    def reset(self) -> None:
        """Let whatever ended the repetitions of the run just now end those of all its cycles."""
        memory: CycleMemory
        window: HashWindow
        self.leave()
        for memory in self.table.rows:
            memory.copy_marks(self.novelty, self.handovers)
            for window in memory.windows.rows:
                window.forget()

    @cfunc
    def enter(self, cycle: Cycle | None, index: i32) -> None:
        """Put the marks and windows of a cycle in force; None: those of the run."""
        memory: CycleMemory | None
        if self.inside is not None:
            self.leave()
        if not len(self.table):
            return
        memory = self.table.find(cycle.key) if cycle is not None else None
        if memory is not None:
            memory.exchange(self.novelty, self.handovers)
            memory.last_turn = index
            self.inside, self.streams.cycle_windows = memory, memory.windows

    @ccall
    def leave(self) -> None:
        """Put the marks and windows of the run in force again."""
        memory: CycleMemory | None = self.inside
        if memory is not None:
            memory.exchange(self.novelty, self.handovers)
            memory.add_marks(self.novelty, self.handovers)
            self.inside = self.streams.cycle_windows = None

    @cfunc
    def pass_others(self, now: Now, cycles: Table, inside: Cycle | None, cost_usd_micro: i64) -> None:
        """Apply a turn to the cycles that it is outside of: it uses none of their time and money, and from now on
        excuses none of their repetitions. The time since the run's last event is that of the turn."""
        cycle: Cycle
        memory: CycleMemory | None
        for cycle in cycles.rows:
            if cycle is inside or cycle.spent_before == NOT_ENTERED:
                continue
            cycle.spent_before += cost_usd_micro
            if cycle.since_ms and now.last_event_ms:
                cycle.since_ms += now.at_ms - now.last_event_ms
            memory = self.table.find(cycle.key)
            if memory is not None:
                if now.index - memory.last_turn > AWAY_TURNS:
                    self.table.forget(cycle.key)
            elif cycle.inside(self.handovers.previous_node) and not self._is_crowded(now.index):
                self._begin(self.table.add(cycle.key), cycles, now.index)

    def _begin(self, memory: CycleMemory, cycles: Table, index: int) -> None:
        """Begin a memory with what the run remembers so far: its windows, as long as there is no other cycle. Memories
        of cycles that are gone make room."""
        for row in list(self.table.rows):
            if cycles.find(row.key) is None:
                self.table.forget(row.key)
        memory.copy_marks(self.novelty, self.handovers)
        memory.last_turn = index - 1
        for window in self.streams.windows.rows if len(self.table) == 1 else ():
            if window.key < OWN and window.tags.size:
                _copy_window(window, memory.windows.add(window.key))


def _copy_window(window: HashWindow, copy: HashWindow) -> None:
    size = window.tags.size
    for number, turn in zip(window.tags.last_numbers(size), window.tags.last_turns(size), strict=True):
        copy.tags.push(number, turn)
    held: HeldPeriod
    row: HeldPeriod
    for held in window.held.rows:
        row = copy.held.add(held.key)
        row.matches, row.onset = held.matches, held.onset
