"""TREE006 session_loop: the runs of a session repeat themselves, each of them a new run.

Sees: how the runs of a session end: agent, prompt, and last text, as hashes. Ends that repeat with a period of 2 to 16
and at least two agents (A wakes B, B wakes A) warn in their second round and halt the session in the third; one agent
that gives the same text to the same prompt warns at its fifth end. Runs whose prompt is not known only warn. It also
warns of the seventh handover from one agent to another, each a run that was started by a finished one, with no new end
in between.

Why: a run that ends and wakes the next one shows no loop in its own log, however often it goes round.

False alarms: work that is cut into equal pieces has a prompt of its own for each piece: publish it with `run.started`.
A poll that finds nothing new ends in the same way for days; it warns once.

Tuning: `warn` and `halt` are rounds of a period, `same_warn` and `same_halt` ends of one agent, `handovers_warn` is a
number of handovers. 0 turns a level off.

Reference: wake-ups that are each a new run, 18.0 million tokens (multica#8753).
"""

from __future__ import annotations

from typing import Any

from streamproc.core.decision import OSCILLATING
from streamproc.core.session_tree import EXCEEDED, HANDOVERS, PERIODS, REJECTED
from streamproc.detectors.base import Example, Finding, RuleSettings, View
from streamproc.detectors.tree_detector import TreeDetector, tree_event


class SessionLoop(TreeDetector):
    code, name = "TREE006", "session_loop"
    evidence = (*TreeDetector.evidence, "count", "period")
    reason, status = OSCILLATING, "aborted_stuck"

    class Limits:
        """Rounds, ends and handovers; 0 is off."""

        warn: int = 2
        halt: int = 3
        same_warn: int = 5
        same_halt: int = 0  # a poll may find nothing for days
        handovers_warn: int = 6

    def settings(self, limits: Limits | None) -> RuleSettings:
        if limits is None:
            return {}
        one = limits
        return {"tree_loops": [one.warn, one.halt, one.same_warn, one.same_halt, one.handovers_warn]}

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = tree_event(view, PERIODS, HANDOVERS)
        if event is None:
            return None
        more: dict[str, Any] = {"kind": self.name, "type": "", "count": event.used, "used": None, "limit": None}
        if event.unit == HANDOVERS:
            message = (
                f"{event.used} handovers from agent to agent, each a new run after {event.about}, brought nothing new."
            )
            return self.told(event, message, action="warn", **more)
        ends = "the same way" if event.limit == 1 else f"the same {event.limit} ways in turn"
        message = f"The runs of the session have ended in {ends} {event.used} times."
        if event.rung == REJECTED:
            message = "This run is refused: its session is halted because its runs repeat themselves."
            more |= {"status": self.status, "onset": 0}
        elif event.rung == EXCEEDED:
            more["onset"] = 0
        return self.told(event, message, period=event.limit or None, **more)


DETECTOR = SessionLoop()


def _wakes(*texts: str, prompt: str = "You were mentioned. Answer.") -> list[dict[str, Any]]:
    """Return runs of two agents in turn, each after the one before has finished."""
    found: list[dict[str, Any]] = []
    for n, text in enumerate(texts):
        run: dict[str, Any] = {"run_id": f"wake-{n}", "agent": "ab"[n % 2]}
        above = {"parent_run_id": f"wake-{n - 1}"} if n else {}
        found.append({**run, "type": "run.started", "session_id": "s", "prompt": prompt and f"{prompt}", **above})
        found.append({**run, "node": run["agent"], "output": text})
        found.append({**run, "type": "run.finished"})
    return found


HEALTHY = [
    Example("agents that wake each other and find something new", _wakes(*map("Finding {}.".format, "abcdef"))),
    Example("equal pieces of work", [
        one | ({"prompt": f"Review the file {'abcdefgh'[n // 3]}.py."} if "prompt" in one else {})
        for n, one in enumerate(_wakes(*["Approved."] * 8))
    ]),
]  # fmt: skip
STUCK = [
    Example("one agent that wakes itself", [
        one | {"agent": "a"} | ({"node": "a"} if "node" in one else {}) for one in _wakes(*["Nothing to do."] * 5)
    ] + [{"type": "run.started", "run_id": "wake-5", "parent_run_id": "wake-4", "session_id": "s"}], "warn", 0),
    Example("two agents that wake each other", [
        *_wakes(*["Thanks, over to you.", "You are welcome, over to you."] * 3),
        {"type": "run.started", "run_id": "wake-6", "parent_run_id": "wake-5", "session_id": "s"},
    ], "halt", 0),
]  # fmt: skip
