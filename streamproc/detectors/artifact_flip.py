"""STALL008 artifact_flip: edits are done, undone and done again.

Sees: the artifact of a run alternating between two contents, A/B/A/B, for two full periods. Measured progress in
between ends the count; words do not.

Why: two reviewers, or two rules, demand opposite changes, and the coder follows each in turn.

False alarms: going back once (A/B/A) is legitimate and does not count. Two variants that are measured each time, with
different figures, are an experiment. Reporting the same artifact again does not count as undoing it.

Tuning: `halt` counts full periods; 0 turns it off. LOOP002 covers longer sequences.

Reference: catalogue of stalls, "artifact content A/B/A/B: edits undone and redone".
"""

from __future__ import annotations

from streamproc.core.decision import OSCILLATING
from streamproc.core.signals.periods import ARTIFACTS
from streamproc.detectors.base import Detector, Example, Finding, Level, RawTurn, View, call, hex16, kind, said


class ArtifactFlip(Detector):
    code, name = "STALL008", "artifact_flip"
    kinds = kind.PERIOD
    evidence = "count", "period", "turns", "match", "hashes"
    reason = OSCILLATING

    class Limits:
        """Full periods."""

        halt: int = 2

    def check(self, view: View, limits: Limits) -> Finding | None:
        for period in view.periods:
            periods = (period.matches + period.length) // period.length
            if period.stream == ARTIFACTS and period.length == 2 and 0 < limits.halt <= periods:
                message = f"{view.turn.node}'s artifact alternated between the same two contents {periods} times."
                return self.finding(
                    Level.HALT, sum(period.tags), message, onset=period.onset,
                    period=2, count=periods, turns=period.turns,
                    hashes=[hex16(value) for value in view.run.evidence.artifacts.listed()[-2:]], match="normalised",
                )  # fmt: skip
        return None


DETECTOR = ArtifactFlip()


def _patched(*contents: str) -> list[RawTurn]:
    return [{"node": "coder", "artifact": f"+{content}"} for content in contents]


HEALTHY = [
    Example("one step back", _patched("list", "set", "list", "dict")),
    Example("an artifact that grows", _patched("a", "ab", "abc", "abcd")),
    Example(
        "two variants that are measured again each time",
        [
            turn
            for n in range(6)
            for turn in (*_patched("ab"[n % 2]), {"node": "judge", "progress": {"throughput": 90 + n * 7 % 5 + n}})
        ],
    ),
    Example("two coders whose patches stay the same while they read", [
        call("read", {"file": n}, f"text {n}", node="ab"[n % 2], artifact="+ab"[n % 2]) for n in range(8)
    ]),
]  # fmt: skip
STUCK = [
    Example("a list, a set, a list, a set", _patched("list", "set", "list", "set"), "halt", 3),
    Example("with a reviewer's comments in between", [
        turn for n, content in enumerate(("list", "set", "list", "set"))
        for turn in (*_patched(content), said("reviewer", f"no, {'please ' * n}the other one"))
    ], "halt", 6),
]  # fmt: skip
