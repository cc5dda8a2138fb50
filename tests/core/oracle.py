"""The definitions of the catalogue, implemented literally: keep everything, and examine all of it at each turn.

Quadratic, unbounded, and without hashes. It covers repeated calls and oscillations in traces of calls, texts and user
messages; `test_oracle.py` compares it with the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from math import ceil
from typing import Any, NamedTuple

WARN, HALT = "warn", "halt"

Answer = tuple[str, str] | None  # byte for byte, and masked; None: no answer was reported
Made = tuple[int, int, Answer]  # turn, call turn and answer of a call
Calls = dict[tuple[str, str], Answer]  # by caller and call: the answer


@dataclass(frozen=True)
class Turn:
    """One turn of a node: its calls with their answers, or its text. Messages of users have the node ``user``."""

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
    """An element of a stream: its content, and whether it consists of calls."""

    what: Any
    calls: bool


def _differ(one: Answer, other: Answer) -> bool:
    """Whether two answers differ in more than time stamps."""
    return (one[1] if one else None) != (other[1] if other else None)


@dataclass
class Oracle:
    """`repeats[n]` and `circles[n]` are the findings for turn n, before escalation."""

    turns: list[Turn] = field(default_factory=list)
    news: list[float] = field(default_factory=list)
    found: list[float] = field(default_factory=list)
    words: dict[float, str] = field(default_factory=dict)  # whose words were new in a turn
    asked: float = -1  # when a person has spoken last
    finds: list[tuple[str, int]] = field(default_factory=list)  # nodes whose calls found or polled something, and when
    known: list[Any] = field(default_factory=list)
    steps: list[Element] = field(default_factory=list)
    said: list[Element] = field(default_factory=list)
    talk: list[Element] = field(default_factory=list)
    call_turns: list[tuple[int, Calls]] = field(default_factory=list)
    fresh: list[dict[tuple[str, str], bool]] = field(default_factory=list)
    waiting: tuple[str, str, int] | None = None
    repeats: list[Repeat | None] = field(default_factory=list)
    circles: list[Circle | None] = field(default_factory=list)

    def add(self, turn: Turn) -> None:
        if turn.node == "user":
            self.asked = len(self.turns) - 0.5
            self._new(self.asked, steps=False, said=False)
            self.waiting = None
            return
        index = len(self.turns)
        circles = self._settle(turn.node)
        repeat = None
        if turn.calls:
            repeat, circle = self._add_calls(turn, index)
            circles.append(circle)
        elif turn.text and any(earlier.node == turn.node and earlier.calls for earlier in self.turns):
            self.waiting = turn.node, turn.text, index
            self.talk.append(Element((turn.node, turn.text), calls=False))
            circles.append(self._circle(self.talk))
        elif turn.text:
            circles += self._add_statement(turn.node, turn.text, index)
        self.turns.append(turn)
        self.repeats.append(repeat)
        self.circles.append(self._worst(circles) if index not in self.news else None)

    # What is new, and what follows from it.

    def _learn(self, thing: Any) -> bool:
        """Record a thing, and return whether it is new to the run."""
        if thing in self.known:
            return False
        self.known.append(thing)
        return True

    def _new(self, turn: float, *, steps: bool, said: bool, waiting: bool = False) -> None:
        """Record news: a round that contains it does not count, unless the news is itself a step of that round.

        A poll also excuses the repeats around it, but it is not a discovery.
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
        """Decide on the waiting text: narration if its own node takes the next turn, a message if another node does."""
        waiting, self.waiting = self.waiting, None
        if waiting is None or waiting[0] == node:
            return []
        return self._add_statement(*waiting)

    def _add_statement(self, node: str, text: str, index: int) -> list[Circle | None]:
        if self._learn((node, text)):
            self._new(index, steps=True, said=True)
            self.words[index] = node
        element = Element((node, text), calls=False)
        self.steps.append(element)
        self.said.append(element)
        return [self._circle(self.steps), self._circle(self.said)]

    # LOOP003.

    def _add_calls(self, turn: Turn, index: int) -> tuple[Repeat | None, Circle | None]:
        calls = {
            (turn.node, call): answer for call, answer in dict(turn.calls).items()
        }  # each node counts its own calls
        self.talk.clear()
        self.call_turns.append((index, calls))
        fresh = [self._learn((call[1], answer and answer[1])) for call, answer in calls.items()]
        self.fresh.append(dict(zip(calls, fresh, strict=True)))
        polls = ["" if new else self._poll(call) for new, call in zip(fresh, calls, strict=True)]
        moving = [poll == "quiet" for poll in polls]
        if any(fresh) or any(moving):
            self._new(index, steps=any(fresh) and not any(moving), said=False, waiting=not any(fresh))
        found = [
            self._repeat(call, answer)
            for call, answer, new, poll in zip(calls, calls.values(), fresh, moving, strict=True)
            if not new and not poll
        ]
        if any(fresh) or any(moving):
            self.finds.append((turn.node, index))
        circle = None
        if not any(moving) and "idle" not in polls:
            what = turn.node, tuple(sorted((call, answer[1] if answer else "") for call, answer in calls.items()))
            self.steps.append(Element(what, calls=True))
            circle = self._circle(self.steps)
        repeats = [repeat for repeat in found if repeat is not None]
        return max(repeats, key=lambda repeat: repeat.level == HALT, default=None), circle

    def _of_others(self, turns: list[float], call: tuple[str, str]) -> list[float]:
        """Return turns with news, without the words of the node that calls."""
        return [turn for turn in turns if self.words.get(turn) != call[0]]

    def _history(self, call: tuple[str, str]) -> list[Made]:
        """Return every occurrence of a call: its turn, call turn and answer."""
        return [(turn, step, calls[call]) for step, (turn, calls) in enumerate(self.call_turns) if call in calls]

    def _streak(self, call: tuple[str, str]) -> list[Made]:
        """Return the last occurrences in a row with the same answer, ignoring time stamps."""
        history = self._history(call)
        last = history[-1][2]
        streak: list[Made] = []
        for made in reversed(history):
            if _differ(made[2], last):
                break
            streak.insert(0, made)
        return streak

    def _unchanged_counts(self, call: tuple[str, str]) -> list[int]:
        """Return how often in a row each answer was given with nothing found in between; the last one is current."""
        lengths = [0]
        before = None
        for made in self._history(call):
            if self._is_back(call, before, made):
                lengths[-1] = 1  # a change back to a known answer ends no period without change
            elif before is None or _differ(before[2], made[2]):
                if before is not None and before[2] is None:
                    lengths.pop()  # an unreported answer is not an unchanged one
                lengths.append(1)
            elif any(before[0] < turn < made[0] for turn in self._of_others(self.found, call)):
                lengths[-1] = 1
            else:
                lengths[-1] += 1
            before = made
        return lengths

    def _is_back(self, call: tuple[str, str], before: Made | None, made: Made) -> bool:
        """Whether an answer changed to one that the run knew, with nothing found since."""
        return (
            before is not None
            and _differ(before[2], made[2])
            and not self.fresh[made[1]][call]
            and not any(before[0] < turn < made[0] for turn in self._of_others(self.found, call))
        )

    def _known_count(self, call: tuple[str, str]) -> int:
        """Return how many answers in a row were known, from the first that changed back, with nothing else found."""
        count, before = 0, None
        for made in self._history(call):
            if before is not None and any(
                before[0] <= ceil(turn) and turn < made[0] for turn in self._of_others(self.found, call)
            ):
                count = 0
            if self.fresh[made[1]][call]:
                count = 0
            elif count and before is not None and not _differ(before[2], made[2]):
                count += 1
            elif before is not None and _differ(before[2], made[2]):
                count = count + 1 if self._is_back(call, before, made) else 0
            before = made
        return count

    def _is_live(self, call: tuple[str, str]) -> bool:
        """Whether the answer of a call once changed by itself, with nothing new since it was made before."""
        history = self._history(call)
        return any(
            earlier[2] is not None
            and later[2] is not None
            and _differ(earlier[2], later[2])
            and not any(earlier[0] < turn < later[0] for turn in self._of_others(self.news, call))
            for earlier, later in pairwise(history)
        )

    def _poll(self, call: tuple[str, str]) -> str:
        """Return whether the known answer of a call is no evidence yet (quiet), an early sign (idle) or a loop."""
        if not self._is_live(call):
            return ""
        *earlier, now = self._unchanged_counts(call)
        known = self._known_count(call)
        if now >= max(10, 3 * max(earlier)) or known >= 25:
            return "over"
        return "idle" if known >= 10 else "quiet"

    def _repeat(self, call: tuple[str, str], answer: Answer) -> Repeat | None:
        if self._is_live(call):
            count = max(self._unchanged_counts(call)[-1], self._known_count(call))
            return Repeat(WARN if self._poll(call) == "idle" else HALT, count)
        last_news = max(self._of_others(self.news, call), default=0)
        own = [step for step, (_, calls) in enumerate(self.call_turns) if next(iter(calls))[0] == call[0]]
        streak = [(turn, own.index(step), given) for turn, step, given in self._streak(call)]  # by the node's own count
        counted = [made for made in streak if made[0] >= last_news and len(own) - made[1] <= 10]
        alone = self._alone(call[0], streak)
        if len(counted) < 2:
            return Repeat(HALT if alone >= 25 else WARN, alone) if alone else None
        in_row = 1
        while in_row < len(counted) and counted[-in_row - 1][1] == counted[-in_row][1] - 1:
            in_row += 1
        if answer is None:
            return Repeat(HALT, in_row) if in_row >= 5 else Repeat(WARN, in_row) if in_row >= 3 else None
        exact = 0
        while exact < len(counted) and counted[-exact - 1][2] == answer:
            exact += 1
        if alone >= 25:
            return Repeat(HALT, alone)
        if exact >= 3:
            return Repeat(HALT, exact)
        if len(counted) >= 5:
            return Repeat(HALT, len(counted))
        if min(in_row, exact) >= 2:
            return Repeat(WARN, exact)
        if alone:
            return Repeat(WARN, alone)
        return Repeat(WARN, len(counted)) if len(counted) >= 3 else None

    def _alone(self, node: str, streak: list[Made]) -> int:
        """Return how often in a row a call gave its answer, if that is ten times or more, and neither this turn nor any
        call of its node has found something since the tenth before, and no person has spoken."""
        given = list(takewhile(lambda made: made[2] == streak[-1][2], reversed(streak)))
        if len(given) < 10 or given[0][2] is None or given[0][0] in self.news or self.asked > given[9][0]:
            return 0
        return 0 if any(turn > streak[-10][0] for finder, turn in self.finds if finder == node) else len(given)

    # LOOP002.

    @staticmethod
    def _circle(stream: list[Element]) -> Circle | None:
        """Return the shortest period of 2 to 16 steps that has held for two rounds, at the end of a round."""
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
