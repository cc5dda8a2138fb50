"""Handovers between nodes: how many in a row on one edge brought nothing new, and which node found the last new thing.

Memory: `FRUITLESS_MAX` edges with their counts, and the last finder.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import RunState

FRUITLESS_MAX: Final = 8  # edges with fruitless handovers; past it, the least recent is dropped
HANDOVER_BYTES: Final = 30  # of an encoded state
NAME_SHOWN: Final = 16  # characters of node names kept for messages


def count_handover(run: RunState, source: int, target: int, index: int, *, chosen: bool = False) -> tuple[int, int]:
    """Count a handover on its edge. Return how many there were in a row with nothing found in between by any node
    but the sender, and the turn of the first.

    Handing back to the node that handed over first is an answer and does not count, unless a decision has `chosen`
    it: a moderator may repeat the same few words between new contributions of others.
    """
    edge = source << 32 | target
    handover = run.fruitless_handovers.pop(edge, None) or [
        0, 0, int((target << 32 | source) in run.fruitless_handovers), index,
    ]  # fmt: skip
    finder, at, others_at = run.last_finder
    if (at if finder != source else others_at) >= handover[1]:
        handover[0], handover[3] = 0, index
    handover[0] += 1
    handover[1] = index
    run.fruitless_handovers[edge] = handover
    if len(run.fruitless_handovers) > FRUITLESS_MAX:
        del run.fruitless_handovers[next(iter(run.fruitless_handovers))]
    elif handover[0] == 1:
        run.size_left -= HANDOVER_BYTES
    return (handover[0] if chosen or not handover[2] else 0), handover[3]


def note_finder(run: RunState, node_tag: int, index: int) -> None:
    """Record the node that found something new in this turn, and when another node last did.

    A tag of 0 stands for evidence that is more than words: it counts whichever node reported it.
    """
    finder, at, others_at = run.last_finder
    run.last_finder = [node_tag, index, others_at if finder == node_tag else at]


def reset_for_user_message(run: RunState, index: int) -> None:
    """Restart the counters that assume that no user has intervened."""
    run.stale_bits = run.failed_turns = run.excused_failures = run.retries = 0
    run.monologue = run.text_streak = None
    run.text_turns = []
    note_finder(run, 0, index)
