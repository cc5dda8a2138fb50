"""LOOP008 monologue: one node repeats almost the same text and does nothing else.

Sees: text-only turns in a row of one node (no tool call, no result, no handover) that are equal after masking, or
alike. Alike means close in SimHash and with the same numbers and names: within 12 bits for a sentence, 10 for a
paragraph, 8 for longer texts.

Why: an agent announces again and again what it will do, and does not do it.

False alarms: a story told in chapters is text only, too, but not alike. A person's message, a call or another node's
turn ends the count. Short texts that are alike but not equal only warn: a report on table after table also differs by
one word.

Tuning: `warn` and `halt` count such turns; 0 turns a level off.

Reference: catalogue of loops, "≥ 3 consecutive text turns, no tool call, no hand-over, near-identical".
"""

from __future__ import annotations

from streamproc.detectors.base import Detector, Example, Finding, Level, View, call, kind, level, said
from streamproc.detectors.near_repeat import OTHER, PLAN


class MonologueDetector(Detector):
    code, name = "LOOP008", "monologue"
    kinds = kind.MONOLOGUE
    evidence = "count", "turns"

    class Limits:
        """Text-only turns in a row that are almost the same."""

        warn: int = 3
        halt: int = 5

    def check(self, view: View, limits: Limits) -> Finding | None:
        talk = view.run.monologue
        if not talk.count or talk.grown >= 2 * (talk.count - 1):  # gains a word every turn: a draft in progress
            return None
        if (reached := level(talk.count, limits.warn, limits.halt)) is None:
            return None
        if talk.loose:
            reached = Level.WARN
        message = f"{view.turn.node} wrote almost the same text {talk.count} times in a row and did nothing else."
        return self.finding(
            reached, view.node_tag, message, onset=talk.first,
            count=talk.count, turns=list(range(talk.first, view.index + 1))[-8:],
        )  # fmt: skip


DETECTOR = MonologueDetector()
_FILES = ("main", "test", "setup", "views", "models", "urls")
_TABLES = ("users", "orders", "invoices", "products", "carts", "events", "roles")
HEALTHY = [
    Example("one file after another", [said("agent", f"I will read the file {name}.py now.") for name in _FILES]),
    Example("the same words about each task", [
        said("reviewer", "Looks good to me.", task_id=f"T{n}") for n in range(8)
    ]),
    Example("the same words to each request", [
        said("reviewer", "Looks good to me.", request={"file": n}) for n in range(8)
    ]),
    Example("numbered sentences", [said("agent", f"Chapter {n} is good.") for n in range(6)]),
    Example("longer numbered sentences", [
        said("agent", f"I have migrated table number {n} of the old schema to the new one.") for n in range(12)
    ]),
    Example("a story in chapters", [said("writer", f"Chapter {name}") for name in ("one", "two", "three", "four")]),
    Example("a draft that grows", [said("writer", f"{PLAN} {OTHER} " * (n + 3)) for n in range(8)]),
    Example("a list that grows by a word", [said("writer", " ".join(PLAN.split()[: 5 + n])) for n in range(20)]),
    Example("a checklist", [
        said("agent", "[x] " * n + "[ ] " * (9 - n) + "of the steps for the new search of the shop") for n in range(9)
    ]),
    Example("a form filled in for case after case", [
        said("clerk", f"{PLAN} Case {4700 + n} is closed. {OTHER}") for n in range(8)
    ]),
    Example("every announcement is followed by the work", [
        turn for n in range(5) for turn in (said("agent", PLAN + " now" * n), call("read", {"f": n}, f"text {n}"))
    ]),
]  # fmt: skip
STUCK = [
    Example("a sentence that changes by a word each time", [
        said("agent", f"{word} let me look at the configuration once more and see what is wrong with the set-up.")
        for word in ("Now", "So", "Well", "Fine", "Right")
    ], "warn", 2),
    Example("a report on table after table only warns", [
        said("agent", f"I have migrated the table {name} of the old schema to the new one.") for name in _TABLES
    ], "warn", 2),
    Example("the same announcement five times", [
        said("agent", f"{PLAN} {OTHER} {PLAN} {word}.") for word in ("now", "fine", "right", "again", "next")
    ], "halt", 4),
    Example("the same announcement three times", [
        said("agent", f"{PLAN} {OTHER} {PLAN} {word}.") for word in ("now", "fine", "right")
    ], "warn", 2),
]  # fmt: skip
