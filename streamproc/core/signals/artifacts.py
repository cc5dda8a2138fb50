"""Artifacts that a turn left behind: repeats, edits done and undone."""

from __future__ import annotations

from streamproc.core.run_state import TAG, NodeState, RunState
from streamproc.core.signals.periods import LEFT, Period, push
from streamproc.core.signals.streaks import extend, remember
from streamproc.model.wire import Turn


def observe_artifact(
    run: RunState, node: NodeState, node_tag: int, turn: Turn, index: int, stamp: int, since: int
) -> Period | None:
    """Take in what a turn left behind: its artifact, or the page it wrote. Pages are no edits done and undone."""
    artifact, docs = turn.artifact, turn.docs
    left = artifact or docs
    if left is None:
        return None
    value = left.norm ^ docs.norm >> 1 if artifact is not None and docs is not None else left.norm
    before = node.artifact
    same = before is not None and before.value == value & TAG  # told again as it is: nothing was done or undone
    node.artifact = extend(before, value & TAG, index, stamp, since)
    remember(run.artifacts, left.norm)
    if same or artifact is None:
        return None
    period = push(run, LEFT, (artifact.norm ^ node_tag) & TAG, index)
    # Two ways that are tried in turn and measured anew each time are an experiment.
    return period if period is None or run.measured < period.turns[0] else None
