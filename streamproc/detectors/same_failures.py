"""STALL002 same_failures: the same tests fail, iteration after iteration.

Sees: the same set of failing test ids of a verifier from one iteration to the next.

Why: the changes that the run makes have nothing to do with these tests.

False alarms: fewer failing, or more passing, tests than ever before are progress and restart the count. So does
another suite (another total), or another error of the same failing tests. Outside cycles a new tool answer of the same
node in between counts as work: a lone agent that edits and tests by itself is not halted here. A verifier that reports
several times within one pass of a cycle is counted once.

Tuning: `warn` and `halt` count iterations with the same failing set. `gate` names what else restarts the count:
`results`, the node's own calls and a new error, as above; `none`, only measured progress and a person, where each turn
is a whole session with calls of its own; `any`, also new words.

Reference: loop-safety requirement "unchanged failures: 2-3 iterations".
"""

from __future__ import annotations

from streamproc.core.decision import hex16
from streamproc.core.signals.novelty import Gate
from streamproc.detectors.base import Detector, Example, Finding, View, call, iteration, kind, level, said, tested


class SameFailures(Detector):
    code, name = "STALL002", "same_failures"
    kinds = kind.TESTS
    evidence = "count", "iteration", "hashes", "failing", "failing_tests", "best"
    gated = "failing_sets"
    status = "stalled"

    class Limits:
        """Iterations in a row with the same failing set."""

        warn: int = 2
        halt: int = 3
        gate: Gate = Gate.RESULTS  # a verifier that looks into new things works on it

    def check(self, view: View, limits: Limits) -> Finding | None:
        track, tests = view.node.suites.youngest(), view.turn.tests
        if track is None or tests is None or not tests.failing_set:
            return None
        streak = track.same
        reached = level(streak.count, limits.warn, limits.halt)
        loop = view.node_tag ^ streak.value
        if reached is None or self.reported(view, loop, reached):
            return None
        failing = "test has" if tests.failing == 1 else f"{tests.failing} tests have"
        message = f"The same {failing} failed in {streak.count} consecutive iterations."
        return self.finding(
            reached, loop, message, onset=streak.first,
            count=streak.count, iteration=iteration(view), failing=tests.failing, failing_tests=list(tests.sample),
            best=track.best_failing, hashes=[hex16(tests.failing_set)],
        )  # fmt: skip


DETECTOR = SameFailures()
HEALTHY = [
    Example("fewer fail each time", [tested("verifier", [f"t{n}" for n in range(k)]) for k in (7, 4, 2, 0)]),
    Example("another test each time", [tested("verifier", ["t1"]), tested("verifier", ["t2"]), tested("verifier", [])]),
    Example("the last failing test is fixed in time", [
        tested("verifier", ["t1", "t2"]), tested("verifier", ["t1"]), tested("verifier", ["t2"]),
        tested("verifier", []),
    ]),
    Example("the same test fails with another error each time", [
        turn for n in range(5)
        for turn in (said("coder", f"patch {n}"), tested("verifier", ["t1"], errors=[f"expected {'x' * n}, found y"]))
    ]),
    Example("a harness that reports the tests with every turn, while two agents work", [
        tested("ab"[n % 2], ["t1"], tool_calls=[{"name": "read", "args": {"f": n}, "result": f"text {n}"}])
        for n in range(8)
    ]),
    Example("a lone agent that tries different edits", [
        call("edit", {"line": 1}, "ok"), tested("agent", ["t1"]), call("edit", {"line": 2}, "ok"),
        tested("agent", ["t1"]), call("edit", {"line": 3}, "ok"), tested("agent", ["t1"]),
    ]),
]  # fmt: skip
STUCK = [
    Example("under `gate: none`, the same test of sessions that read", [
        call("read", {"f": n}, f"text {n}", node="verifier", tests={"failed": ["t1"], "total": 9}) for n in range(3)
    ], "halt", 2, {"detectors": {"STALL002": {"gate": "none"}}}),
    Example("two suites in turn", [
        turn for _ in range(3) for turn in (tested("verifier", ["t1"], 40), tested("verifier", ["u1"], 7))
    ], "halt", 4),
    Example("each attempt is a task of its own", [
        tested("verifier", ["t1", "t2"], task_id=f"fix-{n}") for n in range(3)
    ], "halt", 2),
    Example("the same two tests", [tested("verifier", ["t1", "t2"])] * 3, "halt", 2),
    Example("coder and verifier", [
        said("coder", "patch 1"), tested("verifier", ["t1"]), said("coder", "patch 2"), tested("verifier", ["t1"]),
        said("coder", "patch 3"), tested("verifier", ["t1"]),
    ], "halt", 5),
]  # fmt: skip
