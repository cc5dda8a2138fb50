"""Calls and their answers: repeats, polls and news.

Memory: `CALLS_MAX` calls with up to `OCCURRENCES_MAX` occurrences of their last answer each, so the cost of a call is
bounded. A *poll* is a call whose answer changes although nothing else in the run does, or says that something is still
running. Its unchanged answers are not evidence of a loop until they last several times longer than any before. Answers
that it has given before renew nothing: a poll that changes back and forth between them ends as well.

Calls are observed from the second equal answer on. Read by LOOP003 and STALL006.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamproc.core import kind
from streamproc.core.records import (
    Record,
    Row,
    Table,
    Trail,
    bits_of,
    ccall,
    cclass,
    cfunc,
    final,
    flag,
    hash64,
    i32,
    i64,
    mixed,
    tag32,
    u32,
    u64,
)
from streamproc.core.signals.novelty import note_news, note_poll, remember_tag
from streamproc.core.signals.periods import NARRATION, NO_STREAM, STEPS, Period, forget_stream, push
from streamproc.core.signals.streaks import Streak
from streamproc.model.wire import ANSWERED, FAILED, FAILED_RETRYABLE, FAILED_RUN, WAITS, WRITES, Call

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState
    from streamproc.core.view import View

CALLS_MAX: Final = 12  # calls stored with their answers; LOOP003 looks back over ten
OCCURRENCES_MAX: Final = 10  # of one call with one answer: the window of LOOP003
STALE_WINDOW: Final = (1 << 6) - 1  # the last six call turns, a bit each

CALL_BYTES: Final = 70  # of a state: a call with one occurrence
OCCURRENCE_BYTES: Final = 8

# What a known answer of a call means, as bits.
POLL: Final = 1  # a live call whose known answers are no evidence of a loop
IDLE: Final = 2  # one that has given known answers for so long that it excuses nothing else
OVER: Final = 4  # one that has given them for too long; any other call again, with nothing found since
CHECK: Final = 8  # a call that was made at least twice before, and again after something new: the tests after each edit
SEEN: Final = 16  # a second look after something new

JudgePoll = Callable[["CallMemory", int, int], int]
"""POLL, IDLE or OVER for a live call that gave a known answer, from the marks of its answer and the log time."""


class Repeat(NamedTuple):
    """A call that returned what it had returned before."""

    call: Call
    state: int  # OVER; of a poll, also IDLE
    live: bool  # whether it is a poll
    norm: int  # hash of the answer without volatile parts
    exact_run: int  # how often in a row the answer was the same byte for byte
    still: int  # how often in a row it was the same while nothing new was found elsewhere
    known: int  # answers of a poll since it changed back to one given before; 0: it did not
    known_since: int  # turn in which it gave the answer before that
    call_turns: list[int]  # the last times it gave this answer, counted in call turns ...
    turns: list[int]  # ... and in turns


@final
@cclass
class CallMemory(Row):
    """The latest answers to one call (tool and arguments) of one node, for one task. Key: all three."""

    exact: u64  # hash of the last answer, byte for byte
    norm: u64  # hash of the last answer without volatile parts such as time stamps; 0: no answer was reported
    still_since_ms: i64  # log time of the first answer of `still`
    longest_still_ms: i64  # the longest time that an earlier answer stayed the same before it changed
    exact_run: u32  # how often in a row the answer was the same byte for byte
    still: u32  # how often in a row the answer was the same while nothing new was found elsewhere
    longest_still: u32  # the most times that an earlier answer stayed the same before it changed
    known: u32  # answers since it changed back to one given before, with nothing new since; 0: it did not
    known_since: i32  # turn in which it gave the answer before that
    live: flag  # its answer once changed while nothing else did: a poll
    times: Trail  # when it gave this answer, counted in call turns and in turns

    def __init__(self) -> None:
        self.times = Trail(OCCURRENCES_MAX)
        super().__init__(self.times)

    @cfunc
    def last_turn(self) -> i32:
        """Return the turn of its last answer."""
        return self.times.turn_ago(1)

    @cfunc
    def begin(self, run: RunState, exact: u64, norm: u64, index: i32) -> None:
        """Record an answer that differs from the last one, or the first one."""
        self.exact, self.norm, self.exact_run, self.still = exact, norm, 1, 1
        self.times.clear()
        self.times.push(run.call_turns, index)

    @cfunc
    def repeat(self, run: RunState, exact: u64, index: i32) -> None:
        """Record the same answer again."""
        if run.novelty.last_discovery > self.last_turn():
            self.still, self.still_since_ms = 1, run.at_ms  # it did not change, but something else was found
        else:
            self.still += 1
            if self.known:
                self.known += 1
        self.exact_run = self.exact_run + 1 if self.exact == exact else 1
        self.exact = exact
        if self.times.size < OCCURRENCES_MAX:
            run.size_left -= OCCURRENCE_BYTES
        self.times.push(run.call_turns, index)

    @cfunc
    def note_change(self, run: RunState, answered: bool, index: i32, fresh: bool) -> None:
        """Record that the answer changes. If nothing else was new since the last one, the call is a poll: its subject
        changes by itself. Answers that were not reported do not count as changes. A change to an answer that is not
        `fresh` ends no period without change."""
        last: i32 = self.last_turn()
        back: bool = not fresh and run.novelty.last_discovery <= last
        if self.norm:
            run.novelty.last_answer_change = index
            if answered and run.novelty.last_news <= last:
                self.live = True
            if not back:
                self.longest_still = max(self.longest_still, self.still)
                self.longest_still_ms = max(self.longest_still_ms, run.at_ms - self.still_since_ms)
        if not back:
            self.known, self.still_since_ms = 0, run.at_ms
        elif self.known:
            self.known += 1
        else:
            self.known, self.known_since = 1, self.times.turn_ago(self.times.size)


@final
@cclass
class Calls(Record):
    """The calls of a run."""

    stale_bits: u32  # the last six call turns, a bit each, newest lowest: 1 if it brought nothing new
    stale_since: i32  # turn of the first stale call turn after six that were not
    table: Table  # of `CallMemory`
    writes: Streak  # the same call that writes a text, in a row; `stamp` is unused

    def __init__(self) -> None:
        self.table, self.writes = Table(CallMemory, CALLS_MAX), Streak()
        super().__init__(self.table, self.writes)

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.stale_since = -1


@cfunc
def observe_calls(view: View, actor: u32, judge_poll: JudgePoll) -> None:
    """Record the calls of a turn as one step. Parallel calls are not repeats of each other."""
    run: RunState = view.run
    index: i32 = view.index
    new: bool = False
    fresh: bool
    known: u32 = 0
    state: u32
    tag: u64 = actor
    pair: u64
    outcome: u64
    call: Call
    memory: CallMemory
    period: Period | None
    repeated: list[Repeat] = []
    calls: Any = view.turn.calls
    view.node.last_call = index
    forget_stream(run, NARRATION)
    if len(calls) > 1 or calls[0].outcome == FAILED_RETRYABLE:
        calls = _distinct_calls(calls)
        if not calls:
            return
    run.call_turns += 1
    for call in calls:
        outcome = hash64(call.outcome)
        pair = hash64(call.key) ^ hash64(call.norm) >> 1 ^ outcome
        fresh = remember_tag(run, pair)
        memory = remember_call(run, actor, call, index, fresh)
        tag ^= mixed(tag32(pair)) >> 16  # mixed: parallel calls that swap their answers differ
        if fresh:
            new = True
            if outcome not in (FAILED, FAILED_RUN):
                run.novelty.last_success = index
            continue
        state = _judge_known(memory, tag32(hash64(call.marks)), run.at_ms, judge_poll)
        known |= state
        if state & (IDLE | OVER):
            repeated.append(_observed(call, state, memory))
    if repeated:
        view.repeated = repeated
        view.kinds |= kind.REPEATED_CALL
    if calls[0].marks >= WRITES or run.calls.writes.count:
        _note_write(view, actor, calls)
    _note_novelty(view, known, new)
    if not known & (POLL | IDLE):
        period = push(run, STEPS, tag32(tag) | 1, index)
        if period is not None:
            view.add_period(period)


@cfunc
def _observed(call: Call, state: u32, memory: CallMemory) -> Repeat:
    size: u32 = memory.times.size
    return Repeat(
        call, state, bool(memory.live), memory.norm, memory.exact_run, memory.still, memory.known, memory.known_since,
        memory.times.last_numbers(size), memory.times.last_turns(size),
    )  # fmt: skip


@cfunc
def _judge_known(memory: CallMemory, marks: u32, at_ms: i64, judge_poll: JudgePoll) -> u32:
    """Return what a known answer means: POLL, IDLE, OVER, CHECK or SEEN."""
    if memory.live or marks & WAITS:
        memory.live = True
        return judge_poll(memory, marks, at_ms)
    if memory.still > 1:
        return OVER
    return CHECK if memory.longest_still or memory.times.size > 2 else SEEN


def _distinct_calls(calls: tuple[Call, ...]) -> list[Call]:
    """Return the calls of a turn without duplicates and without those that failed for reasons of infrastructure."""
    return [call for call in {call.key: call for call in calls}.values() if call.outcome != FAILED_RETRYABLE]


@cfunc
def _note_write(view: View, actor: u32, calls: Any) -> None:
    """Count the same call in a row, if it writes a text. Its answers may all be new: what it writes to grows."""
    run: RunState = view.run
    writes: Streak = run.calls.writes
    tag: u64
    call: Call = calls[0]
    if len(calls) > 1 or call.outcome != ANSWERED or not call.marks & WRITES:
        writes.clear()
        return
    tag = tag32(hash64(call.key) ^ actor)
    if not writes.count or writes.value != tag or run.novelty.last_progress > writes.first:
        writes.begin(tag, 1, view.index, 0)
        return
    writes.count += 1
    if not view.kinds & kind.REPEATED_CALL:
        view.repeated = ()
        view.kinds |= kind.REPEATED_CALL


@cfunc
def _note_novelty(view: View, known: u32, new: bool) -> None:
    """Record whether the calls brought news, polled, or returned only what was known (`known`: in which way).

    Idle polls and checks are neither news nor stale.
    """
    run: RunState = view.run
    calls: Calls = run.calls
    index: i32 = view.index
    reported: bool
    if new:
        calls.stale_bits = calls.stale_bits << 1 & STALE_WINDOW
        if run.novelty.last_answer_change == index:
            run.novelty.last_measurement = index
        note_news(run, index, NO_STREAM if known & POLL else STEPS)
    elif known & POLL:
        calls.stale_bits = 0  # what repeats around a poll, such as a sleep, waits for it
        note_poll(run, index)
    elif known & IDLE or not known & (OVER | SEEN):
        calls.stale_bits = calls.stale_bits << 1 & STALE_WINDOW
        return
    else:
        if not calls.stale_bits:
            calls.stale_since = index  # a new episode: none of the six call turns before was stale
        calls.stale_bits = (calls.stale_bits << 1 | 1) & STALE_WINDOW
        reported = 0 <= calls.stale_since <= max(run.halted, run.escalation.halted_loop_seen)
        if bits_of(calls.stale_bits) >= (view.marks.stale_turns_known if reported else view.marks.stale_turns):
            view.kinds |= kind.STALE
        return
    if view.turn.errors is None:
        view.node.last_call_news = index


@ccall
def remember_call(run: RunState, actor: u32, call: Call, index: i32, fresh: bool) -> CallMemory:
    """Compare a call with its earlier answers to the same actor. Another actor may ask the same for the first time.

    `fresh` is whether the answer is new to the run.
    """
    key: u64 = hash64(call.key) ^ mixed(actor)
    exact: u64 = hash64(call.exact)
    norm: u64 = hash64(call.norm)
    memory: CallMemory | None = run.calls.table.touch(key)
    if memory is None:
        if run.calls.table.full():
            _forget_a_call(run.calls.table)
        else:
            run.size_left -= CALL_BYTES
        memory = run.calls.table.add(key)
        memory.still_since_ms = run.at_ms
        memory.begin(run, exact, norm, index)
        return memory
    if memory.known and run.novelty.last_discovery >= memory.last_turn():
        memory.known = 0  # something else was found, perhaps by a parallel call
    if memory.norm != norm:
        memory.note_change(run, norm != 0, index, fresh)
        memory.begin(run, exact, norm, index)
    else:
        memory.repeat(run, exact, index)
    return memory


@cfunc
def _forget_a_call(calls: Table) -> None:
    """Drop the call that was not made for the longest time, preferring calls that are not polls."""
    memory: CallMemory
    for memory in calls.rows:
        if not memory.live:
            calls.forget(memory.key)
            return
    memory = calls.rows[0]
    calls.forget(memory.key)
