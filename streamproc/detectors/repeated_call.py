"""LOOP003 repeated_call: the same tool, the same arguments, the same answer, and nothing new in between.

Sees: a call that was made before with the same arguments and got the same answer, in a row or among others, within
the last ten calls. All calls of one turn are one multiset: siblings in parallel are not repeats. A text between two
calls is not a step.

Why: it is the commonest way for an agent to burn a night: the same command, the same error, forever.

False alarms: agents honestly read a file again, run tests again, poll. So a repeat halts only if *nothing new
happened since the first of the repeats counted*; a re-read between new findings is silent. A call whose answer has
once changed while nothing else happened is *live* (a poll): an unchanged answer is no evidence until it has stood
still ten times, and three times as long as ever before. Answers that are equal only after masking (time stamps, ids)
count less than answers that are equal byte for byte. Retryable infrastructure errors (429, 5xx) are not repeats.

Tuning: `warn`/`halt` for answers equal byte for byte, `masked_*` for those equal after masking, `unanswered_*` where
no result was reported; `within` is the window in calls. Live calls: `live_repeats_min` and `live_standstills`.

Reference: "same tool called with identical arguments >= 3 times within 10 steps", with the novelty gate.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import STALLED, Evidence, Finding, Level, hex16
from streamproc.core.escalation import already_reported
from streamproc.core.run_state import CallMemory, RunState
from streamproc.core.view import View
from streamproc.detectors.base import Example, call, level, listed, said
from streamproc.model.wire import NO_ANSWER, Call


@dataclass(frozen=True, slots=True)
class Limits:
    """Counts of the same call with the same answer."""

    warn: int = 2  # in a row
    halt: int = 3
    masked_warn: int = 3  # a time stamp differs: perhaps a poll that nobody could know yet
    masked_halt: int = 5
    unanswered_warn: int = 3  # no result is no evidence; only a row of them is
    unanswered_halt: int = 5
    within: int = 10  # calls
    live_repeats_min: int = 10  # of a poll, before standing still means anything
    live_standstills: int = 3  # times the longest standstill so far, in repeats and in time


class RepeatedCall:
    """LOOP003."""

    code = "LOOP003"
    name = "repeated_call"
    kinds = kind.REPEATED_CALL

    def check(self, view: View, limits: Limits) -> Finding | None:
        best: tuple[Level, Call, CallMemory, int] | None = None
        for made, memory in view.repeated:
            reached, count = _judge(view.run, made, memory, limits)
            if reached is not None and (best is None or reached > best[0]):
                best = reached, made, memory, count
        if best is None or already_reported(view.run, self.code, best[1].key ^ best[2].norm, best[0], view.index):
            return None
        return self._finding(view, *best)

    def _finding(self, view: View, reached: Level, made: Call, memory: CallMemory, count: int) -> Finding:
        exact = memory.exact_run >= count
        turns = memory.turns[-count:]
        answered = "without an answer" if made.outcome == NO_ANSWER else "with the same answer"
        times = f" {count} times" if count > len(turns) else ""
        tool = made.name or "A tool"
        return Finding(
            code=self.code,
            level=reached,
            loop=made.key ^ memory.norm,
            onset=turns[0],
            message=f"{tool} was called{times} {answered} at {listed(turns)}, and nothing new happened.",
            evidence=Evidence(
                kind=self.name,
                tool=made.name,
                args_hash=hex16(made.key),
                result_hash=hex16(made.exact if exact else made.norm),
                turns=turns,
                count=count,
                match="exact" if exact else "normalised",
            ),
            reason=STALLED,
            status="aborted_stuck",
        )


def _judge(run: RunState, made: Call, memory: CallMemory, limits: Limits) -> tuple[Level | None, int]:
    """How far up the ladder this repeat is, and how many occurrences were counted."""
    if memory.live:
        return Level.HALT, memory.still
    since, first_step = run.last_news, run.call_turns - limits.within
    counted = sum(
        turn >= since and step > first_step for turn, step in zip(memory.turns, memory.call_turns, strict=True)
    )
    in_row = 1
    while in_row < counted and memory.call_turns[-in_row - 1] == memory.call_turns[-in_row] - 1:
        in_row += 1
    if made.outcome == NO_ANSWER:
        return level(in_row, limits.unanswered_warn, limits.unanswered_halt), in_row
    exact = min(counted, memory.exact_run)
    if 0 < limits.halt <= exact:
        return Level.HALT, exact
    if 0 < limits.masked_halt <= counted:
        return Level.HALT, counted
    if 0 < limits.warn <= min(in_row, exact):
        return Level.WARN, exact
    return (Level.WARN if 0 < limits.masked_warn <= counted else None), counted


DETECTOR = RepeatedCall()

_TESTS = "3 failed, 9 passed"

HEALTHY = [
    Example("a poll whose answers change", [call("poll", {"job": 7}, f"{n} of 8 done") for n in range(8)]),
    Example("a poll that stands still for a while, once it is known to be one", [
        call("poll", {"job": 7}, answer)
        for answer in ("10%", "20%", "30%", "30%", "30%", "30%", "30%", "40%", "40%", "40%", "100%")
    ]),
    Example("a status that stays as it is while other things get done", [
        call("status", {}, "starting"), *(
            turn for n in range(15) for turn in (call("status", {}, "running"), call("visit", {"page": n}, f"page {n}"))
        ),
    ]),
    Example("calls without answers while somebody else has something new to say", [
        turn for n in range(6) for turn in (call("next", {}, node="worker"), said("reader", f"Chapter {n} is good."))
    ]),
    Example("a file read again between new findings", [
        call("read", {"path": "a.py"}, "A"), call("read", {"path": "b.py"}, "B"), call("read", {"path": "a.py"}, "A"),
        call("read", {"path": "c.py"}, "C"), call("read", {"path": "a.py"}, "A"), call("read", {"path": "d.py"}, "D"),
    ]),
    Example("edit, then the same test again, with new output", [
        call("edit", {"line": 1}, "ok"), call("test", {}, "3 failed"), call("edit", {"line": 2}, "ok, 2"),
        call("test", {}, "2 failed"), call("edit", {"line": 3}, "ok, 3"), call("test", {}, "1 failed"),
    ]),
    Example("the same test result after three different edits", [
        call("edit", {"line": 1}, "ok"), call("test", {}, _TESTS), call("edit", {"line": 2}, "ok"),
        call("test", {}, _TESTS), call("edit", {"line": 3}, "ok"), call("test", {}, _TESTS),
    ]),
    Example("three nodes look at the same file", [
        call("read", {"path": "task.md"}, "the task", node=name) for name in ("planner", "coder", "reviewer")
    ]),
    Example("one look at the guide for each task", [
        call("read_guide", {}, "the guide", task_id=f"T{n}") for n in range(3)
    ]),
    Example("siblings in parallel", [
        {"node": "agent", "tool_calls": [{"name": "ping", "args": {}, "result": "pong"}] * 6},
    ]),
    Example("retries after 429", [
        {"node": "agent", "tool_calls": [{"name": "llm", "args": {}, "error": "HTTP 429 Too Many Requests"}]},
    ] * 4),
    Example("a 429 that comes as an answer", [call("search", {"q": 1}, "HTTP 429 Too Many Requests")] * 6),
    Example("batch work: other files, the same answer", [call("write", {"file": n}, "ok") for n in range(30)]),
]  # fmt: skip
STUCK = [
    Example("three times in a row", [call("run", {"cmd": "make"}, "error: no rule")] * 3, "halt", 2),
    Example("with narration in between", [
        call("run", {"cmd": "make"}, "error: no rule"), said("agent", "Let me try that again."),
        call("run", {"cmd": "make"}, "error: no rule"), said("agent", "Once more, carefully."),
        call("run", {"cmd": "make"}, "error: no rule"),
    ], "halt", 4),
    Example("an old call in between does not blind it", [
        call("ls", {}, "a b"), call("run", {"cmd": "make"}, "error"), call("run", {"cmd": "make"}, "error"),
        call("ls", {}, "a b"), call("run", {"cmd": "make"}, "error"),
    ], "halt", 4),
    Example("answers that differ by a time stamp only", [
        call("run", {"cmd": "make"}, f"error at 2026-01-01T10:00:0{n}Z") for n in range(5)
    ], "halt", 4),
    Example("no answers at all", [call("run", {"cmd": "make"})] * 5, "halt", 4),
]  # fmt: skip
