"""What detectors share: their base class, the form of their examples, and phrases for messages.

A detector is one file: a docstring (*Sees · Why · False alarms · Tuning · Reference*), a subclass of `Detector`, and
`HEALTHY` and `STUCK` examples.

`check` answers one turn with a finding or nothing. The run holds all state, the detector none. A detector is only
called for turns that carry one of its `kinds` of evidence.

A message is one sentence for people and models: what happened, in which node, at which turns, how often.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypedDict

import msgspec
import xxhash

from streamproc.core import kind as kind
from streamproc.core.decision import STALLED, Evidence, Finding as Finding, Level as Level, hex16 as hex16
from streamproc.core.episodes import already_reported
from streamproc.core.view import View as View
from streamproc.model.nesting import start_of
from streamproc.model.redaction import READ_PER_SHOWN, redact, redact_json
from streamproc.model.wire import Call, Event, Turn

RawTurn = dict[str, Any]

START_MS: Final = 1_767_225_600_000  # of examples with times: 2026-01-01
# What halts may have beside: the last hashes and counts (`core.decide`), and the task that is stalled (`board.holds`).
OF_HALTS: Final = (
    "output_hashes", "artifact_hashes", "failing_signatures", "failing_trend", "from_state", "to_state",
)  # fmt: skip
ARGS_SHOWN: Final = 160  # characters: enough to recognise a command or a path


class RuleSettings(TypedDict, total=False):
    """What the limits of a detector mean for the rules of a scope, beside its own `check`."""

    budgets: dict[str, int]  # limits on budgets, in their units; a lower one of the policy wins
    task_percents: list[int]  # levels of a task's tokens
    session_percents: list[int]  # levels of a session's budgets; without them no session has any
    account_percents: list[int]  # the same of users and tenants
    tree_runs: list[int]  # levels of a session's tree (`session_tree.TreeRules.levels`), by what it counts
    tree_alive: list[int]
    tree_depth: list[int]
    tree_births: list[int]
    tree_same: list[int]
    tree_pace: list[int]  # `TreeRules.pace`
    tree_loops: list[int]  # `TreeRules.loops`
    every_error: bool  # failed calls and retryable errors are attempts as well
    edges_apart: bool  # news counts only for the edge that it came back on
    live_repeats_min: int  # when the unchanged or known answers of a poll are a repeat (`Rules.judge_poll`)
    live_standstills: int
    live_minutes: int
    known_warn: int
    known_halt: int


class Detector(ABC):
    """A detector: a subclass sets the attributes and `Limits`, and writes `check`. Instances hold no state.

    A subclass may also have `due` (`core.deadlines`), `marks` and `budget_marks` (`core.marks`).
    """

    code: str
    name: str  # the kind of its evidence, unless a finding names another
    kinds: int  # bits of `core.kind`
    evidence: tuple[str, ...] = ()  # the fields of `Evidence` that its findings fill in, beside `kind`
    Limits: Any  # its parameters: a policy may set them; each has a default
    budgets: tuple[str, ...] = ()  # the budgets that it enforces
    hard_cap = 0  # the highest limit that any policy can set, if no policy can turn the detector off
    gated = ""  # the field of `Gates` that its limit `gate` sets
    reason = STALLED  # why a run that it halts ends ...
    status = "aborted_stuck"  # ... and the terminal status of that run

    def __init_subclass__(cls) -> None:
        """Make the `Limits` that a subclass declares a frozen dataclass."""
        if "Limits" in vars(cls) and "__dataclass_fields__" not in vars(cls.Limits):
            cls.Limits = dataclass(frozen=True, slots=True)(cls.Limits)

    @abstractmethod
    def check(self, view: View, limits: Any) -> Finding | tuple[Finding, ...] | None:
        """Return what one turn or event shows under these `Limits`: several findings only for several subjects."""

    def settings(self, limits: Any) -> RuleSettings:
        """Return what its `Limits` (None: it is off) mean for the rules."""
        return {}

    def finding(
        self, level: Level, loop: int, message: str, *, kind: str = "", onset: int = -1, halt_reason: str = "",
        status: str | None = None, type: str = "", action: str = "", anywhere: bool = False,  # noqa: A002
        task: str = "", node: str = "", task_status: str = "", stop: str = "", remembered: bool = False,
        **evidence: Any,
    ) -> Finding:  # fmt: skip
        """Return a finding. The arguments named here are those of `Finding`, where `halt_reason` is its `reason`; all
        others are fields of its `Evidence`. Raises `TypeError` for a field that evidence does not have."""
        return Finding(
            code=self.code, level=level, loop=loop, message=message,
            evidence=Evidence(kind=kind or self.name, **evidence), onset=onset,
            reason=halt_reason or self.reason, status=self.status if status is None else status,
            type=type, action=action, anywhere=anywhere,
            task=task, node=node, task_status=task_status, stop=stop, remembered=remembered,
        )  # fmt: skip

    def reported(self, view: View, loop: int, level: Level, onset: int = -1) -> bool:
        """Whether a loop, which began in the turn `onset`, was reported at this level already."""
        return already_reported(view.run, self.code, loop, level, view.index, onset)


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


def steps(count: int, node: str = "agent") -> list[RawTurn]:
    """Return turns of one node, each with a new text."""
    return [said(node, f"step {n}") for n in range(count)]


def spent(*amounts: str) -> list[RawTurn]:
    """Return turns that cost these amounts, in USD."""
    return [turn | {"usage": {"cost_usd": amount}} for turn, amount in zip(steps(len(amounts)), amounts, strict=True)]


def started(**budgets: Any) -> RawTurn:
    """Return the start of a run that declares budgets."""
    return {"type": "run.started", "budgets": budgets}


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


def loop_of(*parts: object) -> int:
    """Return the number of a loop that these texts and numbers identify."""
    return xxhash.xxh3_64_intdigest("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"))


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


def iteration(view: View) -> int | None:
    """Return the iteration of the cycle that the turn's node is in; None outside of cycles."""
    return view.cycle.iterations if view.cycle is not None else None


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
