"""The configuration of a task board: states as numbers, the transitions between them, and the guards of transitions.

All of it comes from the policy (`streamproc.policy.boards`); no state name is built in here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import xxhash

TAG: Final = 0xFFFFFFFF

UNKNOWN: Final = -1  # the state of a task is not known yet
FOREIGN: Final = -2  # a state that this board does not have


class TransitionGuard(NamedTuple):
    """Evidence that a transition requires."""

    name: str
    code: str  # detector that reports a refusal
    sources: int  # states that the transition leaves, as bits
    targets: int  # states that it enters, as bits
    when: str = ""  # property of the task ("ui", "module") without which the guard does not apply
    items: tuple[str, ...] = ()  # artifacts that must exist
    verdict: str = ""  # verdict that the report must give
    ticket: bool = False  # whether a design ticket must be done
    override: bool = False  # whether a person's approval replaces the evidence
    back: int = UNKNOWN  # state to which a refused task returns; -1: it stays


class BoardConfig:
    """States, transitions, guards and batch sizes of a board. Sets of states are bits of an integer.

    `enforced` are the codes of the detectors that policy has on.
    """

    __slots__ = (
        "_first_check", "_next", "_places", "batch", "blocked", "blocked_state", "completed", "cycle_phases",
        "design_kinds", "done", "enforced", "escalated_state", "failed", "guards", "index", "initial", "parked_states",
        "path", "progress", "stalled_state", "states", "tag", "tasks_of_turns", "transition_states",
    )  # fmt: skip

    def __init__(self, board: Mapping[str, Any], enforced: frozenset[str]) -> None:
        self.states = states_of(board)
        self.index = {name: number for number, name in enumerate(self.states)}
        guards, batch = board.get("guards", {}), board.get("batch", {})
        numbered = (*self.states, "", *guards, *(str(asked.get("items")) for asked in guards.values()), "", *batch)
        self.tag = xxhash.xxh3_64_intdigest("\0".join(numbered).encode("utf-8", "surrogatepass")) & TAG
        self.path = [self.index[state_name(name)] for name in board.get("path", ())]
        self.initial = self.find(board["initial"]) if board.get("initial") else self.path[0] if self.path else UNKNOWN
        self._next = [0] * len(self.states)  # by state: the states that it leads to
        for source, target in pairwise(self.path):
            self._next[source] |= 1 << target
        for name, targets in (*board.get("transitions", {}).items(), *board.get("aside", {}).items()):
            self._next[self.index[state_name(name)]] |= self.bits(targets)
        self.parked_states = self.bits(board.get("aside", {}))  # blocked, stalled, ...: off the path
        sources = sum(1 << number for number, targets in enumerate(self._next) if targets)
        self.transition_states = sources | self.parked_states | self.bits(board.get("path", ()))
        self._places = [self._place(state) for state in range(len(self.states))]
        self._first_check = next((place for place in range(len(self.path)) if self._sends_back(place)), len(self.path))
        self.done = self.bits(board.get("done", ()))
        self.completed = self.done & ~self.parked_states  # a cancelled task is done, and not completed
        self.blocked = self.bits(board.get("blocked", ()))
        self.failed = self.bits(board.get("failed", ()))
        self.progress = self.bits(board.get("in_progress", ()))
        forced = board.get("forced", {})
        self.blocked_state = max(UNKNOWN, self.find(forced.get("blocked", "")))
        self.stalled_state = max(UNKNOWN, self.find(forced.get("stalled", "")))
        self.escalated_state = max(UNKNOWN, self.find(forced.get("escalated", "")))
        self.guards = tuple(self._guard(name, asked) for name, asked in board.get("guards", {}).items())
        self.batch: dict[str, int] = {state_name(phase): size for phase, size in board.get("batch", {}).items()}
        self.design_kinds = tuple(board.get("design_kinds", ()))
        self.cycle_phases = tuple(state_name(name) for name in board.get("cycle_phases", ()))
        self.tasks_of_turns = bool(board.get("tasks_of_turns"))  # whether a task that only turns name can be stalled
        self.enforced = enforced

    def _guard(self, name: str, asked: Mapping[str, Any]) -> TransitionGuard:
        return TransitionGuard(
            name=name,
            code=GUARD_CODES.get(name, STATE_SKIP),
            sources=self.bits(asked.get("from") or self.states),
            targets=self.bits(asked.get("into", ())),
            when=asked.get("when", ""),
            items=tuple(asked.get("items", ())),
            verdict=asked.get("verdict", ""),
            ticket=bool(asked.get("ticket", False)),
            override=bool(asked.get("override", False)),
            back=max(UNKNOWN, self.find(asked.get("back_to") or "")),
        )

    def _place(self, state: int) -> int:
        """Return the place of a state on the path, or the furthest that a state beside it leads to; -1: none."""
        if state in self.path:
            return self.path.index(state)
        return max((self.path.index(other) for other in self._after(state) if other in self.path), default=-1)

    def _after(self, state: int) -> list[int]:
        return [other for other, _ in enumerate(self.states) if self._next[state] >> other & 1]

    def _sends_back(self, place: int) -> bool:
        """Whether the state at a place of the path is a check: it may send a task back."""
        others = (other for other in self._after(self.path[place]) if not self.parked_states >> other & 1)
        return any(0 <= self._places[other] <= place for other in others)

    def find(self, name: str) -> int:
        """Return the number of a state; UNKNOWN for no name, FOREIGN for a state that is not on this board."""
        if not name:
            return UNKNOWN
        known = self.index.get(name)
        return self.index.get(state_name(name), FOREIGN) if known is None else known

    def bits(self, names: str | Sequence[str] | Mapping[str, Any]) -> int:
        """Return a set of states, without those that are not on this board: a scope may override another's board."""
        found = 0
        for name in [names] if isinstance(names, str) else names:
            number = self.index.get(state_name(name))
            found |= 0 if number is None else 1 << number
        return found

    def name(self, state: int) -> str:
        """Return the name of a state for messages."""
        return self.states[state] if 0 <= state < len(self.states) else ""

    def allows(self, source: int, target: int) -> bool:
        """Whether the board has a transition from one state to another. Parked states can be entered from every state
        that is not done. A state that another policy's board had, and this one has not, leads nowhere."""
        if target < 0 or not 0 <= source < len(self._next):
            return False
        if self._next[source] >> target & 1:
            return True
        return bool(self.parked_states >> target & 1) and not self.done >> source & 1

    def leads(self, source: int, target: int) -> bool:
        """Whether a task may be moved from one state to another. A state without transitions may be left for any, but
        for no state behind a check of the path unless the task is done there: a to-do list has no checks."""
        if self.judged(source):
            return self.allows(source, target)
        return source < 0 or target not in self.path[self._first_check + 1 :] or bool(self.done >> target & 1)

    def resumes(self, before: int, target: int) -> bool:
        """Whether a parked task may be moved to a state that the board lists without a skip: one of the path that is
        not beyond those that the state before leads to."""
        if not 0 <= before < len(self.states):  # of a damaged state
            return True
        return self._places[target] <= max(self._places[state] for state in (before, *self._after(before)))

    def judged(self, state: int) -> bool:
        """Whether the transitions from this state are known."""
        return state >= 0 and bool(self.transition_states >> state & 1)

    def ahead(self, source: int, target: int) -> bool:
        """Whether a move goes forward on the path: such a move must not carry evidence of a failure."""
        return not (self.parked_states | self.failed | self.blocked) >> target & 1 and (
            target in self.path and (source not in self.path or self.path.index(target) > self.path.index(source))
        )

    def asks(self, guard: TransitionGuard, source: int, target: int) -> bool:
        """Whether a guard applies to a move. From a state that is not known, the move passes the guard if the state on
        the path before its target stands before the guard."""
        if not guard.targets >> target & 1:
            return False
        if source >= 0:
            return bool(guard.sources >> source & 1)
        place = self.path.index(target) if target in self.path else 0
        return place > 0 and bool((guard.sources & ~guard.targets) >> self.path[place - 1] & 1)

    def begins(self, state: int, guard: TransitionGuard) -> bool:
        """Whether a state of the path stands before those that a guard's moves leave."""
        places = [place for place, other in enumerate(self.path) if guard.sources >> other & 1]
        return state in self.path and bool(places) and self.path.index(state) < min(places)

    def is_behind(self, state: int, guard: TransitionGuard) -> bool:
        """Whether a state of the path stands behind a guard."""
        places = [place for place, other in enumerate(self.path) if guard.targets >> other & 1]
        return state in self.path and bool(places) and self.path.index(state) >= min(places)

    def size(self, phase: str) -> int:
        """Return how many tasks may be delegated at once in a phase; 0: any number."""
        return self.batch.get(state_name(phase)) or self.batch.get("DEFAULT", 0)


STATE_SKIP: Final = "TASK004"
GUARD_CODES: Final[Mapping[str, str]] = {"dod": "TASK005", "init": "TASK006", "design": "TASK007"}


def state_name(name: str) -> str:
    """Return the canonical name of a state: `in progress`, `in-progress` and `IN_PROGRESS` are the same."""
    return name.strip().upper().replace(" ", "_").replace("-", "_")


def states_of(board: Mapping[str, Any]) -> tuple[str, ...]:
    """Return every state that a board names, those of its path first."""
    named = [*board.get("path", ())]
    for section in ("transitions", "aside"):
        for source, targets in board.get(section, {}).items():
            named += [source, *([targets] if isinstance(targets, str) else targets)]
    for section in ("in_progress", "done", "blocked", "failed"):
        named += board.get(section, ())
    return tuple(dict.fromkeys(state_name(name) for name in named))


NO_BOARD: Final = BoardConfig({}, frozenset())
