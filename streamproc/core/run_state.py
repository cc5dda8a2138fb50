"""The bounded memory of one run: what all signals keep, and how it is stored.

Each signal owns its records, in its own file, and every collection has a cap with its reason. When one is full, its
oldest entry is dropped and `evicted` counts it. Hashes that are only compared within windows and sets are stored as
32-bit *tags*: each comparison matches by accident once in 4·10⁹, and a halt needs several matches in a row. Answers of
calls keep all 64 bits.

A state is stored as bytes: the version and a hash of the layout, the numbers of `RunState`, the scope as MessagePack,
the parts, and what few runs have (`Cold`) as MessagePack.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from streamproc.core.cold import NO_COLD, Cold, read_cold, write_cold
from streamproc.core.escalation import HALT_LEVEL, Escalation
from streamproc.core.records import (
    Part,
    Reader,
    Record,
    StateError,
    Table,
    Values,
    Writer,
    ccall,
    cclass,
    cfunc,
    final,
    flag,
    i32,
    i64,
    u32,
    u64,
)
from streamproc.core.scope import NO_SCOPE, NO_SCOPE_RAW, Scope, kept_scope, read_scope, write_scope
from streamproc.core.signals.callers import Callers
from streamproc.core.signals.calls import CallMemory, Calls
from streamproc.core.signals.cycle_memory import CycleMemories, CycleMemory
from streamproc.core.signals.cycles import Cycles
from streamproc.core.signals.evidence import RecentHashes
from streamproc.core.signals.handovers import Handovers
from streamproc.core.signals.metrics import METRICS_MAX, Metric
from streamproc.core.signals.monologues import Monologue
from streamproc.core.signals.node_errors import Attempt
from streamproc.core.signals.nodes import NODES_MAX, NodeState
from streamproc.core.signals.novelty import Novelty
from streamproc.core.signals.pace import Pace
from streamproc.core.signals.periods import HashWindow, HeldPeriod, Streams
from streamproc.core.signals.replies import Messages
from streamproc.core.signals.reruns import Reruns
from streamproc.core.signals.similarity import LongTexts
from streamproc.core.signals.spend import COUNTS_MAX, Ledger, NodeCounts
from streamproc.core.signals.statements import Pending
from streamproc.core.signals.text_streaks import TextStreak
from streamproc.core.signals.tools import Tools
from streamproc.model.log_time import AT_MS_MAX

IDS_MAX: Final = 24  # event ids; a producer resends what was in flight, which is a handful
STATE_VERSION: Final = 6

LAYOUT: Final = 336247800  # a hash of all records, which a test computes again
HEAD: Final = struct.pack("<BI", STATE_VERSION, LAYOUT)  # before the numbers
HEAD_2: Final = struct.pack("<BI", 2, 1246357637)  # without the `LATER` parts
OLDER: Final = (5, 264164461), (4, 3293786864), (3, 2561096963)  # no `callers`; no `reruns` either; and no `crowded`
HEADS: Final = (HEAD, *(struct.pack("<BI", *older) for older in OLDER), HEAD_2)  # that are read
LATER: Final = 4  # parts at the end that version 2 did not have: they begin blank
TURNS_MAX: Final = 2**31 - 2**16  # indices of turns are 32-bit numbers
UNBOUND: Final = 1  # value of `owner`: the first event had no token, so tokens mean nothing


@final
@cclass
class RunState(Record):
    """Everything that is kept of a run between two events. Turns are indices from 0; -1 means never."""

    offset: i64  # of the last event applied
    at_ms: i64  # log time of the last event
    started_ms: i64  # log time of the first event
    checked_ms: i64  # latest deadline that the detectors were asked about
    owner: u64  # hash of the token that the run is bound to; 0: no event yet
    round: u64  # highest round reported
    partition: i32  # of the turns topic; -1: not on Kafka
    turns: i32  # number of turns
    halted: i32  # turn of the last halt
    graphs: u32  # number of graphs that the run has declared
    call_turns: u32  # turns of the last caller with calls, without those in which only the infrastructure failed
    duplicates: u32  # events skipped because their id was known
    late: u32  # events after `run.finished`
    evicted: u32  # entries dropped from full collections
    ignored_events: u32  # events that have no meaning here, such as a resume of a run that is not halted
    id_reuses: u32  # how often the run id was used again after its run had finished
    strangers: u32  # events refused for want of the run's token
    turns_open: u32  # turns that have started and not ended (`cold.open_turns`)
    finished: flag  # whether `run.finished` arrived
    started: flag  # whether `run.started` has arrived; a later one changes nothing
    checks_rounds: flag  # whether a turn has checked a round: with a convergence or a consensus, or by its node's name
    charged: flag  # whether its accounts know it
    session_closed: flag  # whether its session takes no new work
    has_board: flag  # whether `cold.board` is set
    has_task_tokens: flag  # whether `cold.task_tokens` has any
    stub: flag  # whether only spend and escalation are stored (`stub_of`), until the next event
    event_ids: Values  # hashes of recent event ids: duplicates are skipped
    novelty: Novelty
    calls: Calls
    tools: Tools
    streams: Streams
    nodes: Table  # of `NodeState`, by tag
    node_counts: Table  # of `NodeCounts`, by tag
    handovers: Handovers
    cycles: Cycles
    pending: Pending
    monologue: Monologue
    text_streak: TextStreak
    messages: Messages
    long_texts: LongTexts
    metrics: Table  # of `Metric`, by tag of name and node
    evidence: RecentHashes
    ledger: Ledger
    pace: Pace
    escalation: Escalation
    cycle_memories: CycleMemories
    attempts: Table  # of `Attempt`: the last failure, whichever node reported it; only if every error counts
    reruns: Reruns
    callers: Callers
    room: Any  # bytes that may be added before an unpacked state is measured again (`size_budget`); not stored
    scope: Scope  # who the run belongs to, and its budgets; shared between runs, never changed in place
    scope_raw: bytes  # the same as MessagePack
    cold_raw: bytes  # `cold` as it was stored
    cold_read: Any  # `cold` once it is read; None before
    cold_changed: Any  # whether `cold` may differ from `cold_raw`; not stored
    version: Any  # of the bytes that are read

    def __init__(self) -> None:
        self.event_ids = Values(IDS_MAX)
        self.streams, self.calls, self.tools = Streams(), Calls(), Tools()
        self.novelty = Novelty(self.streams)
        self.nodes, self.node_counts = Table(NodeState, NODES_MAX), Table(NodeCounts, COUNTS_MAX)
        self.handovers, self.cycles = Handovers(), Cycles()
        self.pending, self.monologue, self.text_streak = Pending(), Monologue(), TextStreak()
        self.messages, self.long_texts = Messages(), LongTexts()
        self.metrics, self.evidence = Table(Metric, METRICS_MAX), RecentHashes()
        self.ledger, self.pace, self.escalation = Ledger(), Pace(), Escalation()
        self.cycle_memories = CycleMemories(self.novelty, self.handovers, self.streams)
        self.attempts, self.reruns, self.callers = Table(Attempt, 1), Reruns(), Callers()
        self.version = STATE_VERSION
        super().__init__(
            self.event_ids, self.novelty, self.calls, self.tools, self.streams, self.nodes, self.node_counts,
            self.handovers, self.cycles, self.pending, self.monologue, self.text_streak, self.messages,
            self.long_texts, self.metrics, self.evidence, self.ledger, self.pace, self.escalation,
            self.cycle_memories, self.attempts, self.reruns, self.callers,
        )  # fmt: skip

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.partition = self.offset = self.halted = -1
        self.room = 0
        self.scope, self.scope_raw = NO_SCOPE, NO_SCOPE_RAW
        self.cold_raw, self.cold_read, self.cold_changed = b"", None, False
        self._forget_turn()

    @cfunc
    def _forget_turn(self) -> None:
        """Forget what is not stored: it belongs to a turn that was not applied to the end."""
        self.cycle_memories.inside = self.streams.cycle_windows = None

    def set_scope(self, scope: Scope) -> None:
        """Set the scope."""
        self.scope, self.scope_raw, self.room = scope, write_scope(scope), 0

    @property
    def cold(self) -> Any:
        """What few runs have, as `Cold`; it may be changed in place."""
        if self.cold_read is None:
            self.cold_read = read_cold(self.cold_raw)
        self.room, self.cold_changed = 0, True
        return self.cold_read

    @property
    def board(self) -> Any:
        """The board; None before the first event about a task."""
        return self.cold.board if self.has_board else None

    @property
    def open_turns(self) -> Any:
        """The turns that have started and not ended, oldest first."""
        return self.cold.open_turns if self.turns_open else []

    def set_open_turns(self, turns: list[Any]) -> None:
        """Set the turns that have started and not ended."""
        if turns or self.turns_open:
            self.cold.open_turns, self.turns_open = turns, len(turns)

    @property
    def task_tokens(self) -> Any:
        """The token budgets of tasks, by task tag, oldest first; not to be changed."""
        return self.cold.task_tokens if self.has_task_tokens else {}

    @ccall
    def size_of_cold(self) -> i64:
        """Write `cold`, which a caller changes at once or not at all, and return how many bytes it takes."""
        if self.cold_changed:
            self.cold_raw, self.cold_changed = write_cold(self.cold_read), False
        return len(self.cold_raw)

    @ccall
    def size_bytes(self) -> i64:
        return len(HEAD) + Record.size_bytes(self) + 4 + len(self.scope_raw) + self.size_of_cold()

    @ccall
    def load_parts(self, reader: Reader) -> None:
        part: Part
        scope_raw: bytes = reader.blob()
        if scope_raw is not self.scope_raw:
            self.scope = read_scope(scope_raw)
            self.scope_raw = scope_raw
        if self.stub or self.version < STATE_VERSION:
            for part in self.parts:
                part.clear()
        if self.stub:
            self.ledger.load(reader)
            self.escalation.load(reader)
        elif self.version < STATE_VERSION:
            for part in self.parts[: len(self.parts) - LATER]:
                part.load(reader)
            if self.version >= 3:
                part = self.cycle_memories if self.version >= 4 else self.cycle_memories.table
                part.load(reader)
                self.attempts.load(reader)
            if self.version >= 5:
                self.reruns.load(reader)
        else:
            Record.load_parts(self, reader)
        self._forget_turn()
        self.cold_raw, self.cold_read, self.cold_changed, self.room = reader.blob(), None, False, 0
        if self.version < 4:
            self.graphs = int(self.cold.graph_declared)

    @ccall
    def dump_parts(self, writer: Writer) -> None:
        writer.blob(self.scope_raw)
        if self.stub:
            self.ledger.dump(writer)
            self.escalation.dump(writer)
        else:
            Record.dump_parts(self, writer)
        self.size_of_cold()
        writer.blob(self.cold_raw)


@ccall
def check(run: RunState) -> None:
    """Read also what few runs have, and compare it with the numbers about it. Raises `StateError` if a state cannot
    be stepped. `load` alone is enough for bytes that this process has written."""
    memory: CallMemory
    own: CycleMemory
    cold: Any = run.cold if run.cold_raw or run.cold_read is not None else NO_COLD
    if run.has_board != (cold.board is not None) or run.turns_open != len(cold.open_turns):
        raise StateError("flags that contradict what they stand for")
    if run.has_task_tokens != bool(cold.task_tokens) or run.escalation.severity > HALT_LEVEL:
        raise StateError("flags that contradict what they stand for")
    if not 0 <= run.turns < TURNS_MAX or run.call_turns > run.turns:
        raise StateError("a number of turns out of bounds")
    if not 0 <= run.at_ms <= AT_MS_MAX or not 0 <= run.started_ms <= AT_MS_MAX:
        raise StateError("a time out of bounds")
    if run.long_texts.sims.size != run.long_texts.turns.size or min(map(len, cold.recent_calls), default=2) < 2:
        raise StateError("turns that are missing")
    _check_windows(run.streams.windows)
    for own in run.cycle_memories.table.rows:
        _check_windows(own.windows)
    for memory in run.calls.table.rows:
        if not memory.times.size:
            raise StateError("a call that was never made")


@ccall
def _check_windows(windows: Table) -> None:
    window: HashWindow
    held: HeldPeriod
    for window in windows.rows:
        if len(window.held):
            for held in window.held.rows:
                if not 0 < held.key <= window.tags.size:
                    raise StateError("a period of more tags than there are")


def begin_run(partition: int) -> RunState:
    """Return the state of a new run of a partition of the turns topic."""
    run = RunState()
    run.partition = partition
    return run


class Peek(NamedTuple):
    """What can be read of a stored state without loading it."""

    offset: int
    turns: int
    halted: int
    finished: bool


PEEK: Final = struct.Struct("<BIq44xii36x?")  # up to `finished`; the first two are HEAD
_NUMBERS: Final = struct.Struct("<6q4i8I8?")  # of a `RunState`; the scope follows
_SIZE: Final = struct.Struct("<H")


def peek(raw: bytes, at: int = 0) -> Peek | None:
    """Read the first fields of a state that is stored at a place in `raw`; None if there is none that is read."""
    try:
        _, _, offset, turns, halted, finished = PEEK.unpack_from(raw, at)
    except struct.error:
        return None
    return Peek(offset, turns, halted, finished) if raw.startswith(HEADS, at) else None


def peek_scope(raw: bytes) -> Scope:
    """Read the scope of a stored state that `peek` can read. Raises `StateError`."""
    at = len(HEAD) + _NUMBERS.size
    (size,) = _SIZE.unpack_from(raw, at)
    return read_scope(raw[at + _SIZE.size : at + _SIZE.size + size])


def stub_of(run: RunState) -> RunState:
    """Return what is kept of a halted run that has to go: spend, scope, and what only an operator may change."""
    stub = load(dump(run))
    for part in stub.parts:
        if part is not stub.ledger and part is not stub.escalation:
            part.clear()
    stub.escalation.episodes.clear()
    stub.stub = True
    cold = stub.cold
    stub.cold_read = Cold(
        command_ids=cold.command_ids, commands_since_ms=cold.commands_since_ms, halted_by=cold.halted_by
    )
    stub.cold_changed = True
    stub.has_board = stub.has_task_tokens = False
    stub.turns_open, stub.escalation.halted_loop_seen = 0, -1
    return stub


def halted_rest(head: Peek, partition: int) -> RunState:
    """Return what is left of a halted run whose state is damaged: that it is halted, and where. Its first fields may be
    damaged, too."""
    run = begin_run(partition)
    run.offset, run.turns, run.halted = head.offset, min(max(head.turns, 0), TURNS_MAX - 1), head.halted
    run.finished, run.stub = head.finished, True
    run.escalation.severity = HALT_LEVEL
    return run


def reset_run(run: RunState) -> None:
    """Start a new life under a run id that is reused, unless the run is halted (the caller checks that).

    The position in the log, known event ids, log time, scope, ids of commands and the rest of a probation stay.
    """
    ids, cold, scope, escalation = run.event_ids.listed(), run.cold, run.scope, run.escalation
    kept = run.partition, run.offset, run.at_ms, run.owner, run.strangers, run.session_closed, run.id_reuses + 1
    probation = max(0, escalation.probation_until - run.turns) if escalation.probation_until >= 0 else -1
    run.clear()
    run.partition, run.offset, run.at_ms, run.owner, run.strangers, run.session_closed, run.id_reuses = kept
    run.started_ms, run.escalation.probation_until = run.at_ms, probation
    for event_id in ids:
        run.event_ids.push(event_id)
    run.set_scope(kept_scope(scope))
    run.cold.command_ids, run.cold.commands_since_ms = cold.command_ids, cold.commands_since_ms


# Not in use: other threads may run between two parts of a state, so each `load` and each `dump` has one of its own.
_readers: Final[list[Reader]] = []
_writers: Final[list[Writer]] = []


@ccall
def load(raw: bytes, into: RunState | None = None) -> RunState:
    """Read a stored state, into a new object or a given one. Raises `StateError` for anything that `dump` did not
    write, and leaves a given object without meaning."""
    run: RunState = RunState() if into is None else into
    if not raw.startswith(HEADS):
        raise StateError("not a state of this version")
    run.version = raw[0]
    reader: Reader = _readers.pop() if _readers else Reader()
    reader.begin(raw, len(HEAD))
    run.load(reader)
    reader.end()
    _readers.append(reader)
    return run


@ccall
def dump(run: RunState) -> bytes:
    """Return a state as it is stored, at most 4 KiB."""
    writer: Writer = _writers.pop() if _writers else Writer()
    writer.begin(HEAD)
    run.dump(writer)
    raw = writer.end()
    _writers.append(writer)
    return raw
