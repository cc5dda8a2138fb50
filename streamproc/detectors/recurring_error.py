"""ERROR005 recurring_error: one tool fails with the same error again and again, whatever its arguments.

Sees: the same normalised error of one tool several times within its last six calls by one agent, with any arguments. If
the arguments are different each time, it counts the last eight calls.

Why: if the error is not about the arguments, changing them does not help.

False alarms: debugging hits the same error after each of several legitimate attempts. It therefore halts only if
nothing worked since the first of the failures counted: no new answer of any tool, no new result, no person. Otherwise
it warns. An agent that changes the arguments each time is still searching, and strong models leave such a streak soon:
it takes two more failures. Retryable infrastructure errors are not counted.

Tuning: `warn` and `halt` count failures within the tool's last six calls, `varied_halt` those with different arguments
within its last eight; 0 turns a level off.

Reference: catalogue of errors, "the same tool fails with the same normalised signature 4 times within its last 6".
"""

from __future__ import annotations

from typing import Final

from streamproc.core.decision import REPEATED_ERROR
from streamproc.core.marks import first_of
from streamproc.core.records import TAG
from streamproc.core.signals.tools import ToolAnswers
from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, hex16, kind, listed
from streamproc.detectors.error_streak import failing

WINDOW: Final = 6  # calls of the tool


class RecurringError(Detector):
    code, name = "ERROR005", "recurring_error"
    kinds = kind.TOOL_FAILS
    evidence = "count", "turns", "match", "tool", "hashes"
    reason = REPEATED_ERROR

    class Limits:
        """Failures with the same error within the tool's last six calls."""

        warn: int = 3
        halt: int = 4  # if arguments came again
        varied_halt: int = 6  # within the last eight, if the arguments were different each time: the agent is searching

    def marks(self, limits: Limits) -> dict[str, int]:
        return {"same_errors": first_of(limits.warn, limits.halt, limits.varied_halt)}

    def check(self, view: View, limits: Limits) -> Finding | None:
        for tool in view.tools:
            failed = tool.failures.count(tool.failures[-1]) if tool.failures and tool.failures[-1] else -1
            if failed < limits.warn and failed < limits.halt and failed < limits.varied_halt:
                continue
            turns, recent, keys = _failures(tool, view.run.novelty.last_success)
            if 0 < limits.halt <= len(recent) and len(set(keys)) < len(keys):
                return self._finding(view, tool, Level.HALT, recent)
            if 0 < limits.varied_halt <= len(turns):
                return self._finding(view, tool, Level.HALT, turns)
            latest = _failures(tool, 0)[1]
            if 0 < limits.warn <= len(latest):
                return self._finding(view, tool, Level.WARN, latest)
        return None

    def _finding(self, view: View, tool: ToolAnswers, reached: Level, turns: list[int]) -> Finding:
        failed = tool.failures[-1]
        name = next((made.name for made in view.turn.calls if made.norm & TAG == failed), "")
        message = f"{name or 'A tool'} failed with the same error at {listed(turns)}."
        return self.finding(
            reached, tool.failures[-1], message, onset=turns[0],
            count=len(turns), turns=turns, tool=name, match="normalised", hashes=[hex16(tool.failures[-1])],
        )  # fmt: skip


def _failures(tool: ToolAnswers, since: int) -> tuple[list[int], list[int], list[int]]:
    """Return the turns at which the tool failed with its latest error, since a turn: all that are known, those among
    its last six calls, and the tags of their arguments. They are empty if the latest call did not fail."""
    last = tool.failures[-1] if tool.failures else 0
    found = [
        (turn, key, place)
        for place, (turn, error, key) in enumerate(zip(tool.turns, tool.failures, tool.keys, strict=True))
        if last and error == last and turn >= since
    ]
    recent = [(turn, key) for turn, key, place in found if place >= len(tool.failures) - WINDOW]
    return [turn for turn, _, _ in found], [turn for turn, _ in recent], [key for _, key in recent]


DETECTOR = RecurringError()
HEALTHY = [
    Example(
        "searches that find nothing, and a command that says only its exit code",
        [
            {
                "node": "agent",
                "tool_calls": [{"name": "bash", "args": {"command": f"grep -q {n} log"}, "error": "Exit code 1"}],
            }
            for n in range(7)
        ],
    ),
    Example("two failures", [failing("run", {"n": n}, "command not found") for n in range(2)]),
    Example("different errors", [failing("run", {"n": n}, f"error {'x' * n}") for n in range(3)]),
    Example("rate limits", [failing("run", {"n": n}, "HTTP 503 Service Unavailable") for n in range(6)]),
    Example("a hung tool", [failing("bash", {"n": n}, "timed out: bash has not returned") for n in range(7)]),
]
STUCK = [
    Example("the same error for the same few arguments", [
        failing("run", {"n": n % 3}, "permission denied") for n in range(4)
    ], "halt", 3),
    Example("different arguments, the same error", [
        failing("run", {"n": n}, "permission denied") for n in range(6)
    ], "halt", 5),
    Example("five failures with different arguments may still be a search", [
        failing("run", {"n": n}, "permission denied") for n in range(5)
    ], "warn", 2),
    Example("successful edits in between only warn", [
        turn for n in range(4)
        for turn in (call("edit", {"n": n}, f"edited {n}"), failing("run", {"n": n}, "permission denied"))
    ], "warn", 5),
]  # fmt: skip
