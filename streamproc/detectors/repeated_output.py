"""LOOP001 repeated_output: one node repeats the same output.

Sees: the same `output` or `structured_output` of one node, turn after turn of that node. Functionally identical is
enough: time stamps, ids, durations and white space do not count.

Why: an agent that repeats its answer word for word makes no progress; more turns cost money and change nothing.

False alarms: an agent may legitimately repeat itself if something new happened in between: another node said something
new, a tool answered something new, a test result changed, a person spoke. Each of these restarts the count. Text
between two tool calls of the same node is narration ("let me wait a bit longer") and is not counted.

Tuning: `warn` and `halt` are counts of identical outputs in a row; 0 turns a level off.

Reference: loop-safety requirement "repeated identical outputs: 2-3 times".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import STALLED, Evidence, Finding, hex16
from streamproc.core.view import View
from streamproc.detectors.base import Example, call, level, said, tested


@dataclass(frozen=True, slots=True)
class Limits:
    """Counts of identical outputs in a row."""

    warn: int = 2  # the second is worth a nudge
    halt: int = 3  # the third shows that the nudge did not help


class RepeatedOutput:
    """LOOP001."""

    code = "LOOP001"
    name = "repeated_output"
    kinds = kind.SAID

    def check(self, view: View, limits: Limits) -> Finding | None:
        streak = max(view.said, key=lambda streak: streak.count)
        reached = level(streak.count, limits.warn, limits.halt)
        if reached is None:
            return None
        return Finding(
            code=self.code,
            level=reached,
            loop=view.node_tag ^ streak.value,
            onset=streak.first,
            message=f"{view.turn.node} repeated the same output {streak.count} times in a row, "
            "with no new information in between.",
            evidence=Evidence(
                kind=self.name,
                count=streak.count,
                match="normalised",
                hashes=[hex16(h) for h in view.run.recent_outputs[-3:]],
            ),
            reason=STALLED,
            status="aborted_stuck",
        )


DETECTOR = RepeatedOutput()

HEALTHY = [
    Example("the same words about different findings", [
        said("writer", "Continuing."), said("reader", "Chapter 1 is about whales."),
        said("writer", "Continuing."), said("reader", "Chapter 2 is about ships."),
        said("writer", "Continuing."), said("reader", "Chapter 3 is about storms."),
        said("writer", "Continuing."),
    ]),
    Example("narration while a build makes progress", [
        said("agent", "Let me wait."), call("poll", {"job": 1}, "10 of 90 files"),
        said("agent", "Let me wait."), call("poll", {"job": 1}, "40 of 90 files"),
        said("agent", "Let me wait."), call("poll", {"job": 1}, "90 of 90 files"),
    ]),
    Example("the same answer to test results that improve", [
        tested("coder", ["a", "b", "c"], output="Fixed one."), tested("coder", ["a", "b"], output="Fixed one."),
        tested("coder", ["a"], output="Fixed one."), tested("coder", [], output="Fixed one."),
    ]),
    Example("the same words before each retry", [
        turn for _ in range(6) for turn in (
            said("agent", "Rate limited, waiting."),
            {"node": "agent", "tool_calls": [{"name": "llm", "args": {}, "error": "HTTP 429 Too Many Requests"}]},
        )
    ]),
    Example("answers that differ", [said("agent", "42"), said("agent", "43"), said("agent", "43, I am sure.")]),
]  # fmt: skip
STUCK = [
    Example("the same answer three times", [said("agent", "I will try again.")] * 3, "halt", 2),
    Example("answers that differ only by the time", [
        said("agent", "Retrying at 10:00:01."), said("agent", "Retrying at 10:00:07."),
        said("agent", "Retrying at 10:00:13."),
    ], "halt", 2),
    Example("the same answer twice", [said("agent", "I will try again.")] * 2, "warn", 1),
]  # fmt: skip
