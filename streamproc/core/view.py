"""What a detector is shown of one turn: the evidence, and the run's memory after it was taken in."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.core.metrics import Flat
from streamproc.core.run import CallMemory, Cycle, Monologue, NodeState, RunState, Streak, Tool
from streamproc.core.window import LEFT, Period
from streamproc.wire import Call, Event, Turn

if TYPE_CHECKING:
    from streamproc.core.rules import Rules


GAP_MS: Final = 30_000  # between two events of a run: a shorter one is nothing to ask detectors about


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
    TOOL = 256  # a tool that answers other calls alike, or fails again
    FAILING = 512  # calls in error in a row, or retries
    STALE = 1024  # a call turn without anything new
    NEAR = 2048  # a long text that is almost an earlier one
    QUERY = 4096  # a query that was asked before
    MONOLOGUE = 8192
    HOP = 16384  # a hand-over that brought nothing new
    ROUND = 32768  # a round, a convergence or a consensus was reported
    CLOCK = 65536  # time has passed: a deadline, or an event that came late
    STARTED = 131072  # run.started, with what it declared
    BOARD = 262144  # a task moved, or was created, delegated, judged; a cycle of the board was completed
    ORDER = 524288  # an operator's order, or a halt that was acknowledged or not
    USAGE = 1048576  # measured spend of tokens or money
    CYCLE = 2097152  # a turn inside a cycle that has had an iteration, under a budget


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
        "budgets", "counts", "cycle", "event", "failed", "flat", "heard_ms", "hop", "index", "iterated", "kinds",
        "monologue", "near", "node", "node_tag", "periods", "query", "repeated", "round_before", "rules", "run", "said",
        "stale", "took_ms", "tools", "turn", "unreadable", "unsafe",
    )  # fmt: skip

    run: RunState
    turn: Turn
    event: Event
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
    stale: bool
    near: int
    tools: tuple[Tool, ...]
    flat: Flat | None
    query: Streak | None
    monologue: Monologue | None
    hop: Hop | None
    budgets: dict[str, int]  # the limits in force: what the run declared, else what policy says
    unsafe: Sequence[Sequence[str]]  # of run.started: the cycles of its graph that nothing can leave
    unreadable: str  # of run.started: why its graph cannot be read
    kinds: int
    heard_ms: int  # log time of the run's last sign of life before this event; 0: there was none
    took_ms: int  # how long this turn was open, where that is known
    round_before: int  # the highest round before this turn's

    def begin(self, run: RunState, turn: Turn, rules: Rules) -> None:
        """Start on a new turn."""
        self.run = run
        self.turn = self.event = turn
        self.rules = rules
        self.index = run.turns
        own, general = run.budgets, rules.budgets
        self.budgets = general | own if own and general else own or general
        self.cycle = self.iterated = None
        self.periods = ()
        self.repeated = ()
        self.said = ()
        self.failed = self.stale = False
        self.tools = ()
        self.near = -1
        self.flat = None
        self.query = None
        self.monologue = None
        self.hop = None
        self.took_ms = 0

    def begin_other(self, run: RunState, event: Event, rules: Rules, kinds: int) -> None:
        """Start on an event that is no turn; `kinds` says who is asked."""
        self.run = run
        self.event = event
        self.rules = rules
        self.index = run.turns
        self.budgets = rules.budgets | run.budgets
        self.cycle = None
        self.kinds = kinds

    def forget_loops(self) -> None:
        """This turn itself brought something new: no round ends with it. Only progress says so of artifacts."""
        if self.run.progress == self.index:
            self.periods = self.repeated = self.tools = ()
            self.hop = self.monologue = None
        elif self.periods:
            self.periods = tuple(period for period in self.periods if period.stream == LEFT)

    def note_kinds(self) -> None:
        """Which detectors there is something to ask."""
        turn = self.turn
        kinds = 0
        if self.budgets:
            cycle = self.cycle
            kinds = 2097153 if cycle is not None and cycle.iterations else 1
        if self.repeated:
            kinds |= 2
        if self.said:
            kinds |= 4
        if self.periods:
            kinds |= 8
        if turn.artifact is not None or turn.docs is not None:
            kinds |= 16
        if turn.tests is not None:
            kinds |= 32
        if self.failed:
            kinds |= 64
        if self.flat is not None:
            kinds |= 128
        if turn.usage is not None:
            kinds |= 1048576
        if self.took_ms or self.run.begun or self.run.at_ms - self.heard_ms >= GAP_MS:
            kinds |= 65536
        if turn.round is not None or turn.convergence is not None or turn.consensus is not None:
            kinds |= 32768
        self.kinds = kinds | self._habits()

    def _habits(self) -> int:
        """The kinds of evidence that take more than a call or a text to see."""
        kinds = 0 if self.run.unheeded < 0 else 524288
        for tool in self.tools:
            if tool.same > 2 or tool.failures[-1]:
                kinds |= 256
        if self.turn.calls and (self.run.failures > 1 or self.run.retries > 1):
            kinds |= 512
        if self.stale:
            kinds |= 1024
        if self.near >= 0:
            kinds |= 2048
        if self.query is not None:
            kinds |= 4096
        if self.monologue is not None:
            kinds |= 8192
        if self.hop is not None and self.hop.times > 1:
            kinds |= 16384
        return kinds
