"""ERROR006 unfinished_answer: one answer of a model after another is cut off, empty or malformed.

Sees: turns of one node in a row whose `stop_reason` says that the answer was cut off at a limit of tokens, had neither
a text nor a call, or was a call that could not be read.

Why: a call that is cut off at the same limit each time never runs, and an empty answer is asked for again, each time at
the price of the whole context.

False alarms: a long text may be written in pieces, each of them cut off, so cut off answers only warn. A provider may
answer empty once or twice.

Tuning: `warn` counts unfinished answers in a row, `halt` those that were empty or malformed; 0 turns a level off.

Reference: stop reasons of model APIs (`max_tokens`, `length`, `MALFORMED_FUNCTION_CALL`).
"""

from __future__ import annotations

from typing import Final

from streamproc.core.decision import REPEATED_ERROR
from streamproc.detectors.base import Detector, Example, Finding, Level, RawTurn, View, kind, loop_of, said
from streamproc.model.wire import CUT_OFF, EMPTY, MALFORMED

NODES_MAX: Final = 4  # nodes whose answers are counted
WORDS: Final = {CUT_OFF: "cut off at a limit of tokens", EMPTY: "empty", MALFORMED: "calls that cannot be read"}


class UnfinishedAnswer(Detector):
    code, name = "ERROR006", "unfinished_answer"
    kinds = kind.UNFINISHED
    evidence = ("count",)
    reason = REPEATED_ERROR

    class Limits:
        """Answers of a node in a row."""

        warn: int = 3  # one is chance, two may be
        halt: int = 6  # empty or malformed: three more, after the nudge

    def check(self, view: View, limits: Limits) -> Finding | None:
        word = view.turn.stop_reason
        if word not in WORDS:
            return None
        memory, key, turns = view.memory(self.code), f"{view.node_tag:x}", view.counts.turns
        last, count, blank, since = memory.pop(key, (-1, 0, 0, view.index))
        if last != turns - 1 or view.novelty.last_progress > since:
            count, blank, since = 0, 0, view.index
        count, blank = count + 1, 0 if word == CUT_OFF else blank + 1
        memory[key] = (turns, count, blank, since)
        while len(memory) > NODES_MAX:
            del memory[next(iter(memory))]
        reached = Level.HALT if 0 < limits.halt <= blank else Level.WARN if 0 < limits.warn <= count else None
        loop = loop_of(key, since)
        if reached is None or self.reported(view, loop, reached, since):
            return None
        many = blank if reached is Level.HALT else count
        message = f"{many} answers of {view.turn.node} in a row were unfinished, the last one {WORDS[word]}."
        return self.finding(reached, loop, message, onset=since, count=many)


def ended(stop_reason: str, text: str = "", node: str = "agent") -> RawTurn:
    """Return a turn of an example that ended so."""
    return said(node, text, stop_reason=stop_reason)


DETECTOR = UnfinishedAnswer()
HEALTHY = [
    Example("answers that end as usual", [ended("end_turn", f"step {n}") for n in range(9)]),
    Example("one that was cut off, and went on", [
        ended("max_tokens", "half a"), ended("end_turn", "and the other half"), ended("length", "half b"),
        ended("stop", "and its other half"),
    ]),
    Example("an empty answer now and then", [
        turn for n in range(6) for turn in (ended("end_turn"), ended("end_turn", f"step {n}"))
    ]),
    Example("a stop reason of another kind", [ended("content_filter", f"part {n}") for n in range(9)]),
]  # fmt: skip
STUCK = [
    Example("one empty answer after another", [ended("end_turn")] * 6, "halt", 5),
    Example("calls that cannot be read", [ended("MALFORMED_FUNCTION_CALL", f"try {n}") for n in range(6)], "halt", 5),
    Example("a text that is cut off again and again", [
        ended("max_tokens", f"Part {n} of a long text.") for n in range(5)
    ], "warn", 2),
    Example("two agents in turn, one of which answers empty", [
        turn for n in range(6) for turn in (said("planner", f"Do step {n}."), ended("stop", node="coder"))
    ], "halt", 11),
]  # fmt: skip
