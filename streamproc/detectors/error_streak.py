"""ERROR003 error_streak: call after call fails, whatever the error.

Sees: call turns of one agent in a row in which every call failed. Retryable infrastructure errors are not counted and
do not end the streak. It halts only if `halt` turns have failed since a command that ran last showed something new: one
that reports a result beside its error, or says only that it exited with 1, as another search without a match does.

Why: an agent whose last eight calls failed, each with another message, has lost its way.

False alarms: debugging fails a few times in a row; one successful call ends the streak. A test suite that exits 1
until it passes is one call with changing answers: it gets a warning and is not halted while its answers are new.

Tuning: `warn` and `halt` count call turns; 0 turns a level off.

Reference: catalogue of errors, "n consecutive calls in error, whatever the error".
"""

from __future__ import annotations

from streamproc.core.decision import REPEATED_ERROR
from streamproc.core.marks import first_of
from streamproc.detectors.base import Detector, Example, Finding, Level, RawTurn, View, actor, call, kind, level


class ErrorStreak(Detector):
    code, name = "ERROR003", "error_streak"
    kinds = kind.FAILING
    evidence = "count", "tool"
    reason = REPEATED_ERROR

    class Limits:
        """Failed call turns in a row."""

        warn: int = 4
        halt: int = 8

    def marks(self, limits: Limits) -> dict[str, int]:
        return {"failed_turns": first_of(limits.warn, limits.halt)}

    def check(self, view: View, limits: Limits) -> Finding | None:
        run = view.run
        if (reached := level(run.tools.failed_turns, limits.warn, limits.halt)) is None:
            return None
        if reached == Level.HALT and run.tools.failed_turns - run.tools.excused_failures < limits.halt:
            reached = Level.WARN
        message = f"Every call of {actor(view.turn)} failed in its last {run.tools.failed_turns} turns with calls."
        return self.finding(
            reached, run.tools.failing_since, message, onset=run.tools.failing_since,
            count=run.tools.failed_turns, tool=view.turn.calls[0].name,
        )  # fmt: skip


DETECTOR = ErrorStreak()


def failing(tool: str, args: object, error: str) -> RawTurn:
    """Return a turn with one failed call."""
    return {"node": "agent", "tool_calls": [{"name": tool, "args": args, "error": error}]}


HEALTHY = [
    Example("a success in between", [
        turn for n in range(6)
        for turn in (failing("run", {"n": n}, f"error {'x' * n}"), call("read", {"n": n}, f"text {n}"))
    ]),
    Example("rate limits", [failing("llm", {"n": n}, "HTTP 429 Too Many Requests") for n in range(9)]),
]  # fmt: skip
_SUITE = [
    {"node": "agent", "tool_calls": [
        {"name": "test", "args": {}, "error": "exit 1", "result": f"test {'x' * n} fails"}
    ]} for n in range(20)
]  # fmt: skip
STUCK = [
    Example("a suite that fails differently each time only warns", _SUITE, "warn", 3),
    Example("several suites that exit 1 with new output", [
        {"node": "agent", "tool_calls": [
            {"name": "test", "args": {"only": "x" * n}, "error": "exit 1", "result": f"test {'x' * n} fails"}
        ]} for n in range(20)
    ], "warn", 3),
    Example("searches without a match only warn", [
        failing("bash", {"command": f"grep -rq {'x' * n} ."}, "Exit code 1") for n in range(20)
    ], "warn", 3),
    Example("eight different errors", [
        failing(f"tool{'abcdefgh'[n]}", {"n": n}, f"error {'x' * n}") for n in range(8)
    ], "halt", 7),
    Example("eight errors of one call", [failing("run", {}, f"error {'x' * n}") for n in range(8)], "halt", 7),
    Example("four different errors", [
        failing(f"tool{'abcdefgh'[n]}", {"n": n}, f"error {'x' * n}") for n in range(4)
    ], "warn", 3),
]  # fmt: skip
