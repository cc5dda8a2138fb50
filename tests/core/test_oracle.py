"""The engine, which keeps a bounded state, agrees with an oracle that keeps the whole history."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pytest

from streamproc.core.rules import DetectorProtocol, Rules
from streamproc.detectors import DETECTORS
from streamproc.detectors.base import Finding, Level, View
from streamproc.fingerprint import fingerprint
from streamproc.fingerprint.mask import mask
from streamproc.model.raw_events import parse_raw
from streamproc.model.wire import Event
from tests.core.oracle import HALT, WARN, Circle, Oracle, Repeat, Turn
from tests.feeding import STANDARD, Feed, Raw

SEEDS: Final = range(500)
LEVELS: Final = {Level.WARN: WARN, Level.HALT: HALT}


class Recorded:
    """A detector whose findings are recorded, before escalation decides which to report."""

    def __init__(self, inner: DetectorProtocol) -> None:
        self.inner = inner
        self.code, self.name, self.kinds = inner.code, inner.name, inner.kinds
        self.found: dict[int, Finding] = {}

    def check(self, view: View, limits: Any) -> Finding | None:
        finding = self.inner.check(view, limits)
        if finding is not None:
            self.found[view.index] = finding
        return finding


class Watching:
    """A policy with these two detectors only, both recorded."""

    def __init__(self) -> None:
        self.repeats = Recorded(DETECTORS["LOOP003"])
        self.circles = Recorded(DETECTORS["LOOP002"])

    def rules(self, workflow: str, tenant: str, tier: str) -> Rules:
        return Rules(
            STANDARD.ref,
            [(watched, DETECTORS[watched.code].Limits()) for watched in (self.repeats, self.circles)],
            {},
            on_stall="pause",
            actions={},
            lower_is_better=frozenset(),
            live_repeats_min=10,
            live_standstills=3,
            live_minutes=10,
            known_warn=10,
            known_halt=25,
        )


@cache
def event_of(turn: Turn) -> Event:
    raw: Raw = {"run_id": "r", "type": "user.message"}
    if turn.node != "user":
        calls: list[Raw] = [{"name": name, "args": {}, "result": answer and answer[0]} for name, answer in turn.calls]
        raw = {"run_id": "r", "node": turn.node, "output": turn.text or None, "tool_calls": calls}
    return fingerprint(parse_raw(raw))


def judged(turns: list[Turn]) -> tuple[list[Repeat | None], list[Circle | None]]:
    """Return the findings of the engine for each turn."""
    watching = Watching()
    feed = Feed(watching)
    run = feed.state
    for turn in turns:
        feed.event(event_of(turn))
        run.escalation.episodes.clear()  # or detectors would skip loops that were reported ...
        run.halted = run.escalation.halted_loop_seen = -1  # ... or began before a halt
    repeats: list[Repeat | None] = [None] * run.turns
    circles: list[Circle | None] = [None] * run.turns
    for index, finding in watching.repeats.found.items():
        repeats[index] = Repeat(LEVELS[finding.level], finding.evidence.count or 0)
    for index, finding in watching.circles.found.items():
        evidence = finding.evidence
        circles[index] = Circle(LEVELS[finding.level], evidence.period or 0, evidence.count or 0)
    return repeats, circles


def remembered(turns: list[Turn]) -> tuple[list[Repeat | None], list[Circle | None]]:
    """Return the findings of the oracle for each turn."""
    oracle = Oracle()
    for turn in turns:
        oracle.add(turn)
    return oracle.repeats, oracle.circles


def answer(text: str) -> tuple[str, str]:
    return text, mask(text)


def shuffled(make: Callable[[random.Random], Turn], dice: random.Random) -> list[Turn]:
    """Return a trace of blocks, some of them repeated: independent random turns rarely form loops."""
    turns: list[Turn] = []
    for _ in range(dice.randint(1, 5)):
        block = [make(dice) for _ in range(dice.choice((1, 1, 2, 3, 5, 8)))]
        turns += block * dice.choice((1, 2, 3, 4, 12))
    return turns


def one_caller(dice: random.Random) -> Turn:
    name = dice.choice("xyz")
    return Turn("a", ((name, dice.choice((answer("0"), answer("0"), answer("1")))),))


def one_poller(dice: random.Random) -> Turn:
    answers = (answer("0"), answer("1"), answer("2"), answer("at 10:00:01"), answer("at 10:00:02"), None)
    return Turn("a", ((dice.choice("xy"), dice.choice(answers)),))


def a_talker(dice: random.Random) -> Turn:
    return Turn(dice.choice("abc"), text=dice.choice(("yes", "no")))


def a_team(dice: random.Random) -> Turn:
    node = dice.choice("ab")
    if dice.random() < 0.05:
        return Turn("user")
    if dice.random() < 0.4:
        return Turn("c", text=dice.choice(("yes", "no", "maybe")))
    answers = (answer("0"), answer("0"), answer("1"), None)
    names = dice.sample("xyz", dice.choice((1, 1, 1, 2)))
    return Turn(node, tuple((name, dice.choice(answers)) for name in names))


def a_narrating_team(dice: random.Random) -> Turn:
    """Agents that say what they do. All calls have answers: the engine takes one without for a find of others."""
    node = dice.choice("ab")
    if dice.random() < 0.4:
        return Turn(node, text=dice.choice(("yes", "no", "maybe", "so")))
    names = dice.sample("xyz", dice.choice((1, 1, 1, 2)))
    return Turn(node, tuple((name, dice.choice((answer("0"), answer("0"), answer("1")))) for name in names))


def one_beside_another(dice: random.Random) -> Turn:
    """One agent makes few calls, and another one finds something in most of its own."""
    if dice.random() < 0.5:
        return Turn(
            "a",
            (("x", answer("0")),) if dice.random() < 0.9 else (("x", answer("0")), ("y", answer(str(dice.random())))),
        )
    return Turn("b", (("z", answer(str(dice.random()))),))


MAKERS: Final = (one_caller, one_poller, a_talker, a_team, a_narrating_team, one_beside_another)


@pytest.mark.long
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: str(make.__name__))
def test_the_engine_agrees_with_the_oracle(make: Callable[[random.Random], Turn]) -> None:
    found = 0
    for seed in SEEDS:
        turns = shuffled(make, random.Random(seed))[:50]
        expected = remembered(turns)
        assert judged(turns) == expected, f"seed {seed}"
        found += sum(any(kind) for kind in expected)
    assert found > len(SEEDS) / 4
