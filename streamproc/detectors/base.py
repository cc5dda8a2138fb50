"""What detectors share: the shape of their examples, and words for messages. Nothing here decides anything.

A detector is one file: a docstring (*Sees · Why · False alarms · Tuning · Reference*), its parameters (`Limits`,
a frozen dataclass whose fields policy may set), `HEALTHY` and `STUCK` examples, and one class with a `check`.
`check` answers one turn with a finding or nothing. State belongs to the run, never to the detector. A detector is
only asked about turns that bring one of its `kinds` of evidence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamproc.core.decision import Level

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
