"""CLAIM001 unproven_success: a run says that it succeeded, and nothing that it reported shows it.

Sees: `run.finished` whose `status` claims success although the last test result of the run had failing tests; or whose
status claims that something was solved, although the run made no call, left no artifact, ran no test and did not end
its reports of errors with an empty list.

Why: an agent can end by saying that it has ended. In 27.8 % of 345 sessions the person had to ask whether it was done.

False alarms: tests may fail that have nothing to do with the task, and an answer may need no tool. So it only warns, at
the end of the run, and words that say no more than that it ended, such as ``completed``, count only against failing
tests.

Tuning: `failing_tests` and `no_work` turn the two on (1) and off (0).

Reference: amd/gaia#3983.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.signals.node_errors import reported_none_last
from streamproc.detectors.base import (
    Detector,
    Example,
    Finding,
    Level,
    RawTurn,
    View,
    call,
    kind,
    loop_of,
    said,
    tested,
)
from streamproc.model.wire import RunFinished

SOLVED: Final = frozenset({
    "success", "succeeded", "successful", "solved", "resolved", "fixed", "passed", "implemented", "verified",
})  # fmt: skip
ENDED: Final = frozenset({"done", "completed", "complete", "finished", "ok", "submitted", "approved"})


class UnprovenSuccess(Detector):
    code, name = "CLAIM001", "unproven_success"
    kinds = kind.FINISHED
    evidence = ("failing",)

    class Limits:
        """Which claims are doubted."""

        failing_tests: int = 1  # a result is there, and contradicts
        no_work: int = 1  # of words that claim more than an end

    def check(self, view: View, limits: Limits) -> Finding | None:
        event, run = view.event, view.run
        if not isinstance(event, RunFinished) or run.halted >= 0 or not run.turns:
            return None
        claim = event.status.strip().lower()
        counts = run.evidence.failing_counts.listed()
        if limits.failing_tests and claim in SOLVED | ENDED and counts and counts[-1] > 0:
            message = f"The run ended as {claim}, and its last test result had {counts[-1]} failing tests."
            return self.finding(Level.WARN, loop_of(self.code), message, failing=counts[-1])
        proof = run.call_turns or counts or any(node.artifact.count for node in run.nodes.rows)
        if limits.no_work and claim in SOLVED and not proof and not reported_none_last(run.nodes):
            message = f"The run ended as {claim}, without a call, an artifact or a test."
            return self.finding(Level.WARN, loop_of(self.code), message)
        return None


def _ended(status: str) -> RawTurn:
    return {"type": "run.finished", "status": status}


DETECTOR = UnprovenSuccess()
HEALTHY = [
    Example("tests that pass at the end", [
        tested("qa", ["a", "b"]), call("edit", {"n": 0}, "ok"), tested("qa", []), _ended("success"),
    ]),
    Example("a patch without tests", [{"node": "coder", "artifact": "+a"}, _ended("solved")]),
    Example("a repair after which no error is left", [
        {"node": "executor", "errors": [{"message": "boom"}]}, said("repairer", "Quote the path."),
        {"node": "executor", "errors": []}, _ended("success"),
    ]),
    Example("an answer to a question, which needs no tool", [said("agent", "Use a set."), _ended("completed")]),
    Example("a run that says that it failed", [tested("qa", ["a"]), _ended("failed")]),
    Example("a run that claims nothing", [said("agent", "Use a set."), {"type": "run.finished"}]),
]  # fmt: skip
STUCK = [
    Example("gaia#3983: a file that was never written", [
        said("agent", "Done. Wrote weekly_build_times.csv"), _ended("success"),
    ], "warn", 0),
    Example("a repair that was not tried", [
        {"node": "executor", "errors": [{"message": "boom"}]}, said("repairer", "Quoted the path."), _ended("fixed"),
    ], "warn", 1),
    Example("an error that came after", [
        {"node": "executor", "errors": []}, {"node": "checker", "errors": [{"message": "boom"}]}, _ended("success"),
    ], "warn", 1),
    Example("tests that still fail", [
        tested("qa", ["a", "b"]), call("edit", {"n": 0}, "ok"), tested("qa", ["b"]), _ended("completed"),
    ], "warn", 2),
]  # fmt: skip
