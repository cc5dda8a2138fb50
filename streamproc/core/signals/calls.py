"""Calls and their answers: repeats, polls and news.

Memory: `CALLS_MAX` calls with up to `OCCURRENCES_MAX` occurrences of their last answer each, so the cost of a call is
bounded. A *poll* is a call whose answer changes although nothing else in the run does, or says that something is still
running. Its unchanged answers are not evidence of a loop until they last several times longer than any before. Answers
that it has given before renew nothing: a poll that changes back and forth between them ends as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from streamproc.core import kind
from streamproc.core.run_state import (
    CALL_BYTES,
    CALLS_MAX,
    HASH,
    OCCURRENCE_BYTES,
    OCCURRENCES_MAX,
    TAG,
    CallMemory,
    RunState,
    Streak,
)
from streamproc.core.signals.novelty import MIX, note_news, note_poll, remember_tag
from streamproc.core.signals.periods import NARRATION, STEPS, push
from streamproc.core.view import View
from streamproc.model.wire import ANSWERED, FAILED, FAILED_RETRYABLE, FAILED_RUN, WAITS, WRITES, Call

STREAK_BYTES: Final = 16  # of an encoded state
STALE_WINDOW: Final = (1 << 6) - 1  # the last six call turns, a bit each

# What a known answer of a call means, as bits.
POLL: Final = 1  # a live call whose known answers are no evidence of a loop
IDLE: Final = 2  # one that has given known answers for so long that it excuses nothing else
OVER: Final = 4  # one that has given them for too long; any other call again, with nothing found since
CHECK: Final = 8  # a call that was made at least twice before, and again after something new: the tests after each edit
SEEN: Final = 16  # a second look after something new

JudgePoll = Callable[[CallMemory, int, int], int]
"""POLL, IDLE or OVER for a live call that gave a known answer, from the marks of its answer and the log time."""


def observe_calls(view: View, actor: int, judge_poll: JudgePoll) -> None:
    """Record the calls of a turn as one step. Parallel calls are not repeats of each other."""
    run, index = view.run, view.index
    view.node.last_call = index
    if NARRATION in run.hash_windows:
        run.hash_windows[NARRATION].clear()
    calls: Sequence[Call] = view.turn.calls
    if len(calls) > 1 or calls[0].outcome == FAILED_RETRYABLE:
        calls = _distinct_calls(view.turn.calls)
        if not calls:
            return
    run.call_turns += 1
    new, known = False, 0
    tag, repeated = actor, []
    for call in calls:
        pair = call.key ^ (call.norm >> 1) ^ call.outcome
        fresh = remember_tag(run, pair)
        memory = remember_call(run, actor, call, index, fresh)
        tag ^= (pair & TAG) * MIX >> 16  # mixed: parallel calls that swap their answers differ
        if fresh:
            new = True
            if call.outcome not in (FAILED, FAILED_RUN):
                run.last_success = index
            continue
        state = _judge_known(memory, call.marks, run.at_ms, judge_poll)
        known |= state
        if state & (IDLE | OVER):
            repeated.append((call, memory, state))
    if repeated:
        view.repeated = repeated
        view.kinds |= kind.REPEATED_CALL
    if calls[0].marks >= WRITES or run.writes is not None:
        _note_write(view, actor, calls)
    _note_novelty(view, known, new=new)
    if not known & (POLL | IDLE) and (period := push(run, STEPS, (tag & TAG) | 1, index)) is not None:
        view.add_period(period)


def _judge_known(memory: CallMemory, marks: int, at_ms: int, judge_poll: JudgePoll) -> int:
    """Return what a known answer means: POLL, IDLE, OVER, CHECK or SEEN."""
    if memory.live or marks & WAITS:
        memory.live = True
        return judge_poll(memory, marks, at_ms)
    if memory.still > 1:
        return OVER
    return CHECK if memory.longest_still or len(memory.turns) > 2 else SEEN


def _distinct_calls(calls: tuple[Call, ...]) -> list[Call]:
    """Return the calls of a turn without duplicates and without those that failed for reasons of infrastructure."""
    return [call for call in {call.key: call for call in calls}.values() if call.outcome != FAILED_RETRYABLE]


def _note_write(view: View, actor: int, calls: Sequence[Call]) -> None:
    """Count the same call in a row, if it writes a text. Its answers may all be new: what it writes to grows."""
    run, index, call = view.run, view.index, calls[0]
    if len(calls) > 1 or call.outcome != ANSWERED or not call.marks & WRITES:
        run.writes = None
        return
    tag, writes = (call.key ^ actor) & TAG, run.writes
    if writes is None or writes.value != tag or run.last_progress > writes.first:
        run.size_left -= STREAK_BYTES
        run.writes = Streak(tag, 1, index)
        return
    writes.count += 1
    if not view.kinds & kind.REPEATED_CALL:
        view.repeated = ()
        view.kinds |= kind.REPEATED_CALL


def _note_novelty(view: View, known: int, *, new: bool) -> None:
    """Record whether the calls brought news, polled, or returned only what was known (`known`: in which way).

    Idle polls and checks are neither news nor stale.
    """
    run, index = view.run, view.index
    if new:
        run.stale_bits = run.stale_bits << 1 & STALE_WINDOW
        if run.last_answer_change == index:
            run.last_measurement = index
        note_news(run, index, () if known & POLL else (STEPS,))
    elif known & POLL:
        run.stale_bits = 0  # what repeats around a poll, such as a sleep, waits for it
        note_poll(run, index)
    elif known & IDLE or not known & (OVER | SEEN):
        run.stale_bits = run.stale_bits << 1 & STALE_WINDOW
        return
    else:
        if not run.stale_bits:
            run.stale_since = index  # a new episode: none of the six call turns before was stale
        run.stale_bits = (run.stale_bits << 1 | 1) & STALE_WINDOW
        view.kinds |= kind.STALE
        return
    if view.turn.errors is None:
        view.node.last_call_news = index


def remember_call(run: RunState, actor: int, call: Call, index: int, fresh: bool) -> CallMemory:
    """Compare a call with its earlier answers to the same actor. Another actor may ask the same for the first time.

    `fresh` is whether the answer is new to the run.
    """
    calls, key = run.calls, (call.key ^ actor * MIX) & HASH
    memory = calls.pop(key, None)
    if memory is None:
        memory = CallMemory(call.exact & HASH, call.norm & HASH, 1, [run.call_turns], [index], False, 1, run.at_ms)
        if len(calls) >= CALLS_MAX:
            _forget_a_call(calls)
        else:
            run.size_left -= CALL_BYTES
    else:
        if memory.known and run.last_discovery >= memory.turns[-1]:
            memory.known = 0  # something else was found, perhaps by a parallel call
        if memory.norm != call.norm:
            _changed_answer(run, memory, call, index, fresh)
        else:
            _same_answer(run, memory, call, index)
    calls[key] = memory
    return memory


def _same_answer(run: RunState, memory: CallMemory, call: Call, index: int) -> None:
    if run.last_discovery > memory.turns[-1]:
        memory.still, memory.still_since_ms = 1, run.at_ms  # it did not change, but something else was found
    else:
        memory.still += 1
        if memory.known:
            memory.known += 1
    memory.exact_run = memory.exact_run + 1 if memory.exact == call.exact else 1
    memory.exact = call.exact & HASH
    memory.call_turns.append(run.call_turns)
    memory.turns.append(index)
    if len(memory.call_turns) > OCCURRENCES_MAX:
        del memory.call_turns[0], memory.turns[0]
    else:
        run.size_left -= OCCURRENCE_BYTES


def _changed_answer(run: RunState, memory: CallMemory, call: Call, index: int, fresh: bool) -> None:
    """Record a changed answer. If nothing else was new since the last one, the call is a poll: its subject changes by
    itself. Answers that were not reported do not count as changes. A change to an answer that is not `fresh` ends no
    period without change."""
    back = not fresh and run.last_discovery <= memory.turns[-1]
    if memory.norm:
        run.last_answer_change = index
        if call.norm and run.last_news <= memory.turns[-1]:
            memory.live = True
        if not back:
            memory.longest_still = max(memory.longest_still, memory.still)
            memory.longest_still_ms = max(memory.longest_still_ms, run.at_ms - memory.still_since_ms)
    if not back:
        memory.known, memory.still_since_ms = 0, run.at_ms
    elif memory.known:
        memory.known += 1
    else:
        memory.known, memory.known_since = 1, memory.turns[0]
    memory.exact, memory.norm, memory.exact_run = call.exact & HASH, call.norm & HASH, 1
    memory.still = 1
    memory.call_turns, memory.turns = [run.call_turns], [index]


def _forget_a_call(calls: dict[int, CallMemory]) -> None:
    """Drop the call that was not made for the longest time, preferring calls that are not polls."""
    oldest = next(iter(calls))
    if calls[oldest].live:
        oldest = next((key for key, memory in calls.items() if not memory.live), oldest)
    del calls[oldest]
