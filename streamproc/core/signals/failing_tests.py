"""Test results, compared with the best so far: the same failing tests, and failing counts that do not fall.

Memory: the two suites that each node reported last, and the last few failing sets and counts of the run as evidence.
Progress means fewer failing or more passing tests than ever before in the suite.
"""

from __future__ import annotations

from streamproc.core.run_state import HASH, NodeState, RunState, Streak, SuiteTrack
from streamproc.core.signals.novelty import note_news, note_progress, remember_tag
from streamproc.core.signals.streaks import extend, remember
from streamproc.model.wire import Tests


def observe_tests(
    run: RunState,
    node: NodeState,
    node_tag: int,
    tests: Tests,
    index: int,
    stamp: int,
    since: tuple[int, int],
    *,
    new_error: bool,
    new_set_counts: bool = False,
) -> None:
    """Record test results. `since` are the last turns that restarted the streaks of the failing set and of the failing
    count. If the same tests fail with a new error (`new_error`), the work continues and both start again; so they do
    when tests fail that did not fail before, if `new_set_counts`."""
    failing_set = tests.failing_set & HASH
    remember(run.recent_failing_sets, failing_set)
    remember(run.recent_failing_counts, tests.failing)
    new = remember_tag(run, node_tag ^ failing_set ^ ((tests.passed or 0) << 7))
    if new:
        note_news(run, index)
    track = node.tests
    total = -1 if tests.total is None else tests.total
    passed = -1 if tests.passed is None else tests.passed
    if track is not None and track.total != total:
        node.tests, node.other_suite = node.other_suite, track  # two suites in turn: each has its own track
        track = node.tests
    if tests.failing == 0 and (track is None or track.best_failing > 0):
        note_progress(run, index)  # the last failing test is fixed
    if track is None or track.total != total or tests.failing == 0 or track.best_failing == 0:
        # Nothing to compare with: the first result, another suite, no failures, or new failures after none.
        streaks = Streak(failing_set, 1, index, stamp), Streak(tests.failing, 0, index, stamp)
        if node.tests is None:
            run.size_left = 0
        node.tests = SuiteTrack(*streaks, tests.failing, passed, total, int(passed == 0))
        return
    better = tests.failing < track.best_failing or passed > track.best_passed
    track.best_failing = min(track.best_failing, tests.failing)
    track.best_passed = max(track.best_passed, passed)
    if better:
        note_progress(run, index)
    if better or (new_error if track.same.value == failing_set else new and new_set_counts):
        since = index, index
    extend(track.same, failing_set, index, stamp, since[0])
    _count_flat(track, tests, index, stamp, since[1], better=better)


def _count_flat(track: SuiteTrack, tests: Tests, index: int, stamp: int, since: int, *, better: bool) -> None:
    """Count the iterations since the last improvement, and those in which no test passed."""
    flat = track.flat
    if better or since > flat.first:
        flat.value, flat.count, flat.first = track.best_failing, 0, index
    elif flat.stamp != stamp:
        flat.count += 1
    fresh = flat.stamp != stamp
    flat.stamp = stamp
    if tests.passed != 0:
        track.unpassed = 0
    elif fresh:
        track.unpassed += 1
