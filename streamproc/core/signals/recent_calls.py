"""The calls of the last ten call turns of each node and topic, as they were made: repeats of one call, contiguous or
interleaved with others. Recorded only if the policy's `Gate` of LOOP003 is not `any`.

Memory: `OCCURRENCES_MAX` call turns of one node and `TURNS_MAX` of all, with up to `PARALLEL_MAX` calls each; of a turn
with more, those that were made before.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamproc.core.now import Now
from streamproc.core.records import MIX, TAG
from streamproc.core.signals.calls import OCCURRENCES_MAX
from streamproc.core.signals.novelty import Gate
from streamproc.model.wire import FAILED_RETRYABLE, NO_ANSWER, Call

TURNS_MAX: Final = 50  # of all nodes: ten each of five that take turns
PARALLEL_MAX: Final = 8  # calls of one turn that are recorded: agents rarely make more at once


class Recent(NamedTuple):
    """A call and the times it was made in recent call turns of its node, this one included, oldest first: by turn of
    the run, and by the node's own count of these call turns."""

    call: Call
    turns: list[int]
    call_turns: list[int]


def observe_recent_calls(now: Now, log: list[list[int]], gate: Gate) -> tuple[Recent, ...]:
    """Record the calls of a turn in the log of the run, and return those that were made before, by the same node for
    the same topic.

    The plain count (`Gate.NONE`) compares tool and arguments, whatever the answer. Behind another gate, the answer must
    be the same, too, byte for byte, and calls without one, or that failed for reasons of infrastructure, are skipped.
    """
    made: dict[int, Call] = {}
    actor = now.node_tag ^ now.topic
    for call in now.turn.calls:
        if gate is not Gate.NONE and call.outcome in (FAILED_RETRYABLE, NO_ANSWER):
            continue
        what = call.key if gate is Gate.NONE else call.key ^ call.exact * MIX
        made[(what ^ actor * MIX) >> 7 & TAG] = call
    if not made:
        return ()
    end = now.novelty.last_end(gate)
    own = [entry for entry in log if entry[0] == actor]
    if len(own) >= OCCURRENCES_MAX:
        log.remove(own.pop(0))
    elif len(log) >= TURNS_MAX:
        log.remove(dropped := log[0])
        own = [entry for entry in own if entry is not dropped]
    if len(made) > PARALLEL_MAX:  # those that were made before, and of the others each turn another choice
        before = {tag for entry in own for tag in entry[2:]}
        places = {tag: (tag not in before, (tag + now.index) * MIX >> 16 & TAG) for tag in made}
        made = {tag: made[tag] for tag in sorted(made, key=places.__getitem__)[:PARALLEL_MAX]}
    log.append([actor, now.index, *made])
    own.append(log[-1])
    found = []
    for tag, call in made.items():
        times = [(place, entry[1]) for place, entry in enumerate(own) if entry[1] >= end and tag in entry[2:]]
        if len(times) > 1:
            found.append(Recent(call, [turn for _, turn in times], [place for place, _ in times]))
    return tuple(found)
