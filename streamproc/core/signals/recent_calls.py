"""The calls of the last ten call turns, as they were made: repeats of one call, contiguous or interleaved with others.
Recorded only if the policy's `Gate` of LOOP003 is not `any`.

Memory: `OCCURRENCES_MAX` call turns with up to `PARALLEL_MAX` calls each.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamproc.core.now import Now
from streamproc.core.records import MIX, TAG
from streamproc.core.signals.calls import OCCURRENCES_MAX
from streamproc.core.signals.novelty import Gate
from streamproc.model.wire import FAILED_RETRYABLE, NO_ANSWER, Call

PARALLEL_MAX: Final = 8  # calls of one turn that are recorded: agents rarely make more at once


class Recent(NamedTuple):
    """A call and the times it was made in recent call turns, this one included, oldest first."""

    call: Call
    turns: list[int]
    call_turns: list[int]


def observe_recent_calls(now: Now, log: list[list[int]], gate: Gate) -> tuple[Recent, ...]:
    """Record the calls of a turn in the log of the run, and return those that were made before, by the same node for
    the same topic.

    The plain count (`Gate.NONE`) compares tool and arguments; behind another gate, the answer must be the same, too,
    byte for byte. Calls that failed for reasons of infrastructure are skipped.
    """
    made: dict[int, Call] = {}
    actor = now.node_tag ^ now.topic
    for call in now.turn.calls[:PARALLEL_MAX]:
        if call.outcome == FAILED_RETRYABLE or (gate is not Gate.NONE and call.outcome == NO_ANSWER):
            continue
        what = call.key if gate is Gate.NONE else call.key ^ call.exact * MIX
        made[(what ^ actor * MIX) >> 7 & TAG] = call
    if not made:
        return ()
    end = now.novelty.last_end(gate)
    log.append([now.call_turns, now.index, *made])
    if len(log) > OCCURRENCES_MAX:
        del log[0]
    counted = [entry for entry in log if entry[1] >= end]
    found = []
    for tag, call in made.items():
        times = [entry for entry in counted if tag in entry[2:]]
        if len(times) > 1:
            found.append(Recent(call, [entry[1] for entry in times], [entry[0] for entry in times]))
    return tuple(found)
