"""What a detector reads about one turn: the evidence, and the state of the run after the turn was applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamproc.core import kind
from streamproc.core.board.change import BoardChange
from streamproc.core.marks import BudgetMarks, Marks, Switches
from streamproc.core.names import Names
from streamproc.core.plugin_memory import load_memory
from streamproc.core.records import ccall, cclass, cfunc, final, i32, i64, u32, u64
from streamproc.core.run_state import RunState
from streamproc.core.signals.calls import Repeat
from streamproc.core.signals.cycles import Cycle
from streamproc.core.signals.metrics import Flat
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.periods import ARTIFACTS, OWN, Period
from streamproc.core.signals.recent_calls import Recent
from streamproc.core.signals.spend import NodeCounts
from streamproc.core.signals.streaks import Said
from streamproc.core.signals.task_tokens import TaskTokens
from streamproc.core.signals.tools import ToolAnswers
from streamproc.model.wire import Event, Turn

if TYPE_CHECKING:
    from streamproc.core.rules import Rules

AGAIN: Final = 50  # turns after which a long run is looked at again: its policy may be new
GAP_MS: Final = 30_000  # detectors are not asked about shorter pauses between two events of a run


class Handover(NamedTuple):
    """A handover on an edge of the graph. `times` counts those in a row with nothing found in between."""

    source: str  # node names
    target: str
    times: int
    since: int  # turn of the first of them


@final
@cclass
class InForce:
    """What counts for the runs of one scope."""

    rules: Rules
    budgets: Mapping[str, int]  # those that the run declared, over the policy's
    limits: BudgetMarks
    marks: Marks
    switches: Switches

    def __init__(self, rules: Rules, budgets: Mapping[str, int], limits: BudgetMarks) -> None:
        self.rules, self.budgets, self.limits = rules, budgets, limits
        self.marks, self.switches = rules.marks, rules.switches


@final
@cclass
class View:
    """One turn or other event, as detectors read it. An engine has a single view and reuses it for every event.

    `event` is always set. Fields that describe a turn are valid for turns only, and evidence only while `kinds` has
    its bit.
    """

    last_event_ms: i64  # log time of the event before this one; 0: there was none
    took_ms: i64  # log time from the start of this turn to its end; 0: not known
    round_before: u64  # the highest round reported before this turn
    index: i32  # of the turn, from 0
    near: i32  # turn of a long text almost equal to this turn's; -1: none
    node_tag: u32
    topic: u32  # what the turn is about: its task and its request; 0: it does not say
    kinds: u32  # bits of `kind`
    marks: Marks  # of the policy in force
    limits: BudgetMarks  # of the budgets in force
    switches: Switches  # of the policy in force
    names: Names  # tags of names
    tag: Callable[[str], int]  # returns the tag of a name
    run: RunState  # state of the run, with this turn or event applied
    turn: Turn
    event: Event  # the turn or other event
    node: NodeState  # memory of the turn's node
    counts: NodeCounts  # turns and runtime of the turn's node
    cycle: Cycle | None  # the cycle that the turn's node is in
    iterated: Cycle | None  # the cycle of which the turn completed an iteration
    periods: tuple[Period, ...]  # streams that repeat
    repeated: Sequence[Repeat]  # calls whose answers are known; of polls, IDLE or OVER (`calls`)
    recent: Sequence[Recent]  # calls that were made in recent call turns, too; only if the policy's gate counts them
    said: tuple[Said, ...]  # texts and structured outputs that the node repeated
    tools: tuple[ToolAnswers, ...]  # tools whose answers may be a loop
    flat: Flat | None  # the metric that has been flat for longest
    board_change: BoardChange | None  # what the event changed on the board; of a turn, its failure at a task
    task_tokens: TaskTokens  # of a task that reached a level of its budget
    handover: Handover | None
    budgets: Mapping[str, int]  # limits in force: those that the run declared over those of the policy
    unsafe: Sequence[Sequence[str]]  # run.started: cycles of its graph without a way out
    unreadable: str  # run.started: why its graph cannot be read
    memories: dict[str, Any]  # what plug-ins keep, by code, as far as it was read for this event

    def __init__(self, names: Names) -> None:
        self.names, self.tag = names, names.tag
        self.memories = {}

    def memory(self, code: str) -> dict[str, Any]:
        """Return what the plug-in with this code keeps of the run, to be changed in place. It is stored after its
        `check`, unless that raises (`plugin_memory` has the limits)."""
        memory: dict[str, Any] | None = self.memories.get(code)
        if memory is None:
            memory = self.memories[code] = load_memory(self.run, code)
        return memory

    @ccall
    def begin(self, run: RunState, turn: Turn, force: InForce) -> None:
        """Prepare for a turn."""
        marks: Marks = force.marks
        halt: i32 = run.escalation.unacknowledged_halt
        self.run = run
        self.turn = self.event = turn
        self.index = run.turns
        self.budgets = force.budgets
        self.cycle = self.iterated = None
        self.marks, self.limits, self.switches = marks, force.limits, force.switches
        self.kinds = kind.UNACKNOWLEDGED if halt >= 0 and run.turns - halt >= marks.unacknowledged_turns else 0
        turns: i64 = run.turns + 1
        if turns >= marks.long_turns and (
            marks.long_turns <= 1 or turns in (marks.long_turns, marks.long_halt) or turns % AGAIN == 0
        ):
            self.kinds |= kind.LONG
        self.took_ms = 0

    @ccall
    def begin_other(
        self, run: RunState, event: Event, budgets: Mapping[str, int], kinds: u32, board_change: BoardChange | None
    ) -> None:
        """Prepare for an event that is not a turn; `kinds` selects the detectors."""
        self.run = run
        self.event = event
        self.index = run.turns
        self.budgets = budgets
        self.cycle = None
        self.board_change = board_change
        self.kinds = kinds

    @cfunc
    def add_period(self, period: Period) -> None:
        """Add a stream that repeats with a period."""
        self.periods = (*self.periods, period) if self.kinds & kind.PERIOD else (period,)
        self.kinds |= kind.PERIOD

    @cfunc
    def set_handover(self, source: Any, target: Any, times: u32, since: i32) -> None:
        """Set the handover, if it is not the first in a row that brought nothing new."""
        if times > 1:
            self.handover = Handover(source, target, times, since)
            self.kinds |= kind.HANDOVER

    @cfunc
    def add_repeated_text(self, said: Said) -> None:
        """Add a text or structured output that the node repeated."""
        self.said = (*self.said, said) if self.kinds & kind.SAID else (said,)
        self.kinds |= kind.SAID

    @cfunc
    def clear_loops(self) -> None:
        """Remove evidence of loops: this turn brought something new. Only progress clears periods of artifacts;
        those of a node's own stream have a gate of their own."""
        if self.run.novelty.last_progress == self.index:
            self.kinds &= ~kind.LOOPS
        elif self.kinds & kind.PERIOD:
            self.periods = tuple([one for one in self.periods if one.stream == ARTIFACTS or one.stream >= OWN])
            if not self.periods:
                self.kinds &= ~kind.PERIOD
