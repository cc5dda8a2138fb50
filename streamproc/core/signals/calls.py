"""Calls and their answers: repeats, polls and news.

Memory: `CALLS_MAX` calls with up to `OCCURRENCES_MAX` occurrences of their last answer each, so the cost of a call is
bounded. A *poll* is a call whose answer changes although nothing else in the run does. Its unchanged answers are not
evidence of a loop until they last several times longer than any before.
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
)
from streamproc.core.signals.novelty import MIX, note_news, note_poll, remember_tag
from streamproc.core.signals.periods import NARRATION, STEPS, push
from streamproc.core.view import View
from streamproc.model.wire import FAILED, FAILED_RETRYABLE, FAILED_RUN, Call

STALE_WINDOW: Final = (1 << 6) - 1  # the last six call turns, a bit each

StillPoll = Callable[[CallMemory, int], bool]
"""Whether the unchanged answer of a live call, at this log time, is still a poll and no evidence of a loop."""


def observe_calls(view: View, actor: int, still_poll: StillPoll) -> None:
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
    new = polled = False
    tag, repeated = actor, []
    for call in calls:
        memory = remember_call(run, actor, call, index)
        pair = call.key ^ (call.norm >> 1) ^ call.outcome
        tag ^= (pair & TAG) * MIX >> 16  # mixed: parallel calls that swap their answers differ
        if remember_tag(run, pair):
            new = True
            if call.outcome not in (FAILED, FAILED_RUN):
                run.last_success = index
        elif memory.live and still_poll(memory, run.at_ms):
            polled = True
        elif memory.still > 1:
            repeated.append((call, memory))
    if repeated:
        view.repeated = repeated
        view.kinds |= kind.REPEATED_CALL
    _note_novelty(view, new=new, polled=polled)
    if not polled and (period := push(run, STEPS, (tag & TAG) | 1, index)) is not None:
        view.add_period(period)


def _distinct_calls(calls: tuple[Call, ...]) -> list[Call]:
    """Return the calls of a turn without duplicates and without those that failed for reasons of infrastructure."""
    return [call for call in {call.key: call for call in calls}.values() if call.outcome != FAILED_RETRYABLE]


def _note_novelty(view: View, *, new: bool, polled: bool) -> None:
    """Record whether the calls brought news, polled, or returned only what was known."""
    run, index = view.run, view.index
    if new:
        run.stale_bits = run.stale_bits << 1 & STALE_WINDOW
        if run.last_answer_change == index:
            run.last_measurement = index
        note_news(run, index, () if polled else (STEPS,))
    elif polled:
        note_poll(run, index)
    else:
        if not run.stale_bits:
            run.stale_since = index  # a new episode: none of the six call turns before was stale
        run.stale_bits = (run.stale_bits << 1 | 1) & STALE_WINDOW
        view.kinds |= kind.STALE
        return
    if view.turn.errors is None:
        view.node.last_call_news = index


def remember_call(run: RunState, actor: int, call: Call, index: int) -> CallMemory:
    """Compare a call with its earlier answers to the same actor. Another actor may ask the same for the first time."""
    calls, key = run.calls, (call.key ^ actor * MIX) & HASH
    memory = calls.pop(key, None)
    if memory is None:
        memory = CallMemory(call.exact & HASH, call.norm & HASH, 1, [run.call_turns], [index], False, 1, run.at_ms)
        if len(calls) >= CALLS_MAX:
            _forget_a_call(calls)
        else:
            run.size_left -= CALL_BYTES
    elif memory.norm != call.norm:
        _changed_answer(run, memory, call, index)
    else:
        _same_answer(run, memory, call, index)
    calls[key] = memory
    return memory


def _same_answer(run: RunState, memory: CallMemory, call: Call, index: int) -> None:
    if run.last_discovery > memory.turns[-1]:
        memory.still, memory.still_since_ms = 1, run.at_ms  # it did not change, but something else was found
    else:
        memory.still += 1
    memory.exact_run = memory.exact_run + 1 if memory.exact == call.exact else 1
    memory.exact = call.exact & HASH
    memory.call_turns.append(run.call_turns)
    memory.turns.append(index)
    if len(memory.call_turns) > OCCURRENCES_MAX:
        del memory.call_turns[0], memory.turns[0]
    else:
        run.size_left -= OCCURRENCE_BYTES


def _changed_answer(run: RunState, memory: CallMemory, call: Call, index: int) -> None:
    """Record a changed answer. If nothing else was new since the last one, the call is a poll: its subject changes by
    itself. Answers that were not reported do not count as changes."""
    if memory.norm:
        run.last_answer_change = index
        if call.norm and run.last_news <= memory.turns[-1]:
            memory.live = True
        memory.longest_still = max(memory.longest_still, memory.still)
        memory.longest_still_ms = max(memory.longest_still_ms, run.at_ms - memory.still_since_ms)
    memory.exact, memory.norm, memory.exact_run = call.exact & HASH, call.norm & HASH, 1
    memory.still, memory.still_since_ms = 1, run.at_ms
    memory.call_turns, memory.turns = [run.call_turns], [index]


def _forget_a_call(calls: dict[int, CallMemory]) -> None:
    """Drop the call that was not made for the longest time, preferring calls that are not polls."""
    oldest = next(iter(calls))
    if calls[oldest].live:
        oldest = next((key for key, memory in calls.items() if not memory.live), oldest)
    del calls[oldest]
