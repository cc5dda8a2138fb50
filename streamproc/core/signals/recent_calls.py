"""The calls of the last ten call turns, as they were made: repeats of one call, contiguous or interleaved with others.
Recorded only if the policy's `Gate` of LOOP003 is not `any`.

Memory: `OCCURRENCES_MAX` call turns with up to `PARALLEL_MAX` calls each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.core.records import MIX, TAG
from streamproc.core.signals.calls import OCCURRENCES_MAX
from streamproc.core.signals.novelty import Gate, last_end
from streamproc.model.wire import FAILED_RETRYABLE, NO_ANSWER, Call

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

PARALLEL_MAX: Final = 8  # calls of one turn that are recorded: agents rarely make more at once
TAG_BYTES: Final = 5  # of a state


class Recent(NamedTuple):
    """A call and the times it was made in recent call turns, this one included, oldest first."""

    call: Call
    turns: list[int]
    call_turns: list[int]


def recent_repeats(run: RunState, calls: Sequence[Call], actor: int, index: int, gate: Gate) -> tuple[Recent, ...]:
    """Record the calls of a turn, and return those that were made before, by the same `actor`.

    The plain count (`Gate.NONE`) compares tool and arguments; behind another gate, the answer must be the same, too,
    byte for byte. Calls that failed for reasons of infrastructure are skipped.
    """
    made: dict[int, Call] = {}
    for call in calls[:PARALLEL_MAX]:
        if call.outcome == FAILED_RETRYABLE or (gate is not Gate.NONE and call.outcome == NO_ANSWER):
            continue
        what = call.key if gate is Gate.NONE else call.key ^ call.exact * MIX
        made[(what ^ actor * MIX) >> 7 & TAG] = call
    if not made:
        return ()
    log, end = run.cold.recent_calls, last_end(run, gate)
    log.append([run.call_turns, index, *made])
    run.size_left -= TAG_BYTES * (2 + len(made))
    if len(log) > OCCURRENCES_MAX:
        del log[0]
    counted = [entry for entry in log if entry[1] >= end]
    found = []
    for tag, call in made.items():
        times = [entry for entry in counted if tag in entry[2:]]
        if len(times) > 1:
            found.append(Recent(call, [entry[1] for entry in times], [entry[0] for entry in times]))
    return tuple(found)
