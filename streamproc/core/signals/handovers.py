"""Hand-overs between nodes: how many in a row brought nothing new, and who found the last new thing."""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import RunState

HOPS_MAX: Final = 8  # edges with fruitless hand-overs
HOP_BYTES: Final = 30
NAME_SHOWN: Final = 16  # characters of node names kept for messages


def note_finder(run: RunState, node_tag: int, index: int) -> None:
    """Remember who found the last new thing (0: more than words, which counts whoever it was), and when anybody else
    last did."""
    finder, at, others_at = run.finder
    run.finder = [node_tag, index, others_at if finder == node_tag else at]


def speak_to(run: RunState, index: int) -> None:
    """A person spoke: habits that assume that nobody did start again."""
    run.stale = run.failures = run.footing = run.retries = 0
    run.monologue = None
    note_finder(run, 0, index)


def count_hop(run: RunState, source: int, target: int, index: int, *, chosen: bool = False) -> tuple[int, int]:
    """Count a hand-over on its edge: how many in a row, with nothing found in between by anybody but the sender, and
    since which turn.

    A hand-over back to who handed over first is an answer, and not counted, unless it was `chosen` by a decision: a
    moderator may say the same few words again and again between the new ones of others.
    """
    edge = source << 32 | target
    hop = run.hops.pop(edge, None) or [0, 0, int((target << 32 | source) in run.hops), index]
    finder, at, others_at = run.finder
    if (at if finder != source else others_at) >= hop[1]:
        hop[0], hop[3] = 0, index
    hop[0] += 1
    hop[1] = index
    run.hops[edge] = hop
    if len(run.hops) > HOPS_MAX:
        del run.hops[next(iter(run.hops))]
    elif hop[0] == 1:
        run.room -= HOP_BYTES
    return (hop[0] if chosen or not hop[2] else 0), hop[3]
