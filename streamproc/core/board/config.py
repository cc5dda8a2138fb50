"""A board of tasks as the engine uses it: states as numbers, the ways between them, and what each way asks for.

Policy says all of it (`streamproc.policy.boards`); nothing here knows a state by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import xxhash

TAG: Final = 0xFFFFFFFF

UNKNOWN: Final = -1  # nobody has said yet in which state a task is
FOREIGN: Final = -2  # a state that this board does not have


class TransitionGuard(NamedTuple):
    """What a way asks for. `sources` and `targets` are sets of states, as bits; `when` names a property of the task
    ("ui", "module") without which nothing is asked; `back` is where a refused task goes (-1: it stays)."""

    name: str
    code: str
    sources: int
    targets: int
    when: str = ""
    items: tuple[str, ...] = ()
    verdict: str = ""
    ticket: bool = False
    override: bool = False
    back: int = UNKNOWN


class BoardConfig:
    """States, ways, guards and sizes of a board. `enforced` are the codes of the detectors that policy has on."""

    __slots__ = (
        "_next", "aside", "batch", "blocked", "blocked_state", "cycle_phases", "design_kinds", "done", "enforced",
        "escalated_state", "failed", "guards", "index", "initial", "path", "progress", "stalled_state", "states", "tag",
        "ways",
    )  # fmt: skip

    def __init__(self, board: Mapping[str, Any], enforced: frozenset[str]) -> None:
        self.states = states_of(board)
        self.index = {name: number for number, name in enumerate(self.states)}
        guards, batch = board.get("guards", {}), board.get("batch", {})
        numbered = (*self.states, "", *guards, *(str(asked.get("items")) for asked in guards.values()), "", *batch)
        self.tag = xxhash.xxh3_64_intdigest("\0".join(numbered).encode("utf-8", "surrogatepass")) & TAG
        self.path = [self.index[state_name(name)] for name in board.get("path", ())]
        self.initial = self.find(board["initial"]) if board.get("initial") else self.path[0] if self.path else UNKNOWN
        self._next = [0] * len(self.states)
        for source, target in pairwise(self.path):
            self._next[source] |= 1 << target
        for name, targets in (*board.get("transitions", {}).items(), *board.get("aside", {}).items()):
            self._next[self.index[state_name(name)]] |= self.bits(targets)
        self.aside = self.bits(board.get("aside", {}))
        left = sum(1 << number for number, targets in enumerate(self._next) if targets)
        self.ways = left | self.aside | self.bits(board.get("path", ()))
        self.done = self.bits(board.get("done", ()))
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

    def find(self, name: str) -> int:
        """The number of a state; UNKNOWN for no name, FOREIGN for a state that is not on this board."""
        if not name:
            return UNKNOWN
        known = self.index.get(name)
        return self.index.get(state_name(name), FOREIGN) if known is None else known

    def bits(self, names: str | Sequence[str] | Mapping[str, Any]) -> int:
        """A set of states. One that is not on this board is left out: a scope may lay its own board over another's."""
        found = 0
        for name in [names] if isinstance(names, str) else names:
            number = self.index.get(state_name(name))
            found |= 0 if number is None else 1 << number
        return found

    def name(self, state: int) -> str:
        """A state's name for people."""
        return self.states[state] if 0 <= state < len(self.states) else ""

    def allows(self, source: int, target: int) -> bool:
        """Whether the board has a way from one state to another. States aside can be entered from any that is not
        done."""
        if target < 0:
            return False
        if self._next[source] >> target & 1:
            return True
        return bool(self.aside >> target & 1) and not self.done >> source & 1

    def judged(self, state: int) -> bool:
        """Whether it is known where a task may go from this state."""
        return state >= 0 and bool(self.ways >> state & 1)

    def ahead(self, source: int, target: int) -> bool:
        """Whether a move goes on towards the end: such a move must not carry evidence that something failed."""
        return not (self.aside | self.failed | self.blocked) >> target & 1 and (
            target in self.path and (source not in self.path or self.path.index(target) > self.path.index(source))
        )

    def size(self, phase: str) -> int:
        """How many tasks may be delegated at once in a phase; 0: any number."""
        return self.batch.get(state_name(phase)) or self.batch.get("DEFAULT", 0)


STATE_SKIP: Final = "TASK004"
GUARD_CODES: Final[Mapping[str, str]] = {"dod": "TASK005", "init": "TASK006", "design": "TASK007"}


def state_name(name: str) -> str:
    """A state's name as boards are compared: `in progress`, `in-progress` and `IN_PROGRESS` are one."""
    return name.strip().upper().replace(" ", "_").replace("-", "_")


def states_of(board: Mapping[str, Any]) -> tuple[str, ...]:
    """Every state that a board names, those of its path first."""
    named = [*board.get("path", ())]
    for section in ("transitions", "aside"):
        for source, targets in board.get(section, {}).items():
            named += [source, *([targets] if isinstance(targets, str) else targets)]
    for section in ("in_progress", "done", "blocked", "failed"):
        named += board.get(section, ())
    return tuple(dict.fromkeys(state_name(name) for name in named))


NO_BOARD: Final = BoardConfig({}, frozenset())
