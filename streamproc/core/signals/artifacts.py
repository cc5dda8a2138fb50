"""Artifacts and pages that a turn leaves: the same one again, and edits that are done and undone in turn.

Memory: one streak a node, a hash window of artifacts for the run (`periods.ARTIFACTS`), and the last few hashes as
evidence.
"""

from __future__ import annotations

from streamproc.core.run_state import TAG, NodeState, RunState
from streamproc.core.signals.periods import ARTIFACTS, Period, push
from streamproc.core.signals.streaks import extend, remember
from streamproc.model.wire import Turn


def observe_artifact(
    run: RunState, node: NodeState, node_tag: int, turn: Turn, index: int, stamp: int, since: int
) -> Period | None:
    """Record the artifact or page of a turn, and return the period with which artifacts repeat, if any.

    Pages do not count as edits that are done and undone.
    """
    artifact, docs = turn.artifact, turn.docs
    left = artifact or docs
    if left is None:
        return None
    value = left.norm ^ docs.norm >> 1 if artifact is not None and docs is not None else left.norm
    before = node.artifact
    same = before is not None and before.value == value & TAG  # reported again unchanged: nothing was done or undone
    node.artifact = extend(before, value & TAG, index, stamp, since)
    remember(run.recent_artifacts, left.norm)
    if same or artifact is None:
        return None
    period = push(run, ARTIFACTS, (artifact.norm ^ node_tag) & TAG, index)
    # Trying two versions in turn and measuring each again is an experiment, not a loop.
    return period if period is None or run.last_measurement < period.turns[0] else None
