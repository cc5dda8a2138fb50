"""LOOP013 two_signs: two different warnings about one node in close succession.

Sees: a second warning of a node, from another detector of loops, stalls or errors, within 20 turns of its last one. Its
evidence names both. Some pairs are one sign: a row of failed calls (ERROR003) is in most others, calls that come again
(LOOP002, LOOP003) make the recent calls stale (LOOP009), and texts that are alike are one sign, whichever detector
warns. Of LOOP003 only repeats that are equal byte for byte count.

Why: each sign alone is too weak to halt. Of 229 recorded runs that used up their budget, two signs had shown in 15 more
than were halted, and in 3 of 1,900 that were solved.

False alarms: debugging has two signs at times, and is solved all the same. It therefore only warns; a policy may set
`halt`. It warns once of each node.

Tuning: `warn` and `halt` count different signs; 0 turns a level off. `within` is in turns.

Reference: simulation of rules on 1,602 public runs, 2026.
"""

from __future__ import annotations

from typing import Any, Final

from streamproc.detectors.base import Detector, Example, Finding, View, call, kind, level, said

NO_SIGN: Final = frozenset({"ERROR003", "STALL007", "LOOP013"})
ONE_SIGN: Final = (
    frozenset({"LOOP002", "LOOP009"}),
    frozenset({"LOOP003", "LOOP009"}),
    frozenset({"LOOP009", "STALL010"}),
    frozenset({"LOOP001", "LOOP006", "LOOP008", "LOOP010", "LOOP011"}),
)
"""Warnings of one phenomenon: known answers of calls, and texts that are alike."""
NODES_MAX: Final = 4  # nodes with signs
SIGNS_MAX: Final = 4  # of one node


class TwoSigns(Detector):
    code, name = "LOOP013", "two_signs"
    kinds = kind.WARNED
    evidence = "count", "signs"

    class Limits:
        """Different signs of one node."""

        warn: int = 2
        halt: int = 0  # off: two signs are no proof
        within: int = 20  # turns

    def check(self, view: View, limits: Limits) -> Finding | None:
        found = None
        for sign in view.warned:
            if _is_sign(sign):
                found = self._second(view, sign, sign.node or view.turn.node, limits) or found
        return found

    def _second(self, view: View, sign: Finding, node: str, limits: Limits) -> Finding | None:
        """Record a sign of a node, and return a finding if it is not the only one of late."""
        memory, tag = view.memory(self.code), view.tag(node)
        signs: dict[str, int] = memory.pop(f"{tag:x}", {})
        signs = {code: turn for code, turn in signs.items() if code != sign.code and view.index - turn <= limits.within}
        others = sorted(code for code in signs if not _are_one(code, sign.code))
        memory[f"{tag:x}"] = dict([*signs.items(), (sign.code, view.index)][-SIGNS_MAX:])
        while len(memory) > NODES_MAX:
            del memory[next(iter(memory))]
        reached = level(len(others) + 1, limits.warn, limits.halt)
        if not others or reached is None:
            return None
        onset = min(signs[code] for code in others)
        names = ", ".join((*others, sign.code))
        message = f"{node} shows {len(others) + 1} different signs within {view.index - onset + 1} turns: {names}."
        found = self.finding(
            reached, tag, message, onset=onset,
            count=len(others) + 1, signs=[*others, sign.code],
        )  # fmt: skip
        found.node = node
        return found


def _is_sign(finding: Finding) -> bool:
    """Whether a warning is about what a node repeats, and not about a budget, a task or a silence."""
    if finding.onset < 0 or finding.code in NO_SIGN:
        return False
    return finding.code != "LOOP003" or finding.evidence.match == "exact"


def _are_one(code: str, other: str) -> bool:
    """Whether two signs show the same."""
    return any(code in signs and other in signs for signs in ONE_SIGN)


DETECTOR = TwoSigns()
_FOUND: Final = "One match, in the archive of the year before last."


def _search(n: int) -> dict[str, Any]:
    return call("search", {"in": n}, "no match")


def _failed(n: int) -> dict[str, Any]:
    return {"node": "agent", "tool_calls": [{"name": "build", "args": {"n": n}, "error": "E1: cannot link"}]}


HEALTHY = [
    Example("one sign", [call("search", {"in": "all"}, _FOUND), *map(_search, range(6))]),
    Example("two signs far apart", [
        call("search", {"in": "all"}, _FOUND), *map(_search, range(6)),
        *(call("read", {"page": n}, f"page {n}") for n in range(25)), *map(_failed, range(3)),
    ]),
    Example("a call again, which makes the window stale", [
        call("read", {"f": name}, name) for name in ("a", "a", "b", "b", "c", "c")
    ]),
]  # fmt: skip
STUCK = [
    Example("searches without a match, and a build that fails with one error", [
        call("search", {"in": "all"}, _FOUND), *map(_search, range(6)), *map(_failed, range(3)),
    ], "warn", 9),
    Example("texts in between", [
        call("search", {"in": "all"}, _FOUND), *map(_search, range(6)), said("agent", "Let me build it instead."),
        *map(_failed, range(3)),
    ], "warn", 10),
]  # fmt: skip
