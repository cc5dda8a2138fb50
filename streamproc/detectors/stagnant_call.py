"""LOOP004 stagnant_call: different arguments, always the same answer.

Sees: calls of one tool with different arguments, in a row for that tool, whose answers are equal byte for byte.

Why: an agent that tries one parameter after another and always gets the same answer is searching in the wrong place.

False alarms: batch work looks exactly the same: thirty files written, thirty times "ok". It therefore only warns and
never halts, and it ignores calls that write a text, and a tool that has given no other answer in this run, unless that
is long (300 characters): a short one is an acknowledgement. ERROR005 covers identical *errors*.

Tuning: `warn` counts calls, `long_warn` those with a long answer; 0 turns it off.

Reference: catalogue of loops, "same tool, different args, byte-identical result".
"""

from __future__ import annotations

from streamproc.core.marks import NEVER, first_of
from streamproc.core.records import TAG
from streamproc.core.signals.tools import has_long_answer
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, hex16, kind


class StagnantCall(Detector):
    code, name = "LOOP004", "stagnant_call"
    kinds = kind.TOOL
    evidence = "count", "match", "tool", "result_hash"

    class Limits:
        """Calls of one tool in a row with different arguments and the same answer."""

        warn: int = 6
        long_warn: int = 5  # of 300 characters or more

    def marks(self, limits: Limits) -> dict[str, int]:
        return {"same_answers": first_of(limits.warn, limits.long_warn), "same_acknowledgements": NEVER}

    def check(self, view: View, limits: Limits) -> Finding | None:
        tool = max(view.tools, key=lambda tool: tool.same)
        is_long = has_long_answer(view.turn)
        if not 0 < (limits.long_warn if is_long else limits.warn) <= tool.same or not (tool.varied or is_long):
            return None
        if self.reported(view, tool.answer, Level.WARN):
            return None
        name = next((made.name for made in view.turn.calls if made.exact & TAG == tool.answer), "")
        message = f"{name or 'A tool'} returned the same result for {tool.same} different calls in a row."
        return self.finding(
            Level.WARN, tool.answer, message, onset=tool.first,
            count=tool.same, tool=name, match="exact", result_hash=hex16(tool.answer),
        )  # fmt: skip


DETECTOR = StagnantCall()
HEALTHY = [
    Example("paging through a file", [call("read", {"page": n}, f"text of page {n}") for n in range(20)]),
    Example("thirty files written, and nothing but acknowledgements", [
        call("write", {"file": n}, "ok") for n in range(30)
    ]),
    Example("texts written to different files, after another answer", [
        call("edit", {"path": "a.py", "new_str": "x"}, "1 replacement"), *(
            call("edit", {"path": f"{n}.py", "new_str": f"def f{n}(): pass\n" * 10}, "written") for n in range(12)
        ),
    ]),
    Example("the same call again (LOOP003 covers it)", [call("read", {"page": 1}, "x")] * 2),
]  # fmt: skip
STUCK = [
    Example("five searches that find the same page", [
        call("search", {"in": n}, "No results. Try the advanced search, which knows dates and authors. " * 5)
        for n in range(5)
    ], "warn", 4),
    Example("six searches without a match", [
        call("search", {"in": "all"}, "one match"), *(call("search", {"in": n}, "no match") for n in range(6))
    ], "warn", 6),
    Example("six searches with another tool in between", [
        call("search", {"in": "all"}, "one match"), *(
            turn for n in range(6)
            for turn in (call("search", {"in": n}, "no match"), call("note", {"n": n}, f"noted {n}"))
        ),
    ], "warn", 11),
]  # fmt: skip
