"""What detectors share: the shape of their examples, and words for messages. Nothing here decides anything.

A detector is one file: a docstring (*Sees · Why · False alarms · Tuning · Reference*), its parameters (`Limits`,
a frozen dataclass whose fields policy may set), `HEALTHY` and `STUCK` examples, and one class with a `check`.
`check` answers one turn with a finding or nothing. State belongs to the run, never to the detector. A detector is
only asked about turns that bring one of its `kinds` of evidence.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from streamproc.core.decision import STALLED, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.model.wire import Event

RawTurn = dict[str, Any]


class Example(NamedTuple):
    """A trace of raw turns. `severity` and `at` say what must be told and at which turn index; None: silence.
    `policy` is what a policy must say for it; None: nothing."""

    title: str
    turns: list[RawTurn]
    severity: str | None = None
    at: int | None = None
    policy: RawTurn | None = None


def call(tool: str, args: Any, result: Any = None, *, node: str = "agent", **more: Any) -> RawTurn:
    """A turn with one tool call."""
    made: RawTurn = {"name": tool, "args": args}
    if result is not None:
        made["result"] = result
    return {"node": node, "tool_calls": [made], **more}


def said(node: str, output: str, **more: Any) -> RawTurn:
    """A turn with a text and nothing else."""
    return {"node": node, "output": output, **more}


def tested(node: str, failed: list[str], total: int = 9, **more: Any) -> RawTurn:
    """A turn of a verifier."""
    return {"node": node, "tests": {"failed": failed, "passed": total - len(failed), "total": total}, **more}


def moved(task: str, *states: str, **more: Any) -> list[RawTurn]:
    """A task that goes from state to state; `more` is said with the last move."""
    steps = pairwise(states)
    moves: list[RawTurn] = [
        {"type": "task.transition", "task_id": task, "from": source, "to": target} for source, target in steps
    ]
    return [*moves[:-1], moves[-1] | more]


def cycles(*completed: int) -> list[RawTurn]:
    """Cycles of the board, with how many tasks were completed in each."""
    return [{"type": "cycle.completed", "completed": count} for count in completed]


def actor(event: Event) -> str | None:
    """Who did it."""
    return event.agent or event.node or None


def task_finding(view: View, code: str, message: str, evidence: Evidence, **more: Any) -> Finding:
    """A finding about a task: it warns, and leaves the run alone. What was told is remembered by the board."""
    step = view.board_change
    assert step is not None
    about: dict[str, Any] = {
        "level": Level.WARN,
        "loop": step.board.events << 8,
        "task": step.task.id if step.task is not None else "",
        "reason": STALLED,
        "status": more.get("task_status", ""),
        "remembered": True,
    }
    return Finding(code=code, message=message, evidence=evidence, **about | more)


def refusal(view: View, code: str, kind: str, message: str, **more: Any) -> Finding:
    """A move that this rule refuses, with all that is known of it."""
    step, event = view.board_change, view.event
    assert step is not None
    assert step.task is not None
    law = step.config
    evidence = Evidence(
        kind=kind,
        from_state=law.name(step.source) or None,
        to_state=law.name(step.target) or getattr(event, "to", "") or None,
        last_valid=law.name(step.task.state) or None,
        guard=step.guard or None,
        missing=list(step.missing) or None,
        attempts=step.attempts or None,
        agent=actor(event),
        module=getattr(event, "module", "") or None,
    )
    return task_finding(view, code, message, evidence, type="transition.blocked", **more)


def held(view: View, code: str, kind: str, wanted: str) -> Finding | None:
    """A task that this rule has put aside does not go on before somebody says why."""
    step = view.board_change
    if step is None or step.refused != code or step.attempts != 1 or step.task is None:
        return None
    state = step.config.name(step.task.state)
    message = f"{step.task.id} stays {state}: it does not go on without {wanted}."
    return refusal(view, code, kind, message, action="ask_human")


def ordinal(count: int) -> str:
    """A count for a sentence: `second`, `third`, `4th`."""
    return {1: "first", 2: "second", 3: "third"}.get(count, f"{count}th")


def level(count: int, warn: int, halt: int) -> Level | None:
    """How far up the ladder a count has come; a threshold of 0 is off."""
    if 0 < halt <= count:
        return Level.HALT
    if 0 < warn <= count:
        return Level.WARN
    return None


def listed(turns: list[int]) -> str:
    """Turn indices for a sentence: `turns 3, 5 and 7`."""
    if len(turns) == 1:
        return f"turn {turns[0]}"
    return f"turns {', '.join(map(str, turns[:-1]))} and {turns[-1]}"


def dollars(micro: int) -> str:
    """Micro-USD for people."""
    return f"{micro / 1_000_000:.2f} USD"
