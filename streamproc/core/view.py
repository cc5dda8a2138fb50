"""What a detector reads about one turn: the evidence, and the state of the run after the turn was applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from streamproc.core import kind
from streamproc.core.board.change import BoardChange
from streamproc.core.decision import Finding
from streamproc.core.detector_memory import load_memory, store_memory
from streamproc.core.marks import BudgetMarks, InForce, Marks, Switches
from streamproc.core.names import Names
from streamproc.core.now import Now
from streamproc.core.records import ccall, cclass, cfunc, final, i32, i64, u32, u64
from streamproc.core.run_state import RunState
from streamproc.core.signals.calls import Repeat
from streamproc.core.signals.cycles import Cycle
from streamproc.core.signals.metrics import Flat
from streamproc.core.signals.periods import Period
from streamproc.core.signals.recent_calls import Recent
from streamproc.core.signals.spend import NodeCounts
from streamproc.core.signals.streaks import Said
from streamproc.core.signals.task_attempts import TaskAttempt
from streamproc.core.signals.task_tokens import TaskTokens
from streamproc.core.signals.tools import ToolAnswers
from streamproc.model.wire import Event, Turn

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
class View(Now):
    """One turn or other event, as detectors read it. An engine has a single view and reuses it for every event.

    `event` is always set. Fields that describe a turn are valid for turns only, and evidence only while `kinds` has
    its bit.
    """

    took_ms: i64  # log time from the start of this turn to its end; 0: not known
    round_before: u64  # the highest round reported before this turn
    kinds: u64  # bits of `kind`
    turn_before: i32  # of the turn's node; -1: this is its first
    limits: BudgetMarks  # of the budgets in force
    switches: Switches  # of the policy in force
    run: RunState  # state of the run, with this turn or event applied
    event: Event  # the turn or other event
    counts: NodeCounts  # turns and runtime of the turn's node
    cycle: Cycle | None  # the cycle that the turn's node is in
    iterated: Cycle | None  # the cycle of which the turn completed an iteration
    periods: tuple[Period, ...]  # streams that repeat
    repeated: Sequence[Repeat]  # calls whose answers are known; of polls, IDLE or OVER (`calls`)
    recent: Sequence[Recent]  # calls that were made in recent call turns, too; only if the policy's gate counts them
    near: Sequence[int]  # turns of recent long texts that are almost equal to this turn's
    said: tuple[Said, ...]  # texts and structured outputs that the node repeated
    tools: tuple[ToolAnswers, ...]  # tools whose answers may be a loop
    flat: Flat | None  # the metric that has been flat for longest
    board_change: BoardChange | None  # what the event changed on the board; of a turn, its failure at a task
    task_tokens: TaskTokens  # of a task that reached a level of its budget
    task_attempt: TaskAttempt | None  # that failed like the one before at its task; only if every error counts
    handover: Handover | None
    budgets: Mapping[str, int]  # limits in force: those that the run declared over those of the policy
    unsafe: Sequence[Sequence[str]]  # run.started: cycles of its graph without a way out
    unreadable: str  # run.started: why its graph cannot be read
    warned: list[Finding]  # warnings of this turn that are reported, for detectors that read those
    memories: dict[str, Any]  # what the detector that is being asked keeps, by code, if it has read that

    def __init__(self, names: Names) -> None:
        self.names, self.tag = names, names.tag
        self.memories, self.warned = {}, []

    def memory(self, code: str) -> dict[str, Any]:
        """Return what the detector with this code keeps of the run, to be changed in place. It is stored after its
        `check`, unless that raises (`detector_memory` has the limits)."""
        memory: dict[str, Any] | None = self.memories.get(code)
        if memory is None:
            memory = self.memories[code] = load_memory(self.run, code)
        return memory

    def store_memory(self, code: str) -> None:
        """Store what the `check` of a detector has read or changed. Raises `ValueError` for too much of it, or for that
        of another detector, and `TypeError` for what cannot be stored."""
        memories, self.memories = self.memories, {}
        if memories.keys() != {code}:
            raise ValueError(f"{code} reads the memory of {', '.join(memories.keys() - {code})}")
        store_memory(self.run, code, memories[code])

    @ccall
    def begin(self, run: RunState, turn: Turn, force: InForce) -> None:
        """Prepare for a turn."""
        marks: Marks = force.marks
        halt: i32 = run.escalation.unacknowledged_halt
        self._see(run)
        self.turn = self.event = turn
        self.budgets = force.budgets
        self.cycle = self.iterated = None
        self.call_turns, self.started_ms = run.call_turns, run.started_ms
        self.halt_seen = max(run.halted, run.escalation.halted_loop_seen)
        self.marks, self.limits, self.switches = marks, force.limits, force.switches
        self.kinds = kind.UNACKNOWLEDGED if halt >= 0 and run.turns - halt >= marks.unacknowledged_turns else 0
        turns: i64 = run.turns + 1
        if turns >= marks.long_turns and (
            marks.long_turns <= 1 or turns in (marks.long_turns, marks.long_halt) or turns % AGAIN == 0
        ):
            self.kinds |= kind.LONG
        if turn.stop_reason:
            self.kinds |= kind.UNFINISHED
        if turn.findings is not None:
            self.kinds |= kind.REVIEWED
        self.took_ms = 0

    @cfunc
    def _see(self, run: RunState) -> None:
        self.run, self.novelty, self.streams = run, run.novelty, run.streams
        self.index, self.at_ms = run.turns, run.at_ms
        self.streams.seen = ()
        if self.memories or self.warned:  # of a step that was interrupted
            self.memories, self.warned = {}, []

    @ccall
    def begin_other(
        self, run: RunState, event: Event, budgets: Mapping[str, int], kinds: u64, board_change: BoardChange | None
    ) -> None:
        """Prepare for an event that is not a turn; `kinds` selects the detectors."""
        self._see(run)
        self.event = event
        self.budgets = budgets
        self.cycle = None
        self.board_change = board_change
        self.kinds = kinds

    @cfunc
    def set_handover(self, source: Any, target: Any, times: u32, since: i32) -> None:
        """Set the handover, if it is not the first in a row that brought nothing new."""
        if times > 1:
            self.handover = Handover(source, target, times, since)
            self.kinds |= kind.HANDOVER

    @cfunc
    def excuse_loops(self) -> None:
        """Drop evidence of loops if this turn brought something new, and show the periods that are left."""
        if self.novelty.last_news == self.index:
            if self.novelty.last_progress == self.index:
                self.kinds &= ~kind.LOOPS
                self.streams.seen = ()
            else:
                self.streams.excuse()
        if self.streams.seen:
            self.periods = self.streams.seen
            self.kinds |= kind.PERIOD
