"""LOOP005 edge_loop: work is handed over on the same edge again and again, and nothing new comes of it.

Sees: hand-overs on one edge (planner to researcher, to coder, to verifier) that brought nothing new, in a row: no new
answer of a tool, artifact or changed test result of anybody, and no new words but the sender's: a planner finds new
words for the same question. A `decision` for the next node counts when it is made.

Why: planner: "need to assess", researcher: "already done", planner: "need to assess" ... each hop costs two turns.

False alarms: an answer is handed back on an edge of its own, which is not counted: a moderator may say "next, please"
between the findings of others. A turn of which nothing is known is no fruitless one. One fruitful hand-over starts
the count of its edge again, so slow progress is not halted. Where nodes answer with new words and no new content,
nothing is seen here.

Tuning: `halt` and `verifier_halt` (an edge to a node with "verif" in its name: repeated failing tests are expensive)
are the fruitless hand-overs that are still allowed; 0 turns it off.

Reference: planner loop requirement, `MAX_LOOP_EDGE` = 5, 3 for the verifier.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import STALLED, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.detectors.base import Example, call, said, tested


@dataclass(frozen=True, slots=True)
class Limits:
    """Fruitless hand-overs in a row on one edge that are allowed."""

    halt: int = 5
    verifier_halt: int = 3


class EdgeLoop:
    """LOOP005."""

    code = "LOOP005"
    name = "edge_loop"
    kinds = kind.HANDOVER

    def check(self, view: View, limits: Limits) -> Finding | None:
        hop = view.handover
        if hop is None:
            return None
        allowed = limits.verifier_halt if "verif" in hop.target.lower() else limits.halt
        if not 0 < allowed < hop.times:
            return None
        return Finding(
            code=self.code,
            level=Level.HALT,
            loop=view.run.chosen_edge or view.node_tag ^ view.run.previous_node << 1,
            onset=hop.since,
            message=f"{hop.source} has handed over to {hop.target} {hop.times} times without progress.",
            evidence=Evidence(kind=self.name, count=hop.times, edge=[hop.source, hop.target], limit=allowed),
            reason=STALLED,
            status="aborted_stuck",
            action="snitch",
        )


DETECTOR = EdgeLoop()


def _assess(rounds: int, answer: str = "Already done.") -> list[dict[str, object]]:
    return [
        turn
        for n in range(rounds)
        for turn in (said("planner", f"Need to assess, wording {'x' * n}."), said("researcher", answer.format(n)))
    ]


HEALTHY = [
    Example("each answer is new", _assess(9, "Found source {}.")),
    Example("a moderator between findings", [
        turn for n in range(9) for turn in (said("moderator", "Next: reader."), said("reader", f"Chapter {'x' * n}."))
    ]),
    Example("each repair gets further", [
        turn for n in range(9)
        for turn in (said("runner", "Failed.", errors=[f"error {'x' * n}"]), said("verifier", "Repaired."))
    ]),
    Example("one waits while the other works", [
        turn for n in range(9)
        for turn in (call("inbox", {}, "empty", node="lead"), call("read", {"f": n}, f"text {n}", node="worker"))
    ]),
    Example("a person who says go on", [
        turn for n in range(9) for turn in (said("agent", f"Chapter {'x' * n}."), said("user", "Go on."))
    ]),
    Example("turns of which nothing is known", [{"node": "ab"[n % 2]} for n in range(20)]),
    Example("five times and then a finding", [
        *_assess(5), said("planner", "Think again."), said("researcher", "Aha!"),
    ]),
    Example("a verifier that sees fewer failures each time", [
        turn for n in range(5)
        for turn in (said("coder", f"patch {n}"), tested("verifier", [f"t{k}" for k in range(5 - n)]))
    ]),
]  # fmt: skip
STUCK = [
    Example("planner and researcher", [*_assess(7), said("planner", "Need to assess, really.")], "halt", 13),
    Example("a verifier is given less", [
        turn for n in range(6)
        for turn in (said("coder", f"patch {n}"), said("verifier", "Not convinced."))
    ], "halt", 9),
    Example("decisions alone", [
        {"node": "planner", "output": f"Assess, {'x' * n}.", "decision": {"next": "researcher"}} for n in range(6)
    ], "halt", 5),
]  # fmt: skip
