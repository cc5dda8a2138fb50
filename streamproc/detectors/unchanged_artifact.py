"""STALL001 unchanged_artifact: iteration after iteration leaves the same artifact.

Sees: the same fingerprint of `artifact` (a patch, file content; time stamps and hunk positions do not count, and of
white space only what indents a line) across iterations, or of `docs` (white space does not count) if a turn leaves no
artifact. In a cycle an iteration is one pass; outside cycles, it is each turn of a node that leaves an artifact. The
same artifact for another task (`task_id`) is another one.

Why: a coder who hands over the same patch after a rejection has no further ideas.

False alarms: a node may legitimately leave its artifact unchanged while a measurement improves (tests, a metric): that
restarts the count. Outside cycles a new tool answer in between does the same. An empty artifact is no evidence:
committed work leaves an empty diff.

Tuning: `warn` and `halt` count iterations *without a change*: with 2, the artifact is seen for the third time. `gate`
names what else restarts the count: `results`, the node's own calls as above; `none`, only measured progress and a
person, where each turn is a whole session with calls of its own; `any`, also new words.

Reference: loop-safety requirement "unchanged diff: 2 times".
"""

from __future__ import annotations

from streamproc.core.decision import hex16
from streamproc.core.signals.novelty import Gate
from streamproc.detectors.base import Detector, Example, Finding, View, call, iteration, kind, level, said, tested


class UnchangedArtifact(Detector):
    code, name = "STALL001", "unchanged_artifact"
    kinds = kind.ARTIFACT
    evidence = "count", "iteration", "match", "hashes"
    gated = "artifacts"
    status = "stalled"

    class Limits:
        """Iterations in a row that did not change the artifact."""

        warn: int = 1
        halt: int = 2  # "unchanged diff: 2 times"
        gate: Gate = Gate.RESULTS  # a harness may attach the same diff to every turn that reads

    def check(self, view: View, limits: Limits) -> Finding | None:
        streak = view.node.artifact
        if streak.count < 2:
            return None
        unchanged = streak.count - 1
        if (reached := level(unchanged, limits.warn, limits.halt)) is None:
            return None
        times = "iteration" if unchanged == 1 else f"{unchanged} iterations"
        message = f"{view.turn.node} left its artifact unchanged in the last {times}."
        return self.finding(
            reached, view.node_tag ^ streak.value, message, onset=streak.first,
            count=streak.count, iteration=iteration(view),
            hashes=[hex16(value) for value in view.run.evidence.artifacts.listed()[-streak.count :]],
            match="normalised",
        )  # fmt: skip


DETECTOR = UnchangedArtifact()


def _patched(text: str, **more: object) -> dict[str, object]:
    return {"node": "coder", "artifact": text, **more}


HEALTHY = [
    Example("the patch grows", [_patched(f"+line {n}\n" * n) for n in range(1, 6)]),
    Example("the same patch while tests improve", [
        tested("verifier", ["t1", "t2", "t3"]), _patched("+a"), tested("verifier", ["t1", "t2"]), _patched("+a"),
        tested("verifier", ["t1"]), _patched("+a"), tested("verifier", []), _patched("+a"),
    ]),
    Example("reading between two reports of the same diff", [
        _patched("+a"), call("read", {"f": 1}, "one", node="coder"), _patched("+a"),
        call("read", {"f": 2}, "two", node="coder"), _patched("+a"),
    ]),
    Example("a harness that reports the patch with every turn, while two agents read", [
        call("read", {"f": n}, f"text {n}", node="ab"[n % 2], artifact="+ab"[n % 2]) for n in range(8)
    ]),
    Example("the patch stays while its documentation grows", [
        {"node": "writer", "artifact": "+a", "docs": f"# Guide {'x' * n}"} for n in range(5)
    ]),
    Example("the same report about one task after the other", [
        _patched("All checks pass.", task_id=f"T{n}") for n in range(5)
    ]),
    Example("a clean tree after each commit", [_patched(" ")] * 5),
]  # fmt: skip
STUCK = [
    Example("the same patch three times", [_patched("+a")] * 3, "halt", 2),
    Example("the same patch despite a reviewer's comments", [
        _patched("+a"), said("reviewer", "rename it"), _patched("+a"), said("reviewer", "please rename it"),
        _patched("+a"),
    ], "halt", 4),
    Example("pages that differ only by white space", [
        {"node": "writer", "docs": "# Guide\n\nInstall it."}, said("reviewer", "say how"),
        {"node": "writer", "docs": "# Guide\n\n\nInstall  it."}, said("reviewer", "please say how"),
        {"node": "writer", "docs": "# Guide\n\nInstall it. "},
    ], "halt", 4),
    Example("under `gate: none`, the same patch of a session that reads", [
        call("read", {"f": n}, f"text {n}", node="coder", artifact="+a") for n in range(3)
    ], "halt", 2, {"detectors": {"STALL001": {"gate": "none"}}}),
    Example("the same patch twice", [_patched("+a"), said("reviewer", "rename it"), _patched("+a")], "warn", 2),
]  # fmt: skip
