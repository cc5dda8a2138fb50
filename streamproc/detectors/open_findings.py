"""STALL011 open_findings: a review does not converge: its findings stay open, or come back.

Sees: the open `findings` of a reviewer, round by round, at or above a severity. A round is fruitless if it resolves
nothing that was not resolved before: the same findings stay open, or swing between two sets. One with more than 16
findings is fruitless only if all of them stay open. It also counts rounds without a clean one, and with no fewer open
findings than the best round so far.

Why: each round costs a review and a repair. What stays open for several rounds needs another view, or a decision that
it may stay.

False alarms: a review whose rounds each resolve the findings before them and find new ones is converging, whatever
their number, and only warns after many rounds. Minor findings do not count. Measured progress and a person start the
counts again.

Tuning: `warn` and `halt` count fruitless rounds in a row, `rounds_warn` rounds without improvement; 0 turns a level
off. `floor` is the lowest severity that counts: 0 info, 1 low, 2 medium, 3 high, 4 critical; findings without a
severity count.

Reference: kunchenguid/no-mistakes#683; martymcenroe/AssemblyZero#2386 (a cap on rounds ended a converging review).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from streamproc.detectors.base import Detector, Example, Finding, RawTurn, View, kind, level, loop_of
from streamproc.errors import plural
from streamproc.model.wire import Event, Issue, TaskVerdict, Turn

REVIEWS_MAX: Final = 2  # reviewers, or tasks, whose rounds are remembered
OPEN_MAX: Final = 16  # findings of a round, the most severe first, and findings that were resolved
TAG_BYTES: Final = 3
NAMED: Final = 3  # findings that a message names


class Round(NamedTuple):
    """What a round has changed."""

    resolved: int
    new: int
    recurring: int
    fruitless: bool


class OpenFindings(Detector):
    code, name = "STALL011", "open_findings"
    kinds = kind.REVIEWED | kind.BOARD
    evidence = "count", "details"

    class Limits:
        """Rounds of one review."""

        warn: int = 2  # the third round with the same findings
        halt: int = 5  # three more, after the nudge
        rounds_warn: int = 8  # without a clean one, and none with fewer findings
        floor: int = 2  # medium: a review may end with open nits

    def check(self, view: View, limits: Limits) -> Finding | None:
        event: Event = view.event
        if not isinstance(event, Turn | TaskVerdict) or event.findings is None:
            return None
        named = [one for one in event.findings if not 0 <= one.severity < limits.floor]
        memory, reviewer = view.memory(self.code), _reviewer(event)
        key = f"{view.tag(f'{reviewer} {event.task_id}'):x}"
        review = memory.pop(key, None)
        if not named:
            return None  # clean: this review is over
        if review is None or view.novelty.last_progress > review["since"]:
            review = {"open": b"", "gone": b"", "all": 0, "fruitless": 0, "best": len(named), "flat": 0}
            review["since"] = review["began"] = view.index
        seen = _round(review, named)
        review["fruitless"] = review["fruitless"] + 1 if seen.fruitless else 0
        review["began"] = review["began"] if seen.fruitless else view.index
        review["flat"] = 0 if len(named) < review["best"] else review["flat"] + 1
        review["best"] = min(review["best"], len(named))
        memory[key] = review
        while len(memory) > REVIEWS_MAX:
            del memory[next(iter(memory))]
        return self._found(view, limits, review, seen, named, reviewer)

    def _found(
        self, view: View, limits: Limits, review: dict[str, Any], seen: Round, named: list[Issue], reviewer: str
    ) -> Finding | None:
        fruitless, onset = review["fruitless"], review["began"]
        reached, count = level(fruitless, limits.warn, limits.halt), fruitless
        what = f"has resolved nothing in {fruitless} rounds in a row"
        if reached is None:
            reached, count, onset = level(review["flat"], limits.rounds_warn, 0), review["flat"], review["since"]
            what = f"has had no better round in {count} rounds"
        loop = loop_of(reviewer, onset, fruitless > 0)
        if reached is None or self.reported(view, loop, reached, onset):
            return None
        names = ", ".join(one.name for one in named[:NAMED] if one.name)
        are = f"{plural(len(named), 'finding')} {'is' if len(named) == 1 else 'are'} open"
        message = f"The review of {reviewer} {what}: {are}{f' ({names})' if names else ''}."
        details: dict[str, str | int | float] = {
            "open": len(named), "resolved": seen.resolved, "new": seen.new, "recurring": seen.recurring,
        }  # fmt: skip
        return self.finding(reached, loop, message, onset=onset, count=count, node=reviewer, details=details)


def _reviewer(event: Turn | TaskVerdict) -> str:
    return (event.validator if isinstance(event, TaskVerdict) else "") or event.node or "the reviewer"


def _round(review: dict[str, Any], named: list[Issue]) -> Round:
    """Compare a round with the ones before it, and remember it. What is open beyond `OPEN_MAX` is not known one by one:
    whether it is resolved shows only by all of it."""
    before, gone = _tags(review["open"]), _tags(review["gone"])
    tags, whole = {one.key & 0xFFFFFF for one in named[:OPEN_MAX]}, loop_of(*(one.key for one in named)) & 0xFFFFFF
    is_same, review["all"] = whole == review["all"], whole
    resolved = [tag for tag in before if tag not in tags]
    new = [tag for tag in tags if tag not in before and tag not in gone]
    first_time = [tag for tag in resolved if tag not in gone] if len(named) <= OPEN_MAX else []
    fruitless = not first_time if len(named) <= OPEN_MAX else is_same
    review["gone"] = _bytes([*(tag for tag in gone if tag not in first_time), *first_time][-OPEN_MAX:])
    review["open"] = _bytes(sorted(tags))
    return Round(len(resolved), len(new), len(tags) - len(new), bool(before) and fruitless)


def _tags(raw: bytes) -> list[int]:
    return [int.from_bytes(raw[at : at + TAG_BYTES], "little") for at in range(0, len(raw), TAG_BYTES)]


def _bytes(tags: list[int]) -> bytes:
    return b"".join(tag.to_bytes(TAG_BYTES, "little") for tag in tags)


def reviewed(*found: str, severity: str = "high", node: str = "reviewer") -> RawTurn:
    """Return a round of an example."""
    return {"node": node, "findings": [{"id": one, "severity": severity} for one in found]}


def _rounds(*rounds: tuple[str, ...]) -> list[RawTurn]:
    edits: list[RawTurn] = [{"node": "coder", "artifact": f"+fix {n}"} for n in range(len(rounds))]
    return [turn for edit, found in zip(edits, rounds, strict=True) for turn in (edit, reviewed(*found))]


DETECTOR = OpenFindings()
HEALTHY = [
    Example("AssemblyZero#2386: each round resolves the one before and finds something deeper", _rounds(
        ("empty assertions", "inverted arc"), ("occluded pixel",), ("unknown flag", "missing elements"), ("trap",), (),
    )),
    Example("fewer findings each round", _rounds(tuple("abcde"), tuple("abcd"), tuple("abc"), tuple("ab"), ("a",), ())),
    Example("one of a hundred findings is resolved in each round", _rounds(
        *[tuple(f"F{one}" for one in range(100 - resolved)) for resolved in range(8)],
    )),
    Example("one of a rule's findings is resolved in each round", _rounds(
        *[("unused-import",) * left for left in range(9, 0, -1)], (),
    )),
    Example("nits that stay open", [reviewed("nit-1", "nit-2", severity="nit") for _ in range(9)]),
    Example("a review without findings", [reviewed() for _ in range(9)]),
    Example("two reviewers of one change", [
        turn for n in range(4) for turn in (reviewed(f"a{n}"), reviewed(f"b{n}", node="security"))
    ]),
    Example("a person who decides in between", [
        turn for _ in range(5) for turn in (reviewed("a"), {"type": "user.message"})
    ]),
]  # fmt: skip
STUCK = [
    Example("no-mistakes#683: the same findings round after round", _rounds(*[("SEC-1", "SEC-2")] * 6), "halt", 11),
    Example("two sets of findings in turn", _rounds(*[("a",), ("b",)] * 5), "halt", 15),
    Example("verdicts with the same finding", [
        {"type": "task.verdict", "task_id": "T1", "verdict": "REJECTED", "validator": "qa", "findings": ["F1"]}
        for _ in range(3)
    ], "warn", 0, policy={"detectors": {"TASK008": "off"}}),
    Example("never clean: another finding in each round", _rounds(*[(f"finding {n}",) for n in range(9)]), "warn", 15),
]  # fmt: skip
