"""The words of the catalogue, taken literally: everything is kept, and everything is looked at again at each turn.

Quadratic, unbounded, without hashes and without cleverness. It covers repeated calls and oscillations in traces of
calls, texts and messages of people; `test_oracle.py` compares it with the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

WARN, HALT = "warn", "halt"

Answer = tuple[str, str] | None  # byte for byte, and masked; None: no answer was reported
Calls = dict[str, Answer]


@dataclass(frozen=True)
class Turn:
    """One turn: who, what was called with which answers, or what was said. A person speaks with node ``user``."""

    node: str
    calls: tuple[tuple[str, Answer], ...] = ()
    text: str = ""


class Repeat(NamedTuple):
    level: str
    times: int


class Circle(NamedTuple):
    level: str
    period: int
    rounds: int


class Element(NamedTuple):
    """A step of a stream: what it was, and whether it was made of calls."""

    what: Any
    calls: bool


def _differ(one: Answer, other: Answer) -> bool:
    """Whether two answers differ in more than time stamps."""
    return (one[1] if one else None) != (other[1] if other else None)


@dataclass
class Oracle:
    """`repeats[n]` and `circles[n]` say what there is to tell of turn n, before any ladder."""

    turns: list[Turn] = field(default_factory=list)
    news: list[float] = field(default_factory=list)
    found: list[float] = field(default_factory=list)
    known: list[Any] = field(default_factory=list)
    steps: list[Element] = field(default_factory=list)
    said: list[Element] = field(default_factory=list)
    talk: list[Element] = field(default_factory=list)
    call_turns: list[tuple[int, Calls]] = field(default_factory=list)
    waiting: tuple[str, str, int] | None = None
    repeats: list[Repeat | None] = field(default_factory=list)
    circles: list[Circle | None] = field(default_factory=list)

    def take(self, turn: Turn) -> None:
        if turn.node == "user":
            self._new(len(self.turns) - 0.5, steps=False, said=False)
            self.waiting = None
            return
        index = len(self.turns)
        circles = self._settle(turn.node)
        repeat = None
        if turn.calls:
            repeat, circle = self._called(turn, index)
            circles.append(circle)
        elif turn.text and any(earlier.node == turn.node and earlier.calls for earlier in self.turns):
            self.waiting = turn.node, turn.text, index
            self.talk.append(Element((turn.node, turn.text), calls=False))
            circles.append(self._circle(self.talk))
        elif turn.text:
            circles += self._stated(turn.node, turn.text, index)
        self.turns.append(turn)
        self.repeats.append(repeat)
        self.circles.append(self._worst(circles) if index not in self.news else None)

    # What is new, and what follows from it.

    def _learn(self, thing: Any) -> bool:
        """Whether this run has not had this before."""
        if thing in self.known:
            return False
        self.known.append(thing)
        return True

    def _new(self, turn: float, *, steps: bool, said: bool, waiting: bool = False) -> None:
        """Something new: a round in which it happened does not count, unless it is itself a step of that round.

        Waiting for something excuses what is repeated meanwhile, too, but it is not itself a discovery.
        """
        self.news.append(turn)
        self.talk.clear()
        if not waiting:
            self.found.append(turn)
        if not steps:
            self.steps.clear()
        if not said:
            self.said.clear()

    def _settle(self, node: str) -> list[Circle | None]:
        """A text that its own node follows up was narration; one that another node answers was a message."""
        waiting, self.waiting = self.waiting, None
        if waiting is None or waiting[0] == node:
            return []
        return self._stated(*waiting)

    def _stated(self, node: str, text: str, index: int) -> list[Circle | None]:
        if self._learn((node, text)):
            self._new(index, steps=True, said=True)
        element = Element((node, text), calls=False)
        self.steps.append(element)
        self.said.append(element)
        return [self._circle(self.steps), self._circle(self.said)]

    # LOOP003.

    def _called(self, turn: Turn, index: int) -> tuple[Repeat | None, Circle | None]:
        calls = {(turn.node, call): answer for call, answer in dict(turn.calls).items()}  # each asks for itself
        self.talk.clear()
        self.call_turns.append((index, calls))
        fresh = [self._learn((call[1], answer and answer[1])) for call, answer in calls.items()]
        moving = [not new and self._stands_still(call) for new, call in zip(fresh, calls, strict=True)]
        if any(fresh) or any(moving):
            self._new(index, steps=any(fresh) and not any(moving), said=False, waiting=not any(fresh))
        found = [
            self._repeat(call, answer)
            for call, answer, new, poll in zip(calls, calls.values(), fresh, moving, strict=True)
            if not new and not poll
        ]
        circle = None
        if not any(moving):
            what = turn.node, tuple(sorted((call, answer[1] if answer else "") for call, answer in calls.items()))
            self.steps.append(Element(what, calls=True))
            circle = self._circle(self.steps)
        repeats = [repeat for repeat in found if repeat is not None]
        return max(repeats, key=lambda repeat: repeat.level == HALT, default=None), circle

    def _history(self, call: tuple[str, str]) -> list[tuple[int, int, Answer]]:
        """Every time this call was made: which turn, which call turn, which answer."""
        return [(turn, step, calls[call]) for step, (turn, calls) in enumerate(self.call_turns) if call in calls]

    def _streak(self, call: tuple[str, str]) -> list[tuple[int, int, Answer]]:
        """The last times in a row that it answered the same, time stamps aside."""
        history = self._history(call)
        last = history[-1][2]
        streak: list[tuple[int, int, Answer]] = []
        for made in reversed(history):
            if _differ(made[2], last):
                break
            streak.insert(0, made)
        return streak

    def _standstills(self, call: tuple[str, str]) -> list[int]:
        """How often in a row it gave each answer while nothing else was found; the last is still going on."""
        lengths = [0]
        before = None
        for made in self._history(call):
            if before is None or _differ(before[2], made[2]):
                if before is not None and before[2] is None:
                    lengths.pop()  # not reporting is not standing still
                lengths.append(1)
            elif any(before[0] < turn < made[0] for turn in self.found):
                lengths[-1] = 1
            else:
                lengths[-1] += 1
            before = made
        return lengths

    def _is_live(self, call: tuple[str, str]) -> bool:
        """A call whose answer has changed by itself: nothing new had happened since it was made before."""
        history = self._history(call)
        return any(
            earlier[2] is not None
            and later[2] is not None
            and _differ(earlier[2], later[2])
            and not any(earlier[0] < turn < later[0] for turn in self.news)
            for earlier, later in pairwise(history)
        )

    def _stands_still(self, call: tuple[str, str]) -> bool:
        """A poll whose unchanged answer is no evidence yet."""
        if not self._is_live(call):
            return False
        *earlier, now = self._standstills(call)
        return now < max(10, 3 * max(earlier))

    def _repeat(self, call: tuple[str, str], answer: Answer) -> Repeat | None:
        if self._is_live(call):
            now = self._standstills(call)[-1]
            return Repeat(HALT, now) if now > 1 else None
        last_news = max(self.news, default=0)
        streak = self._streak(call)
        counted = [made for made in streak if made[0] >= last_news and len(self.call_turns) - made[1] <= 10]
        if len(counted) < 2:
            return None
        in_row = 1
        while in_row < len(counted) and counted[-in_row - 1][1] == counted[-in_row][1] - 1:
            in_row += 1
        if answer is None:
            return Repeat(HALT, in_row) if in_row >= 5 else Repeat(WARN, in_row) if in_row >= 3 else None
        exact = 0
        while exact < len(counted) and counted[-exact - 1][2] == answer:
            exact += 1
        if exact >= 3:
            return Repeat(HALT, exact)
        if len(counted) >= 5:
            return Repeat(HALT, len(counted))
        if min(in_row, exact) >= 2:
            return Repeat(WARN, exact)
        return Repeat(WARN, len(counted)) if len(counted) >= 3 else None

    # LOOP002.

    @staticmethod
    def _circle(stream: list[Element]) -> Circle | None:
        """The shortest period of 2 to 16 steps that has held for two rounds, at the end of a round."""
        whats = [element.what for element in stream]
        for period in range(2, 17):
            held = 0
            while held + period < len(whats) and whats[-held - 1] == whats[-held - 1 - period]:
                held += 1
            block = stream[-period:]
            if held < period or len({element.what for element in block}) == 1:
                continue
            rounds, rest = divmod(held + period, period)
            if rest:
                return None
            if not any(element.calls for element in block):
                return Circle(HALT, period, rounds) if rounds == 2 else None
            return {2: Circle(WARN, period, 2), 3: Circle(HALT, period, 3)}.get(rounds)
        return None

    @staticmethod
    def _worst(circles: list[Circle | None]) -> Circle | None:
        found = [circle for circle in circles if circle is not None]
        return max(found, key=lambda circle: circle.level == HALT, default=None)
