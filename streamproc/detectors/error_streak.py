"""ERROR003 error_streak: one call after the other fails, whatever the error.

Sees: consecutive call turns in which every call failed. Retryable infrastructure errors are not counted, and do not
end the streak. To halt, so many must have failed since a command that ran (it reports a result beside its error)
last showed something new.

Why: eight failures in a row, each with another message, is an agent that has lost its footing.

False alarms: debugging fails a few times in a row; one call that works ends the streak. A test suite that exits 1
until it is green is one call with changing answers: that is warned of, and not halted while its answers are new.

Tuning: `warn` and `halt` count call turns; 0 turns a level off.

Reference: catalogue of errors, "n consecutive calls in error, whatever the error".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import REPEATED_ERROR, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.detectors.base import Example, RawTurn, call, level


@dataclass(frozen=True, slots=True)
class Limits:
    """Call turns in error, in a row."""

    warn: int = 4
    halt: int = 8


class ErrorStreak:
    """ERROR003."""

    code = "ERROR003"
    name = "error_streak"
    kinds = kind.FAILING

    def check(self, view: View, limits: Limits) -> Finding | None:
        run = view.run
        reached = level(run.failed_turns, limits.warn, limits.halt)
        if reached is None or not view.tools:
            return None
        if reached == Level.HALT and run.failed_turns - run.excused_failures < limits.halt:
            reached = Level.WARN
        return Finding(
            code=self.code,
            level=reached,
            loop=run.failing_since,
            onset=run.failing_since,
            message=f"The last {run.failed_turns} calls have all failed.",
            evidence=Evidence(kind=self.name, count=run.failed_turns, tool=view.turn.calls[0].name),
            reason=REPEATED_ERROR,
            status="aborted_stuck",
        )


DETECTOR = ErrorStreak()


def failing(tool: str, args: object, error: str) -> RawTurn:
    """A turn with one call that failed."""
    return {"node": "agent", "tool_calls": [{"name": tool, "args": args, "error": error}]}


HEALTHY = [
    Example("a success in between", [
        turn for n in range(6)
        for turn in (failing("run", {"n": n}, f"error {'x' * n}"), call("read", {"n": n}, f"text {n}"))
    ]),
    Example("rate limits", [failing("llm", {"n": n}, "HTTP 429 Too Many Requests") for n in range(9)]),
]  # fmt: skip
_SUITE = [
    {
        "node": "agent",
        "tool_calls": [{"name": "test", "args": {}, "error": "exit 1", "result": f"test {'x' * n} fails"}],
    }
    for n in range(20)
]
STUCK = [
    Example("a suite that fails in another way each time is only warned of", _SUITE, "warn", 3),
    Example("several suites that exit 1 with new output", [
        {"node": "agent", "tool_calls": [
            {"name": "test", "args": {"only": "x" * n}, "error": "exit 1", "result": f"test {'x' * n} fails"}
        ]} for n in range(20)
    ], "warn", 3),
    Example("eight other errors", [
        failing(f"tool{'abcdefgh'[n]}", {"n": n}, f"error {'x' * n}") for n in range(8)
    ], "halt", 7),
    Example("eight other errors of one call", [failing("run", {}, f"error {'x' * n}") for n in range(8)], "halt", 7),
    Example("four other errors", [
        failing(f"tool{'abcdefgh'[n]}", {"n": n}, f"error {'x' * n}") for n in range(4)
    ], "warn", 3),
]  # fmt: skip
