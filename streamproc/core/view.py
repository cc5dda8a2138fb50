"""What a detector is shown of one turn: the evidence, and the run's memory after it was taken in."""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING

from streamproc.core.run import CallMemory, Cycle, NodeState, RunState, Streak
from streamproc.core.window import LEFT, Period
from streamproc.wire import Call, Turn

if TYPE_CHECKING:
    from streamproc.core.rules import Rules


class Kind(IntFlag):
    """Kinds of evidence. A detector is only asked about turns that bring one of its kinds."""

    BUDGET = 1  # any turn of a run on which somebody declared a budget
    REPEATED_CALL = 2  # a call with an answer that it had before
    SAID = 4  # a text or structured output that its node said last time, too
    PERIOD = 8  # a stream that repeats with a period
    ARTIFACT = 16
    TESTS = 32
    ERRORS = 64
    METRIC = 128


class View:
    """One turn in front of the detectors. The engine uses one object again and again."""

    __slots__ = (
        "budgets", "counts", "cycle", "failed", "index", "iterated", "kinds", "node", "node_tag", "periods", "repeated",
        "rules", "run", "said", "turn",
    )  # fmt: skip

    run: RunState
    turn: Turn
    rules: Rules
    index: int
    node: NodeState
    node_tag: int
    counts: list[int]
    cycle: Cycle | None
    iterated: Cycle | None
    periods: tuple[Period, ...]
    repeated: tuple[tuple[Call, CallMemory], ...]
    said: tuple[Streak, ...]
    failed: bool
    budgets: dict[str, int]  # the limits in force: what the run declared, else what policy says
    kinds: int

    def begin(self, run: RunState, turn: Turn, rules: Rules) -> None:
        """Start on a new turn."""
        self.run = run
        self.turn = turn
        self.rules = rules
        self.index = run.turns
        own, general = run.budgets, rules.budgets
        self.budgets = general | own if own and general else own or general
        self.cycle = self.iterated = None
        self.periods = ()
        self.repeated = ()
        self.said = ()
        self.failed = False

    def forget_loops(self) -> None:
        """This turn itself brought something new: no round ends with it. Only progress says so of artifacts."""
        if self.run.progress == self.index:
            self.periods = self.repeated = ()
        elif self.periods:
            self.periods = tuple(period for period in self.periods if period.stream == LEFT)

    def note_kinds(self) -> None:
        """Which detectors there is something to ask."""
        turn = self.turn
        kinds = 1 if self.budgets else 0
        if self.repeated:
            kinds |= 2
        if self.said:
            kinds |= 4
        if self.periods:
            kinds |= 8
        if turn.artifact is not None:
            kinds |= 16
        if turn.tests is not None:
            kinds |= 32
        if self.failed:
            kinds |= 64
        if turn.progress:
            kinds |= 128
        self.kinds = kinds
