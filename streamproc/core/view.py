"""What a detector is shown of one turn: the evidence, and the run's memory after it was taken in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from streamproc.core import kind
from streamproc.core.board.change import BoardChange
from streamproc.core.run_state import CallMemory, Cycle, Monologue, NodeState, RunState, Streak, TaskTokens, Tool
from streamproc.core.signals.metrics import Flat
from streamproc.core.signals.periods import LEFT, Period
from streamproc.model.wire import Call, Event, Turn

GAP_MS: Final = 30_000  # between two events of a run: a shorter one is nothing to ask detectors about


UNHEEDED: Final = kind.ORDER  # of a turn after a halt that nobody has acknowledged


class Hop(NamedTuple):
    """A hand-over on an edge, and how many there were in a row with nothing found in between, since which turn."""

    source: str
    target: str
    times: int
    since: int


class View:
    """One turn, or another event, in front of the detectors. The engine uses one object again and again.

    `turn` and what belongs to it is there for turns only; `event` is always what is looked at."""

    __slots__ = (
        "budgets", "counts", "cycle", "event", "flat", "heard_ms", "hop", "index", "iterated", "kinds",
        "monologue", "near", "node", "node_tag", "periods", "query", "repeated", "round_before", "run", "said",
        "step", "task_tokens", "took_ms", "tools", "turn", "unreadable", "unsafe",
    )  # fmt: skip

    run: RunState
    turn: Turn
    event: Event
    index: int
    node: NodeState
    node_tag: int
    counts: list[int]
    cycle: Cycle | None
    iterated: Cycle | None
    periods: tuple[Period, ...]
    repeated: Sequence[tuple[Call, CallMemory]]
    said: tuple[Streak, ...]
    near: int
    tools: Sequence[Tool]
    flat: Flat | None
    query: Streak | None
    step: BoardChange | None  # what an event did to the board; of a turn, that it failed at a task
    monologue: Monologue | None
    task_tokens: TaskTokens
    hop: Hop | None
    budgets: dict[str, int]  # the limits in force: what the run declared, else what policy says
    unsafe: Sequence[Sequence[str]]  # of run.started: the cycles of its graph that nothing can leave
    unreadable: str  # of run.started: why its graph cannot be read
    kinds: int
    heard_ms: int  # log time of the run's last sign of life before this event; 0: there was none
    took_ms: int  # how long this turn was open, where that is known
    round_before: int  # the highest round before this turn's

    def begin(self, run: RunState, turn: Turn, general: dict[str, int]) -> None:
        """Start on a new turn; `general` are the budgets of the policy."""
        self.run = run
        self.turn = self.event = turn
        self.index = run.turns
        own = run.budgets
        self.budgets = (general | own if general else own) if own else general
        self.cycle = self.iterated = None
        self.kinds = 0 if run.unheeded < 0 else UNHEEDED
        self.took_ms = 0

    def begin_other(
        self, run: RunState, event: Event, general: dict[str, int], kinds: int, step: BoardChange | None = None
    ) -> None:
        """Start on an event that is no turn; `kinds` says who is asked."""
        self.run = run
        self.event = event
        self.index = run.turns
        self.budgets = general | run.budgets
        self.cycle = None
        self.step = step
        self.kinds = kinds

    def repeats(self, period: Period) -> None:
        """Note a stream that repeats with a period."""
        self.periods = (*self.periods, period) if self.kinds & kind.PERIOD else (period,)
        self.kinds |= kind.PERIOD

    def hands_over(self, hop: Hop) -> None:
        """Note a hand-over, and whether it brought nothing new."""
        self.hop = hop
        if hop.times > 1:
            self.kinds |= kind.HOP

    def says_again(self, streak: Streak) -> None:
        """Note what a node has said before."""
        self.said = (*self.said, streak) if self.kinds & kind.SAID else (streak,)
        self.kinds |= kind.SAID

    def forget_loops(self) -> None:
        """This turn itself brought something new: no round ends with it. Only progress says so of artifacts."""
        if self.run.progress == self.index:
            self.kinds &= ~kind.LOOPS
        elif self.kinds & kind.PERIOD:
            self.periods = tuple(period for period in self.periods if period.stream == LEFT)
            if not self.periods:
                self.kinds &= ~kind.PERIOD
