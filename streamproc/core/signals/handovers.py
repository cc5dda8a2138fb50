"""Handovers between nodes: how many in a row on one edge brought nothing new, and which node found the last new thing.

With edges *apart*, as a planner needs it, news counts only for the edge that it came back on, and each node is judged
by the results that it produces: tests, files, or answers.

Memory: `FRUITLESS_MAX` edges with their counts, and the last finder; with edges apart, the names of nodes.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.run_state import TAG, NodeState, RunState
from streamproc.core.signals.novelty import remember_tag
from streamproc.model.wire import Turn

FRUITLESS_MAX: Final = 8  # edges with fruitless handovers; past it, the least recent is dropped
HANDOVER_BYTES: Final = 30  # of an encoded state
NAME_SHOWN: Final = 16  # characters of node names kept for messages
NAMES_MAX: Final = 9  # of nodes: one that hands over on `FRUITLESS_MAX` edges
NAME_BYTES: Final = 71  # of an encoded state: a tag, and a name of the widest characters

# Bits of the third number of a handover.
ANSWER: Final = 1  # it answers a handover in the other direction
OPEN: Final = 2  # the sender has not acted since; only with edges apart
CHOSEN: Final = 4  # a decision chose the edge; only with edges apart


def count_handover(
    run: RunState, source: int, target: int, index: int, *, chosen: bool = False, apart: bool = False
) -> tuple[int, int]:
    """Count a handover on its edge. Return how many there were in a row with nothing found in between by any node
    but the sender, and the turn of the first.

    Handing back to the node that handed over first is an answer and does not count, unless a decision has `chosen`
    it: a moderator may repeat the same few words between new contributions of others.

    With edges `apart`, only what was found before the sender acted again belongs to a handover (`end_handovers`), and
    progress in the results of a node that leaves artifacts.
    """
    if apart:
        end_handovers(run, source)
    edge = source << 32 | target
    handover = run.fruitless_handovers.pop(edge, None)
    if handover is None:
        answer = _hands_out(run, target) if apart else (target << 32 | source) in run.fruitless_handovers
        handover = [0, 0, ANSWER * answer, index]
    finder, at, others_at = run.last_finder
    if apart:
        worker = run.nodes.get(target)
        if worker is not None and worker.artifact is not None and run.last_progress >= handover[1]:
            handover[0] = 0
        handover[2] |= OPEN | CHOSEN if chosen else OPEN
    elif (at if finder != source else others_at) >= handover[1]:
        handover[0] = 0
    if not handover[0]:
        handover[3] = index
    handover[0] += 1
    handover[1] = index + 1 if apart and chosen else index  # the words of a decision are not an answer to it
    run.fruitless_handovers[edge] = handover
    if len(run.fruitless_handovers) > FRUITLESS_MAX:
        del run.fruitless_handovers[next(iter(run.fruitless_handovers))]
    elif handover[0] == 1:
        run.size_left -= HANDOVER_BYTES
    return (handover[0] if chosen or not handover[2] & ANSWER else 0), handover[3]


def _hands_out(run: RunState, node_tag: int) -> bool:
    """Return whether a node has given work to others: what it is handed is an answer, perhaps through several nodes."""
    for edge, handover in run.fruitless_handovers.items():
        if edge >> 32 == node_tag and not handover[2] & ANSWER:
            return True
    return False


def end_handovers(run: RunState, source: int) -> None:
    """End the handovers of a node that acts again: the count of those that something was found after starts again."""
    for edge, handover in run.fruitless_handovers.items():
        if edge >> 32 == source and handover[2] & OPEN:
            handover[2] &= ~OPEN
            if run.last_finder[1] >= handover[1]:
                handover[0] = 0


def name_nodes(run: RunState, source: int, source_name: str, target: int, target_name: str) -> None:
    """Keep the names of the nodes of an edge, for its counter in the status and for messages."""
    for tag, name in ((source, source_name), (target, target_name)):
        if tag not in run.node_names:
            run.node_names[tag] = name[:NAME_SHOWN]
            if len(run.node_names) > NAMES_MAX:
                del run.node_names[next(iter(run.node_names))]
            else:
                run.size_left -= NAME_BYTES


def loop_counters(run: RunState) -> dict[str, int]:
    """Return the handovers without progress on each edge, such as `planner_to_researcher`, without edges on which
    answers return."""
    names = run.node_names
    return {
        f"{names[edge >> 32]}_to_{names[edge & TAG]}": handover[0]
        for edge, handover in run.fruitless_handovers.items()
        if (not handover[2] & ANSWER or handover[2] & CHOSEN) and edge >> 32 in names and edge & TAG in names
    }


def edge_of(run: RunState, node_tag: int) -> list[str] | None:
    """Return the names of the last edge on which a node was given work, or, for a node that was given none, on which
    it gave work to another."""
    names = run.node_names
    known = [
        (edge >> 32, edge & TAG)
        for edge, handover in reversed(run.fruitless_handovers.items())
        if (not handover[2] & ANSWER or handover[2] & CHOSEN) and edge >> 32 in names and edge & TAG in names
    ]
    own = [edge for edge in known if edge[1] == node_tag] or [edge for edge in known if edge[0] == node_tag]
    return [names[own[0][0]], names[own[0][1]]] if own else None


def shows_results(node: NodeState | None) -> bool:
    """Return whether a node reports tests or leaves artifacts, and is judged by them, not by its words."""
    return node is not None and (node.tests is not None or node.artifact is not None)


def failing_set_of(node: NodeState) -> int:
    """Return the tag of the failing tests that a node reported last; -1: none yet."""
    return node.tests.same.value if node.tests is not None else -1


def brought_results(run: RunState, turn: Turn, node: NodeState, tag: int, index: int, failing_set: int) -> bool:
    """Return whether a turn brought a result of its node's kind that differs: of a node that reports tests or leaves
    artifacts, tests unlike those of its last report (`failing_set`), or a file that is new; of others, another query.

    An artifact without names of files counts if its content differs from the last one's.
    """
    tests, artifact, left = turn.tests, turn.artifact, node.artifact
    if not shows_results(node):
        return turn.query is not None and node.query is not None and node.query.first == index
    if tests is not None and (failing_set_of(node) != failing_set or run.last_progress == index):
        return True
    if artifact is not None and artifact.about:
        return remember_tag(run, artifact.about ^ tag)
    return artifact is not None and left is not None and left.count == 1


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
    for handover in run.fruitless_handovers.values():
        handover[0] = 0
    note_finder(run, 0, index)
