"""Progress against the best so far: artifacts, failing tests, errors.

An *iteration* is a pass of the cycle that the node is in, or, outside cycles, each turn of the node that carries
the evidence. Outside cycles a new (call, answer) between two such turns is work going on, so the streak starts again.
"""

from __future__ import annotations

from streamproc.core.run import HASH, RECENT_MAX, TAG, NodeState, RunState, Streak, TestTrack
from streamproc.core.window import LEFT, Period, know, note_news, note_progress, push
from streamproc.wire import Errors, Tests, Turn


def remember(values: list[int], value: int) -> None:
    """Keep the last few hashes, as loop evidence."""
    values.append(value & HASH)
    if len(values) > RECENT_MAX:
        del values[0]


def extend(streak: Streak | None, value: int, index: int, stamp: int, since: int) -> Streak:
    """Count `value` once an iteration (`stamp`); anything else, or news after the streak began, starts it again."""
    if streak is None:
        return Streak(value, 1, index, stamp)
    if streak.value != value or since > streak.first:
        streak.value, streak.count, streak.first = value, 1, index
    elif streak.stamp != stamp:
        streak.count += 1
    streak.stamp = stamp
    return streak


def said_again(streak: Streak | None, norm: int, index: int, since: int) -> Streak:
    """Count the same text in a row; news after the first of them, or another text, starts again."""
    value = norm & TAG
    if streak is None:
        return Streak(value, 1, index)
    if streak.value != value or since > streak.first:
        streak.value, streak.count, streak.first = value, 1, index
    else:
        streak.count += 1
    return streak


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


def observe_tests(
    run: RunState, node: NodeState, node_tag: int, tests: Tests, index: int, stamp: int, since: int, *, anew: bool
) -> None:
    """Take in a verifier's result. Progress is fewer failing, or more passing, than ever before in this suite. Where
    the same tests fail `anew`, with another error than before, somebody gets on with them."""
    failing_set = tests.failing_set & HASH
    remember(run.failing, failing_set)
    remember(run.trend, tests.failing)
    if know(run, node_tag ^ failing_set ^ ((tests.passed or 0) << 7)):
        note_news(run, index)
    track = node.tests
    total = -1 if tests.total is None else tests.total
    passed = -1 if tests.passed is None else tests.passed
    if track is not None and track.total != total:
        node.tests, node.suite = node.suite, track  # two suites in turn: each has a track of its own
        track = node.tests
    if tests.failing == 0 and (track is None or track.best_failing > 0):
        note_progress(run, index)  # the last failing test is fixed
    if track is None or track.total != total or tests.failing == 0 or track.best_failing == 0:
        # Nothing to compare with: the first result, another suite, all is well, or a new change after all was well.
        streaks = Streak(failing_set, 1, index, stamp), Streak(tests.failing, 0, index, stamp)
        if node.tests is None:
            run.room = 0
        node.tests = TestTrack(*streaks, tests.failing, passed, total, int(passed == 0))
        return
    better = tests.failing < track.best_failing or passed > track.best_passed
    track.best_failing = min(track.best_failing, tests.failing)
    track.best_passed = max(track.best_passed, passed)
    if better:
        note_progress(run, index)
    if better or (anew and track.same.value == failing_set):
        since = index
    extend(track.same, failing_set, index, stamp, since)
    _count_flat(track, tests, index, stamp, since, better=better)


def _count_flat(track: TestTrack, tests: Tests, index: int, stamp: int, since: int, *, better: bool) -> None:
    """Count the iterations since the failing count was last below its best, and those in which nothing passed."""
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


def observe_errors(node: NodeState, errors: Errors, index: int, since: int) -> bool:
    """Take in what failed. An empty list says that nothing did, and ends the streak; True where there is one."""
    if errors.retryable:
        return False
    if errors.count == 0:
        node.errors = None
        return False
    node.errors = extend(node.errors, errors.norm & TAG, index, index, since)
    return True
