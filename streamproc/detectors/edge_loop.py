"""LOOP005 edge_loop: work is handed over on the same edge again and again without progress.

Sees: handovers in a row on one edge (planner to researcher, to coder, to verifier) that brought nothing new. New is a
tool answer, an artifact or a changed test result from any node, or new words from any node but the sender: a planner
rephrases the same question. A `decision` for the next node counts at the turn that makes it.

Why: planner: "need to assess", researcher: "already done", planner: "need to assess" ... each hop costs two turns.

False alarms: the edge on which an answer returns is not counted, because a moderator may say "next, please" between
findings of others. Nor is a node that names itself as the source: it goes on with its own work, and LOOP001 and LOOP002
judge what it says. A node that makes calls and names its sender in each turn goes on with one handover until that acts
again. Within a cycle of the graph, only what the cycle finds counts as new. A turn shows no fruitless handover if it
polls, meets only errors of the infrastructure, reports nothing or, without `per_edge`, looks at known things for a
second time. One fruitful handover restarts the count of its edge, so slow progress is not halted. Nodes that answer in
new words without new content are missed.

Tuning: `halt` and `verifier_halt` are the fruitless handovers that are still allowed; 0 turns it off. `verifier_halt`
applies to edges into a node with "verif" in its name, because repeated failing tests are expensive. With `per_edge: 1`,
as in the preset `planner`, news counts only for the edge that it came back on: a new file does not excuse the same
research again, and only what says that it still runs is a poll. The tests that a node reports judge it then: other
tests fail, more pass, another suite runs. A node that leaves artifacts is judged by files that it had not left before,
by pages (`docs`) with new content, and by better test results than ever; one with "coder" in its name by files and
calls, whatever it says. A node that is asked queries does research: another query, a new answer of a tool, a new page
or file, and new words are results, as they are of any other node.
The counters are in the status of the run (`loop_counters`), ten seconds old at most.

Reference: planner loop requirement, `MAX_LOOP_EDGE` = 5, 3 for the verifier; "if `fileChanges` gained new entries,
reset `planner_to_coder`".
"""

from __future__ import annotations

from streamproc.core.signals.handovers import is_verifier
from streamproc.detectors.base import Detector, Example, Finding, Level, RuleSettings, View, call, kind, said, tested


class EdgeLoop(Detector):
    code, name = "LOOP005", "edge_loop"
    kinds = kind.HANDOVER
    evidence = "count", "edge", "limit"

    class Limits:
        """Allowed handovers in a row on one edge without progress."""

        halt: int = 5
        verifier_halt: int = 3
        per_edge: int = 0  # 1: only news from an edge restarts its count; right for a planner that directs all others

    def settings(self, limits: Limits | None) -> RuleSettings:
        return {"edges_apart": limits is not None and bool(limits.per_edge)}

    def check(self, view: View, limits: Limits) -> Finding | None:
        hop = view.handover
        if hop is None:
            return None
        allowed = limits.verifier_halt if is_verifier(hop.target) else limits.halt
        if not 0 < allowed < hop.times:
            return None
        message = f"{hop.source} handed over to {hop.target} {hop.times} times in a row without progress."
        return self.finding(
            Level.HALT, view.run.handovers.chosen_edge or view.node_tag ^ view.node_tag << 1,
            message, onset=hop.since, action="snitch",
            count=hop.times, edge=[hop.source, hop.target], limit=allowed,
        )  # fmt: skip


DETECTOR = EdgeLoop()


def _assess(rounds: int, answer: str = "Already done.") -> list[dict[str, object]]:
    return [
        turn
        for n in range(rounds)
        for turn in (said("planner", f"Need to assess, wording {'x' * n}."), said("researcher", answer.format(n)))
    ]


def _wrote(n: int) -> dict[str, object]:
    return {"node": "coder", "artifact": {f"part_{n}.py": f"x = {n}"}}


_GIVEN = {"from": "orchestrator"}
HEALTHY = [
    Example("every answer is new", _assess(9, "Found source {}.")),
    Example("a moderator between findings", [
        turn for n in range(9) for turn in (said("moderator", "Next: reader."), said("reader", f"Chapter {'x' * n}."))
    ]),
    Example("every repair gets further", [
        turn for n in range(9)
        for turn in (said("runner", "Failed.", errors=[f"error {'x' * n}"]), said("verifier", "Repaired."))
    ]),
    Example("one node waits while the other works", [
        turn for n in range(9)
        for turn in (call("inbox", {}, "empty", node="lead"), call("read", {"f": n}, f"text {n}", node="worker"))
    ]),
    Example("a person who says continue", [
        turn for n in range(9) for turn in (said("agent", f"Chapter {'x' * n}."), said("user", "Continue."))
    ]),
    Example("turns without evidence", [{"node": "ab"[n % 2]} for n in range(20)]),
    Example("a node that is sent to a job that runs, again and again", [
        turn for n in range(9)
        for turn in (
            {"node": "router", "decision": {"next": "worker"}}, call("wait", {"job": 1}, "running", node="worker"),
        )
    ]),
    Example("a node that names who gave it the work in each turn", [
        turn for n in range(9)
        for turn in (
            said("worker", f"Next, {'x' * n}.", **_GIVEN), call("edit", {"part": n % 4}, "ok", node="worker", **_GIVEN),
        )
    ]),
    Example("five fruitless handovers, then a finding", [
        *_assess(5), said("planner", "Think again."), said("researcher", "Aha!"),
    ]),
    Example("a verifier that reports fewer failures each time", [
        turn for n in range(5)
        for turn in (said("coder", f"patch {n}"), tested("verifier", [f"t{k}" for k in range(5 - n)]))
    ]),
]  # fmt: skip
_PLANNER = {"detectors": {"LOOP005": {"per_edge": 1}}}
STUCK = [
    Example("new files do not excuse the same research", [
        turn for n in range(7)
        for turn in (*_assess(1, "Already done."), said("planner", f"Write part {'x' * n}."), _wrote(n))
    ], "halt", 25, _PLANNER),
    Example("planner and researcher", [*_assess(7), said("planner", "Need to assess, really.")], "halt", 13),
    Example("a lower limit for verifiers", [
        turn for n in range(6)
        for turn in (said("coder", f"patch {n}"), said("verifier", "Not convinced."))
    ], "halt", 9),
    Example("decisions alone", [
        {"node": "planner", "output": f"Assess, {'x' * n}.", "decision": {"next": "researcher"}} for n in range(6)
    ], "halt", 5),
]  # fmt: skip
