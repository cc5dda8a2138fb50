"""What repeated, occurrence by occurrence, and how each compares with the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from streamproc.core.decision import Decision
from streamproc.core.signals.similarity import NEAR_SHORT
from streamproc.errors import plural
from streamproc.model.turn_texts import LONG_MAX, CallTexts, excerpt
from streamproc.model.wire import NO_ANSWER, Call, Content, Turn
from streamproc.report.history import Detail, RunHistory
from streamproc.report.model import Match, Occurrence

SHOWN: Final = 12  # occurrences of a loop: the first one, and the last ones


class _Seen(NamedTuple):
    """What is compared of an occurrence."""

    call: Call | None
    content: Content | None


def turns_of(decision: Decision, period: int, last: int) -> list[int]:
    """Return the turns at which a loop occurred; for a sequence, all turns of its rounds are steps."""
    evidence = decision.evidence
    turns = list(evidence.turns or ()) if evidence is not None else []
    if decision.onset is None:
        return turns
    if period > 1:
        return sorted({*turns, *range(decision.onset, last + 1)})
    return turns or list(range(decision.onset, last + 1))


def occurrences(history: RunHistory, decision: Decision, last: int) -> tuple[list[Occurrence], int, int]:
    """Return the occurrences to show, how many are left out, and the steps of a round."""
    evidence = decision.evidence
    period = (evidence.period or 1) if evidence is not None else 1
    turns = [turn for turn in turns_of(decision, period, last) if turn <= last]
    if about := _ABOUT.get(evidence.kind) if evidence is not None else None:
        turns = [turn for turn in turns if _has(history, turn, about, decision.node)]
    if period > 1:
        turns = _steps(history, turns, period * (evidence.count or 1) if evidence is not None else period)
    most = max(SHOWN, 2 * period)
    left_out = max(0, len(turns) - most)
    if left_out:
        turns = turns[left_out:] if period > 1 else [turns[0], *turns[left_out + 1 :]]
    found: list[Occurrence] = []
    before: dict[int, _Seen] = {}
    for place, turn in enumerate(turns):
        detail = history.details.get(turn)
        step = place % period
        shown, seen = _occurrence(history, turn, detail, decision)
        match: Match = compare(before[step], seen) if step in before else "first"
        before[step] = seen
        found.append(replace(shown, match=match, round=place // period + 1, step=step + 1))
    return found, left_out, period


def _has(history: RunHistory, turn: int, about: str, node: str | None) -> bool:
    """Return whether a turn reports what a decision is about, at its node."""
    detail = history.details.get(turn)
    if detail is None or (node and detail.turn.node != node):
        return False
    taken = detail.turn
    if about == "tests":
        return taken.tests is not None
    return bool(taken.errors or taken.call_errors) if about == "error" else bool(taken.artifact or taken.docs)


def _steps(history: RunHistory, turns: Sequence[int], count: int) -> list[int]:
    """Return the turns that are steps of a sequence: those that did something, at most `count`, the last ones."""
    said = [turn for turn in turns if history.kind(turn) != "other"]
    working = [turn for turn in said if history.kind(turn) != "narration"]
    chosen = working if len(working) >= count else said
    return chosen[-count:]


def _occurrence(history: RunHistory, turn: int, detail: Detail | None, decision: Decision) -> tuple[Occurrence, _Seen]:
    about: dict[str, Any] = {"turn": turn, "node": history.node(turn), "at": history.at[turn]}
    about["place"] = history.place(turn)
    if detail is None:
        return Occurrence(what="", match="unknown", **about), _Seen(None, None)
    kind = decision.evidence.kind if decision.evidence is not None else ""
    what = _ABOUT.get(kind, "")
    taken, texts = detail.turn, detail.texts
    errors = taken.errors or taken.call_errors
    if what == "tests" and taken.tests is not None:
        tests = taken.tests
        text = f"{plural(tests.failing, 'failing test')}: {', '.join(tests.sample)}"
        seen = _Seen(None, Content(tests.failing_set, tests.failing_set))
        return Occurrence(what="tests", match="first", answer=excerpt(text, LONG_MAX), **about), seen
    if what == "error" and errors is not None:
        seen = _Seen(None, Content(errors.signature, errors.norm))
        return Occurrence(what="error", match="first", answer=excerpt(errors.excerpt, LONG_MAX), **about), seen
    left = taken.artifact or taken.docs
    if left is not None and (what == "artifact" or not (taken.calls or taken.output)):
        text = excerpt(texts.left, LONG_MAX) if texts is not None else ""
        return Occurrence(what="artifact", match="first", answer=text, **about), _Seen(None, left)
    tool = (decision.evidence.tool or "") if decision.evidence is not None else ""
    number = _chosen(taken, tool)
    if number is None:
        said = excerpt(texts.said, LONG_MAX) if texts is not None else ""
        seen = _Seen(None, taken.output or taken.structured or taken.query)
        return Occurrence(what="output", match="first", answer=said, **about), seen
    called = _call_texts(detail, number)
    shown = Occurrence(
        what=taken.calls[number].name,
        match="first",
        args=excerpt(called.args, LONG_MAX) if called else "",
        answer=excerpt(called.answer, LONG_MAX) if called else "",
        **about,
    )
    return shown, _Seen(taken.calls[number], None)


_ABOUT: Final = {
    "same_failures": "tests", "no_fewer_failures": "tests", "repeated_error": "error", "consecutive_failures": "error",
    "unchanged_artifact": "artifact", "artifact_flip": "artifact", "state_oscillation": "artifact",
}  # fmt: skip
"""What the occurrences of a decision are about, by the kind of its evidence; else calls, or what was said."""


def _call_texts(detail: Detail, number: int) -> CallTexts | None:
    if detail.texts is None or number >= len(detail.texts.calls):
        return None
    return detail.texts.calls[number]


def _chosen(turn: Turn, tool: str) -> int | None:
    """Return the call of a turn that a decision is about."""
    if not turn.calls:
        return None
    return next((number for number, call in enumerate(turn.calls) if call.name == tool), 0)


def compare(before: _Seen, now: _Seen) -> Match:
    """Return how an occurrence compares with the one before, by their fingerprints."""
    if before.call is not None and now.call is not None:
        return _compare_calls(before.call, now.call)
    if before.content is not None and now.content is not None:
        one, other = before.content, now.content
        if one.exact == other.exact:
            return "same"
        if one.norm == other.norm:
            return "normalised"
        return _near(one.sim, other.sim)
    return "unknown"


def _compare_calls(one: Call, other: Call) -> Match:
    if NO_ANSWER in (one.outcome, other.outcome):
        return "same" if one.key == other.key else "different"
    if one.exact == other.exact:
        return "same" if one.key == other.key else "near"
    if one.norm == other.norm:
        return "normalised" if one.key == other.key else "near"
    return _near(one.sim, other.sim)


def _near(one: int, other: int) -> Match:
    return "near" if one and other and (one ^ other).bit_count() <= NEAR_SHORT else "different"
