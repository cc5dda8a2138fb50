"""What detectors share: the form of their examples, and phrases for messages. Nothing here decides anything.

A detector is one file: a docstring (*Sees · Why · False alarms · Tuning · Reference*), its parameters (`Limits`, a
frozen dataclass whose fields a policy may set), `HEALTHY` and `STUCK` examples, and one class with `code`, `name`,
`kinds` and `check`.

`check` answers one turn with a finding or nothing. The run holds all state, the detector none. A detector is only
called for turns that carry one of its `kinds` of evidence.

A detector that enforces budgets lists their names as `budgets = ("maxTurnsPerNode", ...)` on its class; detectors
without budgets leave the attribute out. The documentation is generated from it, and a test checks that every budget is
listed.

A message is one sentence for people and models: what happened, in which node, at which turns, how often.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from streamproc.core.board.owners import owner_of
from streamproc.core.decision import STALLED, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.model.nesting import start_of
from streamproc.model.redaction import READ_PER_SHOWN, redact, redact_json
from streamproc.model.wire import Call, Event, Turn

RawTurn = dict[str, Any]

ARGS_SHOWN: Final = 160  # characters: enough to recognise a command or a path


class Example(NamedTuple):
    """A trace of raw turns. `severity` and `at` are the expected decision and its turn index; None: no decision.
    `policy` is the policy that the example needs; None: the standard one."""

    title: str
    turns: list[RawTurn]
    severity: str | None = None
    at: int | None = None
    policy: RawTurn | None = None


def call(tool: str, args: Any, result: Any = None, *, node: str = "agent", **more: Any) -> RawTurn:
    """Return a turn with one tool call."""
    made: RawTurn = {"name": tool, "args": args}
    if result is not None:
        made["result"] = result
    return {"node": node, "tool_calls": [made], **more}


def said(node: str, output: str, **more: Any) -> RawTurn:
    """Return a turn with a text and nothing else."""
    return {"node": node, "output": output, **more}


def tested(node: str, failed: list[str], total: int = 9, **more: Any) -> RawTurn:
    """Return a verifier's turn with a test report."""
    return {"node": node, "tests": {"failed": failed, "passed": total - len(failed), "total": total}, **more}


def moved(task: str, *states: str, **more: Any) -> list[RawTurn]:
    """Return the transitions of a task from state to state; `more` are fields of the last one."""
    steps = pairwise(states)
    moves: list[RawTurn] = [
        {"type": "task.transition", "task_id": task, "from": source, "to": target} for source, target in steps
    ]
    return [*moves[:-1], moves[-1] | more]


def cycles(*completed: int) -> list[RawTurn]:
    """Return cycles of the board, each with its number of completed tasks."""
    return [{"type": "cycle.completed", "completed": count} for count in completed]


def actor(event: Event) -> str | None:
    """Return the agent or node that caused an event."""
    return event.agent or event.node or None


def task_finding(view: View, code: str, message: str, evidence: Evidence, **more: Any) -> Finding:
    """Return a finding about a task: a warning that leaves the run alone. The board tracks what was reported."""
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
    """Return a finding for a refused move, with the move as evidence."""
    step, event = view.board_change, view.event
    assert step is not None
    assert step.task is not None
    config = step.config
    evidence = Evidence(
        kind=kind,
        from_state=config.name(step.source) or None,
        to_state=config.name(step.target) or getattr(event, "to", "") or None,
        last_valid=config.name(step.task.state) or None,
        guard=step.guard or None,
        missing=list(step.missing) or None,
        attempts=step.attempts or None,
        agent=actor(event),
        module=getattr(event, "module", "") or None,
    )
    return task_finding(view, code, message, evidence, type="transition.blocked", **more)


def owner(view: View, task: str) -> str | None:
    """Return the agent that owns a task on the board, or else the one that caused the event."""
    step = view.board_change
    known = owner_of(step.board, step.tag(task)) if step is not None else ""
    return known or actor(view.event)


def override(view: View, code: str, kind: str) -> Finding | None:
    """Return a record of a person's decision that overrode this detector: who decided what, and why."""
    step, event = view.board_change, view.event
    if step is None or step.task is None:
        return None
    what = next((what for overridden, what in step.overridden if overridden == code), None)
    if what is None:
        return None
    by, reason = getattr(event, "approved_by", ""), getattr(event, "reason", "")
    decision = getattr(event, "decision", "") or "approved"
    why = f": {reason}" if reason else ""
    return task_finding(
        view,
        code,
        f"{by} decided about {step.task.id} ({decision}), which overrides {code}{why}.",
        Evidence(
            kind=kind,
            by=by,
            reason=reason or None,
            guard=what or None,
            to_state=step.to or None,
            last_valid=step.config.name(step.task.state) or None,
            agent=owner_of(step.board, step.tag(step.task.id)) or None,
        ),
        level=Level.INFO,
        loop=(step.board.events << 8) + 255,
        type="decision.recorded",
    )


def still_parked(view: View, code: str, kind: str, required: str) -> Finding | None:
    """Return a finding for a task that tries to leave the state this detector forced it into without `required`, or
    the record of the decision that lets it go."""
    step = view.board_change
    if step is None or step.refused != code or step.attempts != 1 or step.task is None:
        return override(view, code, kind)
    state = step.config.name(step.task.state)
    message = f"{step.task.id} stays in {state} until {required} is recorded."
    return refusal(view, code, kind, message, action="ask_human")


def args_excerpt(turn: Turn, made: Call) -> str | None:
    """Return a redacted excerpt of a call's arguments; None if the publisher does not send content."""
    if turn.content is None:
        return None
    calls = turn.content.get("tool_calls")
    place = turn.calls.index(made) if made in turn.calls else -1
    sent = calls[place] if isinstance(calls, list) and 0 <= place < len(calls) else None
    args = sent.get("args") if isinstance(sent, dict) else None
    if args is None:
        return None
    try:
        shown = start_of(args, ARGS_SHOWN * READ_PER_SHOWN)  # it may have a megabyte
        text = shown if isinstance(shown, str) else msgspec.json.encode(redact_json(shown)).decode()
    except (TypeError, ValueError, RecursionError):  # of a Monitor's caller: no JSON
        return None
    return redact(text, ARGS_SHOWN).encode("utf-8", "replace").decode()


def ordinal(count: int) -> str:
    """Return a count for a message: `second`, `third`, `4th`."""
    return {1: "first", 2: "second", 3: "third"}.get(count, f"{count}th")


def level(count: int, warn: int, halt: int) -> Level | None:
    """Return the level that a count has reached; a threshold of 0 is off."""
    if 0 < halt <= count:
        return Level.HALT
    if 0 < warn <= count:
        return Level.WARN
    return None


def listed(turns: list[int]) -> str:
    """Return turn indices for a message: `turns 3, 5 and 7`."""
    if len(turns) == 1:
        return f"turn {turns[0]}"
    return f"turns {', '.join(map(str, turns[:-1]))} and {turns[-1]}"


def dollars(micro: int) -> str:
    """Return micro-USD as USD for a message."""
    return f"{micro / 1_000_000:.2f} USD"
