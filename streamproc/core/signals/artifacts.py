"""Artifacts and pages that a turn leaves: the same one again, and edits that are done and undone in turn.

Memory: one streak a node, a hash window of artifacts for the run (`periods.ARTIFACTS`), and the last few hashes as
evidence. Read by STALL001 and STALL008.
"""

from __future__ import annotations

from streamproc.core.now import Now
from streamproc.core.records import cfunc, hash64, i32, tag32, u32, u64
from streamproc.core.signals.evidence import RecentHashes
from streamproc.core.signals.nodes import NodeState
from streamproc.core.signals.periods import ARTIFACTS, Period
from streamproc.model.wire import Content


@cfunc
def observe_artifact(now: Now, recent: RecentHashes, stamp: i32, since: i32) -> None:
    """Record the artifact or page of a turn, and report the period with which artifacts repeat, if any.

    Pages do not count as edits that are done and undone.
    """
    node: NodeState = now.node
    artifact: Content | None = now.turn.artifact
    docs: Content | None = now.turn.docs
    left: Content | None = docs if artifact is None else artifact
    shown: u64 = hash64(left.norm) if left is not None else 0
    value: u64 = shown
    tag: u32 = tag32(shown ^ node.key)
    same: bool
    period: Period | None
    if artifact is not None and docs is not None:
        value ^= hash64(docs.norm) >> 1
    if now.turn.task_id:
        value ^= now.tag(now.turn.task_id)  # the same report about another task is another one
    value = tag32(value)
    if node.artifact.count:
        same = node.artifact.value == value
    else:
        same = now.streams.has(ARTIFACTS, tag)  # the memory of the node was dropped: it did not leave anything else
    node.artifact.extend(value, now.index, stamp, since)
    if node.artifact.first == now.index:
        now.novelty.last_result = now.index
    recent.artifacts.push(shown)
    if same or artifact is None:
        return  # reported again unchanged: nothing was done or undone
    period = now.streams.push(ARTIFACTS, tag, now.index)
    # Trying two versions in turn and measuring each again is an experiment, not a loop.
    if period is not None and now.novelty.last_measurement < period.turns[0]:
        now.streams.see(period)
