"""What calls answered before: repeats, polls and news, at a bounded cost a call."""

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
from streamproc.core.signals.periods import STEPS, TALK, push
from streamproc.core.view import View
from streamproc.model.wire import FAILED, FAILED_RETRYABLE, FAILED_RUN, Call

STALE_WINDOW: Final = (1 << 6) - 1  # the last six call turns, a bit each

StillPoll = Callable[[CallMemory, int], bool]
"""Whether a live call's unchanged answer, at this log time, is no evidence yet."""


def remember_call(run: RunState, actor: int, call: Call, index: int) -> CallMemory:
    """Count a call against its earlier answers to the same actor: others may ask the same for the first time."""
    calls, key = run.calls, (call.key ^ actor * MIX) & HASH
    memory = calls.pop(key, None)
    if memory is None:
        memory = CallMemory(call.exact & HASH, call.norm & HASH, 1, [run.steps], [index], False, 1, run.at_ms)
        if len(calls) >= CALLS_MAX:
            _forget_a_call(calls)
        else:
            run.room -= CALL_BYTES
    elif memory.norm != call.norm:
        _changed_answer(run, memory, call, index)
    else:
        _same_answer(run, memory, call, index)
    calls[key] = memory
    return memory


def _same_answer(run: RunState, memory: CallMemory, call: Call, index: int) -> None:
    if run.found > memory.turns[-1]:
        memory.still, memory.still_since_ms = 1, run.at_ms  # it stood still while something else moved
    else:
        memory.still += 1
    memory.exact_run = memory.exact_run + 1 if memory.exact == call.exact else 1
    memory.exact = call.exact & HASH
    memory.steps.append(run.steps)
    memory.turns.append(index)
    if len(memory.steps) > OCCURRENCES_MAX:
        del memory.steps[0], memory.turns[0]
    else:
        run.room -= OCCURRENCE_BYTES


def _changed_answer(run: RunState, memory: CallMemory, call: Call, index: int) -> None:
    """A call whose answer changes while nothing else does is a poll: its thing moves by itself. An answer that was
    not reported is no answer, and no change."""
    if memory.norm:
        run.moved = index
        if call.norm and run.news <= memory.turns[-1]:
            memory.live = True
        memory.longest_still = max(memory.longest_still, memory.still)
        memory.longest_still_ms = max(memory.longest_still_ms, run.at_ms - memory.still_since_ms)
    memory.exact, memory.norm, memory.exact_run = call.exact & HASH, call.norm & HASH, 1
    memory.still, memory.still_since_ms = 1, run.at_ms
    memory.steps, memory.turns = [run.steps], [index]


def _forget_a_call(calls: dict[int, CallMemory]) -> None:
    """Drop the call that was not made for the longest time; a live one only if all are live."""
    oldest = next(iter(calls))
    if calls[oldest].live:
        oldest = next((key for key, memory in calls.items() if not memory.live), oldest)
    del calls[oldest]


def _counted(calls: tuple[Call, ...]) -> list[Call]:
    """Siblings that are alike once, and none that met trouble of the infrastructure."""
    return [call for call in {call.key: call for call in calls}.values() if call.outcome != FAILED_RETRYABLE]


def observe_calls(view: View, actor: int, still_poll: StillPoll) -> None:
    """Take in a turn's calls: all of them are one multiset, and siblings are not repeats of each other."""
    run, index = view.run, view.index
    view.node.called = index
    if TALK in run.rings:
        run.rings[TALK].clear()
    calls: Sequence[Call] = view.turn.calls
    if len(calls) > 1 or calls[0].outcome == FAILED_RETRYABLE:
        calls = _counted(view.turn.calls)
        if not calls:
            return
    run.steps += 1
    new = polled = False
    tag, repeated = actor, []
    for call in calls:
        memory = remember_call(run, actor, call, index)
        pair = call.key ^ (call.norm >> 1) ^ call.outcome
        tag ^= (pair & TAG) * MIX >> 16  # mixed, or two siblings that swap their answers would look the same
        if remember_tag(run, pair):
            new = True
            if call.outcome not in (FAILED, FAILED_RUN):
                run.worked = index
        elif memory.live and still_poll(memory, run.at_ms):
            polled = True
        elif memory.still > 1:
            repeated.append((call, memory))
    if repeated:
        view.repeated = repeated
        view.kinds |= kind.REPEATED_CALL
    _note_worth(view, new=new, polled=polled)
    if not polled and (period := push(run, STEPS, (tag & TAG) | 1, index)) is not None:
        view.repeats(period)


def _note_worth(view: View, *, new: bool, polled: bool) -> None:
    """Note whether the calls brought something new, asked again what moves by itself, or only what was known."""
    run, index = view.run, view.index
    if new:
        run.stale = run.stale << 1 & STALE_WINDOW
        if run.moved == index:
            run.measured = index
        note_news(run, index, () if polled else (STEPS,))
    elif polled:
        note_poll(run, index)
    else:
        if not run.stale:
            run.stale_since = index  # an episode begins after six that were not
        run.stale = (run.stale << 1 | 1) & STALE_WINDOW
        view.kinds |= kind.STALE
        return
    if view.turn.errors is None:
        view.node.call_news = index
