"""ERROR005 recurring_error: one tool fails with the same error again and again, whatever its arguments.

Sees: the same normalised error of one tool several times within its last six calls, with any arguments.

Why: if the error is not about the arguments, changing them does not help.

False alarms: debugging hits the same error after each of several legitimate attempts. It therefore halts only if
nothing worked since the first of the failures counted: no new answer of any tool, no new result, no person. Otherwise
it warns. Retryable infrastructure errors are not counted.

Tuning: `warn` and `halt` count failures within the tool's last six calls; 0 turns a level off.

Reference: catalogue of errors, "the same tool fails with the same normalised signature 4 times within its last 6".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import REPEATED_ERROR, Evidence, Finding, Level, hex16
from streamproc.core.run_state import Tool
from streamproc.core.view import View
from streamproc.detectors.base import Example, call, listed
from streamproc.detectors.error_streak import failing


@dataclass(frozen=True, slots=True)
class Limits:
    """Failures with the same error within the tool's last six calls."""

    warn: int = 3
    halt: int = 4


class RecurringError:
    """ERROR005."""

    code = "ERROR005"
    name = "recurring_error"
    kinds = kind.TOOL

    def check(self, view: View, limits: Limits) -> Finding | None:
        for tool in view.tools:
            turns = _failures(tool)
            fresh = [turn for turn in turns if turn >= view.run.last_success]
            if 0 < limits.halt <= len(fresh):
                return self._finding(view, tool, Level.HALT, fresh)
            if 0 < limits.warn <= len(turns):
                return self._finding(view, tool, Level.WARN, turns)
        return None

    def _finding(self, view: View, tool: Tool, reached: Level, turns: list[int]) -> Finding:
        name = next((made.name for made in view.turn.calls), "")
        return Finding(
            code=self.code,
            level=reached,
            loop=tool.failures[-1],
            onset=turns[0],
            message=f"{name or 'A tool'} failed with the same error at {listed(turns)}.",
            evidence=Evidence(
                kind=self.name,
                count=len(turns),
                turns=turns,
                tool=name,
                match="normalised",
                hashes=[hex16(tool.failures[-1])],
            ),
            reason=REPEATED_ERROR,
            status="aborted_stuck",
        )


def _failures(tool: Tool) -> list[int]:
    """Return the turns at which the tool failed with its latest error; none if it did not fail."""
    last = tool.failures[-1] if tool.failures else 0
    return [turn for turn, error in zip(tool.turns, tool.failures, strict=True) if last and error == last]


DETECTOR = RecurringError()

HEALTHY = [
    Example("two failures", [failing("run", {"n": n}, "command not found") for n in range(2)]),
    Example("different errors", [failing("run", {"n": n}, f"error {'x' * n}") for n in range(3)]),
    Example("rate limits", [failing("run", {"n": n}, "HTTP 503 Service Unavailable") for n in range(6)]),
]
STUCK = [
    Example("different arguments, the same error", [
        failing("run", {"n": n}, "permission denied") for n in range(4)
    ], "halt", 3),
    Example("successful edits in between only warn", [
        turn for n in range(4)
        for turn in (call("edit", {"n": n}, f"edited {n}"), failing("run", {"n": n}, "permission denied"))
    ], "warn", 5),
]  # fmt: skip
