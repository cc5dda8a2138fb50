"""LOOP008 monologue: one node talks to itself, and says almost the same.

Sees: consecutive turns of one node that are text alone (no tool call, no result, no hand-over), equal after masking or
alike: in SimHash, and about the same numbers and names: within 12 bits for a sentence, 10 for a paragraph, 8 for more.

Why: an agent that announces again and again what it will do, and does not do it.

False alarms: a story told in chapters is text alone, too, and not alike. A person's word, a call or another node's turn
ends the count. A sentence or two that are alike, and not equal, are only warned of: a report of one table after the
other differs by a word, too.

Tuning: `warn` and `halt` count such turns; 0 turns a level off.

Reference: catalogue of loops, "≥ 3 consecutive text turns, no tool call, no hand-over, near-identical".
"""

from __future__ import annotations

from dataclasses import dataclass

from streamproc.core import kind
from streamproc.core.decision import STALLED, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.detectors.base import Example, call, level, said
from streamproc.detectors.near_repeat import OTHER, PLAN


@dataclass(frozen=True, slots=True)
class Limits:
    """Text turns in a row that are almost the same."""

    warn: int = 3
    halt: int = 5


class MonologueDetector:
    """LOOP008."""

    code = "LOOP008"
    name = "monologue"
    kinds = kind.MONOLOGUE

    def check(self, view: View, limits: Limits) -> Finding | None:
        talk = view.monologue
        if talk is None or talk.grown >= 2 * (talk.count - 1):  # a word a turn, and never one less: it is being written
            return None
        reached = level(talk.count, limits.warn, limits.halt)
        if reached is None:
            return None
        if talk.loose:
            reached = Level.WARN
        return Finding(
            code=self.code,
            level=reached,
            loop=view.node_tag,
            onset=talk.first,
            message=f"{view.turn.node} has said almost the same {talk.count} times in a row and done nothing else.",
            evidence=Evidence(kind=self.name, count=talk.count, turns=list(range(talk.first, view.index + 1))[-8:]),
            reason=STALLED,
            status="aborted_stuck",
        )


DETECTOR = MonologueDetector()

_FILES = ("main", "test", "setup", "views", "models", "urls")

_TABLES = ("users", "orders", "invoices", "products", "carts", "events", "roles")

HEALTHY = [
    Example("one file after the other", [said("agent", f"I will read the file {name}.py now.") for name in _FILES]),
    Example("the same words about each task", [
        said("reviewer", "Looks good to me.", task_id=f"T{n}") for n in range(8)
    ]),
    Example("counted", [said("agent", f"Chapter {n} is good.") for n in range(6)]),
    Example("counted, in longer sentences", [
        said("agent", f"I have migrated table number {n} of the old schema to the new one.") for n in range(12)
    ]),
    Example("a story in chapters", [said("writer", f"Chapter {name}") for name in ("one", "two", "three", "four")]),
    Example("a draft that grows", [said("writer", f"{PLAN} {OTHER} " * (n + 3)) for n in range(8)]),
    Example("a list that grows by a word", [said("writer", " ".join(PLAN.split()[: 5 + n])) for n in range(20)]),
    Example("a checklist", [
        said("agent", "[x] " * n + "[ ] " * (9 - n) + "of the steps for the new search of the shop") for n in range(9)
    ]),
    Example("a form, filled in for one after the other", [
        said("clerk", f"{PLAN} Case {4700 + n} is closed. {OTHER}") for n in range(8)
    ]),
    Example("announced and done", [
        turn for n in range(5) for turn in (said("agent", PLAN + " now" * n), call("read", {"f": n}, f"text {n}"))
    ]),
]  # fmt: skip
STUCK = [
    Example("a sentence, in other words each time", [
        said("agent", f"{word} let me look at the configuration once more and see what is wrong with the set-up.")
        for word in ("Now", "So", "Well", "Fine", "Right")
    ], "warn", 2),
    Example("a report of one table after the other is not more than warned of", [
        said("agent", f"I have migrated the table {name} of the old schema to the new one.") for name in _TABLES
    ], "warn", 2),
    Example("announced again and again", [
        said("agent", f"{PLAN} {OTHER} {PLAN} {word}.") for word in ("now", "fine", "right", "again", "next")
    ], "halt", 4),
    Example("announced three times", [
        said("agent", f"{PLAN} {OTHER} {PLAN} {word}.") for word in ("now", "fine", "right")
    ], "warn", 2),
]  # fmt: skip
