"""STALL003 no_fewer_failures: the number of failing tests has not fallen for a while.

Sees: iterations in which the failing count is not below its best so far, even if different tests fail each time. If no
test passes at all, it warns earlier.

Why: moving the failure from test to test looks busy and never converges.

False alarms: one step back is not a stall: the count is against the best so far, and a run gets `halt` iterations to
beat it. More passing tests than before also count as progress. A longer plateau before a breakthrough is halted; raise
`halt` if your work has such plateaus. Outside cycles a new tool answer in between restarts the count.

Tuning: `halt` counts iterations after the best one; `nothing_passes_warn` counts iterations in which no test passed.
`gate` names what else restarts the count: `results`, the node's own calls, as above; `none`, only measured progress and
a person, where each turn is a whole session with calls of its own; `any`, also new words.
With `per_edge` of LOOP005, as in the preset `planner`, a failing test that did not fail before restarts the count: a
verifier that stops at the first failure advances from one failing command to the next.

Reference: loop-safety requirement "failing count does not decrease for K iterations".
"""

from __future__ import annotations

from streamproc.core.signals.novelty import Gate
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, iteration, kind, said, tested


class NoFewerFailures(Detector):
    code, name = "STALL003", "no_fewer_failures"
    kinds = kind.TESTS
    evidence = "count", "iteration", "failing", "failing_tests", "failing_trend", "best"
    gated = "failing_counts"
    status = "stalled"

    class Limits:
        """Iterations without a new lowest failing count."""

        halt: int = 3
        gate: Gate = Gate.RESULTS  # a verifier that looks into new things works on it
        nothing_passes_warn: int = 2  # 0 of N passing: something more basic is broken

    def check(self, view: View, limits: Limits) -> Finding | None:
        track, tests = view.node.suites.youngest(), view.turn.tests
        if track is None or tests is None or tests.failing == 0:
            return None
        if 0 < limits.halt <= track.flat.count:
            reached, count = Level.HALT, track.flat.count
            message = f"The number of failing tests has not fallen below {track.best_failing} for {count} iterations."
        elif 0 < limits.nothing_passes_warn <= track.unpassed:
            reached, count = Level.WARN, track.unpassed
            message = f"No test has passed in {count} consecutive iterations."
        else:
            return None
        loop = view.node_tag ^ track.best_failing
        if self.reported(view, loop, reached):
            return None
        return self.finding(
            reached,
            loop,
            message,
            onset=track.flat.first,
            count=count,
            iteration=iteration(view),
            failing=tests.failing,
            failing_tests=list(tests.sample),
            failing_trend=view.run.evidence.failing_counts.listed(),
            best=track.best_failing,
        )


DETECTOR = NoFewerFailures()
HEALTHY = [
    Example("7, 4, 2, 0", [tested("verifier", [f"t{n}" for n in range(k)]) for k in (7, 4, 2, 0)]),
    Example("one step back", [tested("verifier", [f"t{n}" for n in range(k)]) for k in (4, 5, 3, 2, 1, 0)]),
    Example("a new change after all tests passed", [
        tested("verifier", [f"t{n}" for n in range(k)]) for k in (0, 4, 3, 2, 1)
    ]),
    Example("another task begins with more failures", [
        tested("verifier", [f"{task}{n}" for n in range(k)], 50, task_id=task)
        for task, counts in (("a", (3, 1)), ("b", (40, 30, 20, 10, 5))) for k in counts
    ]),
    Example("a short plateau before a breakthrough", [
        tested("verifier", names) for names in (["a", "b"], ["a", "c"], ["b", "c"], ["a"], [])
    ]),
]  # fmt: skip
STUCK = [
    Example("under `gate: none`, different tests of sessions that read", [
        call("read", {"f": n}, f"text {n}", node="verifier", tests={"failed": ["a", "bcde"[n]], "total": 9})
        for n in range(4)
    ], "halt", 3, {"detectors": {"STALL003": {"gate": "none"}}}),
    Example("different tests fail each time", [
        tested("verifier", names) for names in (["a", "b"], ["a", "c"], ["b", "c"], ["c", "d"])
    ], "halt", 3),
    Example("with a coder in between", [
        turn for n, names in enumerate((["a", "b"], ["a", "c"], ["b", "c"], ["c", "d"]))
        for turn in (said("coder", f"patch {n}"), tested("verifier", names))
    ], "halt", 7),
    Example("of each of two tasks in turn", [
        tested("verifier", [f"{task}{n}", f"{task}{n + 1}"], task_id=task) for n in range(4) for task in "ab"
    ], "halt", 6),
    Example("no test passes", [tested("verifier", ["a", "b"], 2), tested("verifier", ["b", "a"], 2)], "warn", 1),
]  # fmt: skip
