"""LOOP002 oscillation: a run repeats the same sequence of two to sixteen steps.

Sees: the stream of what nodes say or leave behind, or of calls with their answers, repeating with a period p from 2 to
16: A/B/A/B, A/B/C/A/B/C. It tracks every p at once, at a bounded cost per turn and without rescanning: a match with
the element p steps before extends that period by one; a mismatch resets it.

Why: two agents that pass the same two texts back and forth continue until the budget is spent.

False alarms: going twice over the same fifteen files is legitimate, so *calls* with the same answers warn at two
rounds and halt at three. Anything new in between (an answer, a finding, a test result, a person) ends the round, so a
poll whose answers change, or a cycle that makes progress, is never an oscillation.

Tuning: `said_halt`, `calls_warn`, `calls_halt` are full rounds; 0 turns a level off. `gate` names what else ends a
round: with `any`, all news does; with `results`, what each node says is also followed in its own turns, where only
results end a round (of calls, tests, errors, artifacts, queries, or a person); with `none`, only measured progress and
a person do.

Reference: loop-safety requirement "oscillation: output alternates between two states".
"""

from __future__ import annotations

from streamproc.core.decision import OSCILLATING
from streamproc.core.signals.novelty import Gate
from streamproc.core.signals.periods import STEPS, Period, loop_tag
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, kind, said


class Oscillation(Detector):
    code, name = "LOOP002", "oscillation"
    kinds = kind.PERIOD
    evidence = "count", "period", "turns", "match", "hashes"
    gated = "sequences"
    reason = OSCILLATING

    class Limits:
        """Full rounds."""

        said_halt: int = 2  # words and artifacts do not recur by chance
        calls_warn: int = 2  # going twice over the same files is legitimate
        calls_halt: int = 3
        gate: Gate = Gate.ANY  # others' new words may be the answer that a repeated question asks for

    def check(self, view: View, limits: Limits) -> Finding | None:
        found = None
        for period in view.periods:
            reached = self._level(period, limits)
            if reached is not None and (found is None or reached > found[1]):
                found = period, reached
        return None if found is None else self._finding(view, *found)

    def _level(self, period: Period, limits: Limits) -> Level | None:
        rounds, rest = divmod(period.matches + period.length, period.length)
        if rest:
            return None
        if period.stream == STEPS and any(tag & 1 for tag in period.tags):
            if rounds == limits.calls_halt:
                return Level.HALT
            return Level.WARN if rounds == limits.calls_warn else None
        return Level.HALT if rounds == limits.said_halt else None

    def _finding(self, view: View, period: Period, reached: Level) -> Finding:
        rounds = (period.matches + period.length) // period.length
        message = f"The same {period.length}-step sequence has repeated {rounds} times."
        return self.finding(
            reached, loop_tag(period.tags), message, onset=period.onset,
            period=period.length, count=rounds, turns=period.turns, hashes=[f"{tag:08x}" for tag in period.tags],
            match="normalised",
        )  # fmt: skip


DETECTOR = Oscillation()
_FILES = [call("read", {"path": f"src/{n}.py"}, f"contents of file {n}") for n in range(15)]
HEALTHY = [
    Example("one step back", [said("coder", "use a list"), said("coder", "use a set"), said("coder", "use a list"),
                              said("coder", "use a dict")]),
    Example("a repeated question with new answers", [
        said("planner", "next?"), said("worker", "found whales"),
        said("planner", "next?"), said("worker", "found ships"),
        said("planner", "next?"), said("worker", "found storms"),
    ]),
    Example("two polls whose answers change", [
        call("poll", {"job": 1}, "1%"), call("poll", {"job": 2}, "5%"), call("poll", {"job": 1}, "2%"),
        call("poll", {"job": 2}, "6%"), call("poll", {"job": 1}, "3%"), call("poll", {"job": 2}, "7%"),
    ]),
    Example("the same two sentences around new work", [
        turn for n in range(5) for turn in (
            said("manager", "Continue."), call("read", {"chapter": n}, f"chapter {n}", node="worker"),
            said("worker", "Done."),
        )
    ]),
]  # fmt: skip
STUCK = [
    Example("two alternating texts of a node that called a tool before", [
        call("ls", {}, "a b"), *[said("agent", "I will use a list."), said("agent", "I will use a set.")] * 3,
    ], "halt", 4),
    Example("under `gate: none`, two answers in turn, whatever the reviewer says", [
        turn for n in range(4) for turn in (said("coder", ("a list", "a set")[n % 2]), said("reviewer", f"no{'!' * n}"))
    ], "halt", 6, {"detectors": {"LOOP002": {"gate": "none"}}}),
    Example("two alternating texts", [said("coder", "use a list"), said("coder", "use a set")] * 2, "halt", 3),
    Example("a ring of three nodes", [said("a", "x"), said("b", "y"), said("c", "z")] * 2, "halt", 5),
    Example("the same three calls three times", [
        call("ls", {}, "a b"), call("cat", {"f": "a"}, "1"), call("cat", {"f": "b"}, "2"),
    ] * 3, "halt", 8),
    Example("going twice over the same fifteen files only warns", _FILES * 2, "warn", 29),
]  # fmt: skip
