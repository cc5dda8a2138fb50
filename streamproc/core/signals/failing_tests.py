"""Test results, compared with the best so far: the same failing tests, and failing counts that do not fall.

Memory: the two suites that each node reported last, and the last few failing sets and counts of the run as evidence.
Each task has suites of its own, unless the same tests fail as in the report before. Progress means fewer failing or
more passing tests than ever before in the suite. Read by STALL002 and STALL003.
"""

from __future__ import annotations

from streamproc.core.now import Now
from streamproc.core.records import cfunc, hash64, i32, i64, u64
from streamproc.core.signals.evidence import RecentHashes
from streamproc.core.signals.nodes import NodeState, SuiteTrack
from streamproc.model.wire import Tests


@cfunc
def observe_tests(
    now: Now,
    tests: Tests,
    recent: RecentHashes,
    stamp: i32,
    set_since: i32,
    count_since: i32,
    new_error: bool,
    new_set_counts: bool,
) -> None:
    """Record test results. `set_since` and `count_since` are the last turns that restarted the streaks of the failing
    set and of the failing count. If the same tests fail with a new error (`new_error`), the work continues and both
    start again; so they do when tests fail that did not fail before, if `new_set_counts`."""
    node: NodeState = now.node
    index: i32 = now.index
    failing_set: u64 = hash64(tests.failing_set)
    task: u64 = hash64(now.names.tag(now.turn.task_id)) if now.turn.task_id else 0
    failing: i64 = tests.failing
    passed: i64 = -1 if tests.passed is None else tests.passed
    total: i64 = -1 if tests.total is None else tests.total
    suite: u64 = hash64(total) ^ task
    better: bool
    new: bool
    track: SuiteTrack | None
    recent.failing_sets.push(failing_set)
    recent.failing_counts.push(failing)
    new = now.novelty.remember(node.key ^ failing_set ^ hash64(max(passed, 0)) << 7)
    if new:
        now.novelty.note_news(index)
    track = node.suites.touch(suite)
    if track is None and task:
        track = _unchanged(node, failing_set)
    if failing == 0 and (track is None or track.best_failing > 0):
        now.novelty.note_progress(index)  # the last failing test is fixed
    if track is None or failing == 0 or track.best_failing == 0:
        # Nothing to compare with: the first result, another suite, no failures, or new failures after none.
        if track is None:
            track = node.suites.add(suite)
        track.same.begin(failing_set, 1, index, stamp)
        track.flat.begin(hash64(failing), 0, index, stamp)
        track.best_failing, track.best_passed, track.unpassed = failing, passed, passed == 0
        return
    # The first report that counts the passing tests shows no more of them than the reports before it did.
    better = failing < track.best_failing or passed > track.best_passed >= 0
    track.best_failing = min(track.best_failing, failing)
    track.best_passed = max(track.best_passed, passed)
    if better:
        now.novelty.note_progress(index)
    if better or (new_error if track.same.value == failing_set else new and new_set_counts):
        set_since = count_since = index
    track.same.extend(failing_set, index, stamp, set_since)
    _count_flat(track, passed, index, stamp, count_since, better)


@cfunc
def _unchanged(node: NodeState, failing_set: u64) -> SuiteTrack | None:
    """Return the results that a node reported last, if the same tests failed: another task changes nothing there."""
    last: SuiteTrack | None = node.suites.youngest()
    return last if last is not None and last.same.value == failing_set and last.best_failing > 0 else None


@cfunc
def _count_flat(track: SuiteTrack, passed: i64, index: i32, stamp: i32, since: i32, better: bool) -> None:
    """Count the iterations since the last improvement, and those in which no test passed."""
    fresh: bool = track.flat.stamp != stamp
    if better or since > track.flat.first:
        track.flat.value, track.flat.count, track.flat.first = hash64(track.best_failing), 0, index
    elif fresh:
        track.flat.count += 1
    track.flat.stamp = stamp
    if passed:
        track.unpassed = 0
    elif fresh:
        track.unpassed += 1
