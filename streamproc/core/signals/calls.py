"""Calls and their answers: repeats, polls and news.

Memory: `CALLS_MAX` calls with up to `OCCURRENCES_MAX` occurrences of their last answer each, so the cost of a call is
bounded. A *poll* is a call whose answer changes although nothing else in the run does, or says that something is still
running. Its unchanged answers are not evidence of a loop until they last several times longer than any before. Answers
that it has given before renew nothing: a poll that changes back and forth between them ends as well.

The words of the node that calls are not new to itself: it may announce each of its repeats in other words.

Calls are observed from the second equal answer on. Read by LOOP003 and STALL006.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from streamproc.core.now import Now
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
from streamproc.core.signals.periods import NARRATION, NO_STREAM, STEPS
from streamproc.core.signals.streaks import Streak
from streamproc.model.wire import ANSWERED, FAILED, FAILED_RETRYABLE, FAILED_RUN, WAITS, WRITES, Call

CALLS_MAX: Final = 12  # calls stored with their answers; LOOP003 looks back over ten
OCCURRENCES_MAX: Final = 10  # of one call with one answer: the window of LOOP003
ANSWERS_MIN: Final = 10  # equal answers of a call, after which what others find is no excuse
STALE_WINDOW: Final = (1 << 6) - 1  # the last six call turns, a bit each

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
    own: bool  # whether no call of the node had found anything since the last `ANSWERS_MIN` of them
    norm: int  # hash of the answer without volatile parts
    exact_run: int  # how often in a row the answer was the same byte for byte
    still: int  # how often in a row it was the same while nothing new was found elsewhere
    known: int  # answers of a poll since it changed back to one given before; 0: it did not
    known_since: int  # turn in which it gave the answer before that
    call_turns: list[int]  # the last times it gave this answer, counted in call turns ...
    turns: list[int]  # ... and in turns


class Repeats(NamedTuple):
    """What the calls of a turn repeat."""

    calls: Sequence[Repeat]
    written: bool  # whether the same call writes the same text again (`Calls.writes`)
    stale: bool  # whether so many of the last call turns brought nothing new that a detector may report it


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
    def begin(self, now: Now, exact: u64, norm: u64) -> None:
        """Record an answer that differs from the last one, or the first one."""
        self.exact, self.norm, self.exact_run, self.still = exact, norm, 1, 1
        self.times.clear()
        self.times.push(now.call_turns, now.index)

    @cfunc
    def repeat(self, now: Now, exact: u64) -> None:
        """Record the same answer again."""
        if now.found > self.last_turn():
            self.still, self.still_since_ms = 1, now.at_ms  # it did not change, but something else was found
        else:
            self.still += 1
            if self.known:
                self.known += 1
        self.exact_run = self.exact_run + 1 if self.exact == exact else 1
        self.exact = exact
        self.times.push(now.call_turns, now.index)

    @cfunc
    def is_own(self, now: Now) -> bool:
        """Whether no call of the node has found anything since the last `ANSWERS_MIN` of these answers."""
        if self.exact_run < ANSWERS_MIN or self.live or not self.norm or self.times.size < ANSWERS_MIN:
            return False
        return now.node.last_call_news <= self.times.turn_ago(ANSWERS_MIN)

    @cfunc
    def note_change(self, now: Now, answered: bool, fresh: bool) -> None:
        """Record that the answer changes. If nothing else was new since the last one, the call is a poll: its subject
        changes by itself. Answers that were not reported do not count as changes. A change to an answer that is not
        `fresh` ends no period without change."""
        last: i32 = self.last_turn()
        back: bool = not fresh and now.found <= last
        if self.norm:
            now.novelty.last_answer_change = now.index
            if answered and now.news <= last:
                self.live = True
            if not back:
                self.longest_still = max(self.longest_still, self.still)
                self.longest_still_ms = max(self.longest_still_ms, now.at_ms - self.still_since_ms)
        if not back:
            self.known, self.still_since_ms = 0, now.at_ms
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

    @ccall
    def reset(self) -> None:
        """Start the count of stale call turns again."""
        self.stale_bits = 0

    @cfunc
    def observe(self, now: Now, judge_poll: JudgePoll) -> Repeats | None:
        """Record the calls of a turn as one step. Parallel calls are not repeats of each other."""
        new: bool = False
        fresh: bool
        written: bool = False
        stale: bool
        known: u32 = 0
        state: u32
        own: bool
        actor: u32 = now.node_tag ^ now.topic  # who calls, and for what
        tag: u64 = actor
        pair: u64
        outcome: u64
        call: Call
        memory: CallMemory
        repeated: list[Repeat] = []
        calls: Any = now.turn.calls
        now.node.last_call = now.index
        now.known = POLL  # a turn that only meets errors of the infrastructure waits
        now.streams.forget(NARRATION)
        if len(calls) > 1 or calls[0].outcome == FAILED_RETRYABLE:
            calls = _distinct_calls(calls)
            if not calls:
                return None
        now.call_turns += 1
        for call in calls:
            outcome = hash64(call.outcome)
            pair = hash64(call.key) ^ hash64(call.norm) >> 1 ^ outcome
            fresh = now.novelty.remember(pair)
            memory = self._remember(now, actor, call, fresh)
            tag ^= mixed(tag32(pair)) >> 16  # mixed: parallel calls that swap their answers differ
            if fresh:
                new = True
                if outcome not in (FAILED, FAILED_RUN):
                    now.novelty.last_success = now.index
                continue
            state = _judge_known(memory, tag32(hash64(call.marks)), now.at_ms, judge_poll)
            known |= state
            own = memory.is_own(now)
            if own or state & (IDLE | OVER):
                repeated.append(_observed(call, state, memory, own))
        if calls[0].marks >= WRITES or self.writes.count:
            written = self._count_write(now, actor, calls)
        now.known = 0 if new else known
        stale = self._note_novelty(now, known, new)
        if not known & (POLL | IDLE):
            now.streams.observe(STEPS, tag32(tag) | 1, now.index)
        return Repeats(repeated, written, stale) if repeated or written or stale else None

    @cfunc
    def is_poll(self, now: Now, call: Call) -> bool:
        """Whether a call of this turn is a poll."""
        memory: CallMemory | None = self.table.find(hash64(call.key) ^ mixed(now.node_tag ^ now.topic))
        return memory is not None and bool(memory.live)

    @cfunc
    def _count_write(self, now: Now, actor: u32, calls: Any) -> bool:
        """Count the same call in a row, if it writes a text, and return whether it was made before. Its answers may all
        be new: what it writes to grows."""
        writes: Streak = self.writes
        tag: u64
        call: Call = calls[0]
        if len(calls) > 1 or call.outcome != ANSWERED or not call.marks & WRITES:
            writes.clear()
            return False
        tag = tag32(hash64(call.key) ^ actor)
        if not writes.count or writes.value != tag or now.novelty.last_progress > writes.first:
            writes.begin(tag, 1, now.index, 0)
            return False
        writes.count += 1
        return True

    @cfunc
    def _note_novelty(self, now: Now, known: u32, new: bool) -> bool:
        """Record whether the calls brought news, polled, or returned only what was known (`known`: in which way).
        Return whether so many of the last call turns were stale that a detector may report it.

        Idle polls and checks are neither news nor stale.
        """
        reported: bool
        if new:
            self.stale_bits = self.stale_bits << 1 & STALE_WINDOW
            if now.novelty.last_answer_change == now.index:
                now.novelty.last_measurement = now.index
            now.novelty.note_news(now.index, NO_STREAM if known & POLL else STEPS)
        elif known & POLL:
            self.stale_bits = 0  # what repeats around a poll, such as a sleep, waits for it
            now.novelty.note_poll(now.index)
        elif known & IDLE or not known & (OVER | SEEN):
            self.stale_bits = self.stale_bits << 1 & STALE_WINDOW
            return False
        else:
            if not self.stale_bits:
                self.stale_since = now.index  # a new episode: none of the six call turns before was stale
            self.stale_bits = (self.stale_bits << 1 | 1) & STALE_WINDOW
            reported = 0 <= self.stale_since <= now.halt_seen
            return bits_of(self.stale_bits) >= (now.marks.stale_turns_known if reported else now.marks.stale_turns)
        if now.turn.errors is None:
            now.node.last_call_news = now.index
        return False

    @cfunc
    def _remember(self, now: Now, actor: u32, call: Call, fresh: bool) -> CallMemory:
        """Compare a call with its earlier answers to the same actor. Another actor may ask the same for the first time.

        `fresh` is whether the answer is new to the run.
        """
        key: u64 = hash64(call.key) ^ mixed(actor)
        exact: u64 = hash64(call.exact)
        norm: u64 = hash64(call.norm)
        memory: CallMemory | None = self.table.touch(key)
        if memory is None:
            if self.table.full():
                _forget_a_call(self.table)
            memory = self.table.add(key)
            memory.still_since_ms = now.at_ms
            memory.begin(now, exact, norm)
            return memory
        if memory.known and now.found >= memory.last_turn():
            memory.known = 0  # something else was found, perhaps by a parallel call
        if memory.norm != norm:
            memory.note_change(now, norm != 0, fresh)
            memory.begin(now, exact, norm)
        else:
            memory.repeat(now, exact)
        return memory


@cfunc
def _observed(call: Call, state: u32, memory: CallMemory, own: bool) -> Repeat:
    size: u32 = memory.times.size
    return Repeat(
        call, state, bool(memory.live), own, memory.norm, memory.exact_run, memory.still, memory.known,
        memory.known_since, memory.times.last_numbers(size), memory.times.last_turns(size),
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
def _forget_a_call(calls: Table) -> None:
    """Drop the call that was not made for the longest time, preferring calls that are not polls."""
    memory: CallMemory
    for memory in calls.rows:
        if not memory.live:
            calls.forget(memory.key)
            return
    memory = calls.rows[0]
    calls.forget(memory.key)
