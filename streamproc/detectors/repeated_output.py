"""LOOP001 repeated_output: one node repeats the same output.

Sees: the same `output` or `structured_output` of one node, turn after turn of that node. Functionally identical is
enough: time stamps, ids, durations and white space do not count. Whether the words of other nodes in between count as
news is a setting, the `gate`; under `any`, they do not for long outputs.

Why: an agent that repeats its answer word for word makes no progress; more turns cost money and change nothing.

False alarms: an agent may legitimately repeat itself if something new happened in between: another node said something
new, a tool answered something new, a test result changed, a person spoke. Each of these restarts the count. The same
answer to another request, task or query is no repeat (`request`, `task_id` or else the one task that the agent has in
progress on the board, `query`), nor is that of another `agent` at the node: a map over items may answer "yes" thirty
times. Text between two tool calls of the same node is narration ("let me wait a bit longer") and is not counted.
A short line ("Continue.", a speaker's name, a verdict) is honestly the same while others say new things, so others'
words restart its count. So do their calls, which are judged by themselves, if the node makes none; and between turns of
others it takes `phrase_halt` times. A long one is work that is handed in again, however the others word their
complaint: only results restart it. A node that never calls a tool, such as a harness, and repeats its sentence to
another one that says ever new things shows that the other one does not move: the finding names that one.

Tuning: `warn` and `halt` are counts of identical outputs in a row; 0 turns a level off. `gate` names what restarts the
count: `any` news; `results` only (of calls, tests, errors, artifacts, queries, or a person); `none` but measured
progress and a person: the plain count, also of texts beside calls. Under `any`, `long_*` and `medium_*` count behind
`results`; structured outputs of `structured_chars` or more count as long.

Reference: loop-safety requirement "repeated identical outputs: 2-3 times".
"""

from __future__ import annotations

from typing import Final

from streamproc.core.signals.novelty import Gate
from streamproc.core.signals.statements import USER_NODES
from streamproc.core.signals.streaks import Said
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, hex16, kind, level, said, tested


class RepeatedOutput(Detector):
    code, name = "LOOP001", "repeated_output"
    kinds = kind.SAID
    evidence = "count", "match", "hashes"
    gated = "outputs"

    class Limits:
        """Counts of identical outputs in a row; sizes are in characters."""

        warn: int = 2  # the second is worth a nudge
        halt: int = 3  # the third shows that the nudge did not help
        gate: Gate = Gate.ANY  # a short line between the new words of others is mostly honest
        long_chars: int = 400  # a text of this size is work handed in again, not a phrase
        long_halt: int = 3  # between others' words; as for texts without anything in between
        medium_chars: int = 120  # longer than a phrase, and yet it may be one
        medium_warn: int = 3  # between others' words
        medium_halt: int = 5  # two more, after the nudge
        phrase_halt: int = 5  # of a shorter one between turns of others: who only says "Continue." does not loop alone
        structured_chars: int = 1  # of its JSON, 0 without text: verdicts and routes, of single words, honestly repeat

    def check(self, view: View, limits: Limits) -> Finding | None:
        node = ""
        said = max(view.said, key=lambda said: said.count)
        halt = limits.halt
        if limits.gate == Gate.ANY and 0 < halt < limits.phrase_halt and _is_phrase(view, said, limits):
            halt = limits.phrase_halt
        reached, count, onset = level(said.count, limits.warn, halt), said.count, said.first
        ending = _ENDINGS[limits.gate]
        if reached != Level.HALT and limits.gate == Gate.ANY:
            for one in view.said:
                own = _judge_own(view, one, limits)
                if own is not None and (reached is None or own > reached):
                    said, reached, count, onset, ending = one, own, one.own, one.own_first, _ENDINGS[Gate.RESULTS]
                    node = "" if view.node.last_call >= 0 else view.turn.from_ or view.run.handovers.previous_name.get()
        if reached is None:
            return None
        what = f"gave {node} the same answer" if node else "repeated the same output"
        message = f"{view.turn.node} {what} {count} times in a row{ending}."
        return self.finding(
            reached, view.node_tag ^ said.value, message, onset=onset, node=node,
            count=count, match="normalised", hashes=[hex16(h) for h in view.run.evidence.outputs.listed()[-3:]],
        )  # fmt: skip


def _is_phrase(view: View, said: Said, limits: RepeatedOutput.Limits) -> bool:
    """Return whether an output is no more than a phrase, with turns of others in between."""
    if view.index - said.first < said.count:
        return False
    if said is view.node.structured:
        return view.turn.structured is None or not view.turn.structured.size
    return view.turn.output is None or view.turn.output.size < limits.medium_chars


def _judge_own(view: View, said: Said, limits: RepeatedOutput.Limits) -> Level | None:
    """Return the level of an output that the node repeated in its own turns, with only words of others in between."""
    turn = view.turn
    if turn.node in USER_NODES:
        return None
    if said is view.node.structured:
        is_long = turn.structured is not None and turn.structured.size >= limits.structured_chars
        return level(said.own, 0, limits.long_halt) if is_long else None
    size = turn.output.size if turn.output is not None else 0
    if size >= limits.long_chars:
        return level(said.own, 0, limits.long_halt)
    return level(said.own, limits.medium_warn, limits.medium_halt) if size >= limits.medium_chars else None


_ENDINGS: Final = {
    Gate.ANY: ", with no new information in between",
    Gate.RESULTS: " of its own, with no new result in between",
    Gate.NONE: " of its own",
}

DETECTOR = RepeatedOutput()
_PROGRAM = "\n".join(f"def step_{n}(state):\n    return state.advance({n}, keep=True)" for n in range(9))
_PLAN = (
    "First I read the configuration and the schema of the old tables. "
    "Then I write the migration, and at last I run it against a copy of the data."
)
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
    Example("a map: the same answer to thirty requests", [
        said("grader", "yes", request=f"Is document {n} about whales?") for n in range(30)
    ]),
    Example("the same words before each retry", [
        turn for _ in range(6) for turn in (
            said("agent", "Rate limited, waiting."),
            {"node": "agent", "tool_calls": [{"name": "llm", "args": {}, "error": "HTTP 429 Too Many Requests"}]},
        )
    ]),
    Example("a short line between new words", [
        turn for n in range(8) for turn in (said("manager", "Continue."), said("writer", f"Chapter {'I' * n} is done."))
    ]),
    Example("a short line around a test that is run again", [
        turn for n in range(8) for turn in (
            said("harness", "Continue."), call("edit", {"line": n // 2}, "ok", node="coder"),
            said("harness", "Continue."), call("test", {}, "3 failed", node="coder"),
        )
    ][:12]),
    Example("the same verdict about new drafts", [
        turn for n in range(6) for turn in (
            said("writer", f"Draft {'x' * n}"), {"node": "judge", "structured_output": {"approved": False}},
        )
    ]),
    Example("the same verdict of several words about new arguments", [
        turn for n in range(6) for turn in (
            said("debater", f"Argument {'x' * n}"),
            {"node": "judge", "structured_output": {"verdict": "no_consensus", "confidence": 0.5, "next": "debater"}},
        )
    ]),
    Example("the same program with new results in between", [
        turn for n in range(5) for turn in (
            said("coder", _PROGRAM), call("run", {"seed": n}, f"score {n}", node="runner"),
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
    Example("the same program, whatever the verifier says", [
        turn for n in range(3) for turn in (said("coder", _PROGRAM), said("verifier", f"It still fails{'!' * n}"))
    ], "halt", 4),
    Example("the same object, whatever the verifier says", [
        turn for n in range(3) for turn in (
            {"node": "coder", "structured_output": {"file": "app.py", "patch": "+return total"}},
            said("verifier", f"It still fails{'!' * n}"),
        )
    ], "halt", 4),
    Example("the same plan, whatever the planner says", [
        turn for n in range(5) for turn in (said("coder", _PLAN), said("planner", f"Do it{'!' * n}"))
    ], "halt", 8),
    Example("under `gate: none`, a short answer between a verifier's new words", [
        turn for n in range(3) for turn in (said("coder", "Fixed it."), said("verifier", f"It still fails{'!' * n}"))
    ], "halt", 4, {"detectors": {"LOOP001": {"gate": "none"}}}),
    Example("a phrase between turns of others that say nothing new", [
        turn for _ in range(5) for turn in (said("manager", "Continue."), said("writer", "On it."))
    ], "halt", 9, {"detectors": {"LOOP002": {"said_halt": 0}, "LOOP005": {"halt": 0}}}),
    Example("the same answer twice", [said("agent", "I will try again.")] * 2, "warn", 1),
]  # fmt: skip
