"""The tree of a session's runs: who started whom, and what each branch has cost. Reports and the page show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from streamproc.core.scope import short_name
from streamproc.report.model import BranchShown

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.core.run_state import RunState

BRANCHES_SHOWN: Final = 200  # runs of a session


class SessionRun(Protocol):
    """A run of a session."""

    @property
    def run_id(self) -> str: ...

    @property
    def parent(self) -> str: ...

    @property
    def cost_usd_micro(self) -> int: ...


M = TypeVar("M", bound=SessionRun)


class Branch(NamedTuple, Generic[M]):
    """A run in its tree: how deep it is, and what it and all runs below it cost."""

    run: M
    depth: int
    runs: int
    cost_usd_micro: int


def branches(runs: Iterable[M]) -> Iterator[Branch[M]]:
    """Yield the runs of a session, each after the one that has started it; those whose parent is not known first."""
    known = {run.run_id: run for run in runs}
    children: dict[str, list[M]] = {}
    for run in known.values():
        above = run.parent if run.parent in known and run.parent != run.run_id else ""
        children.setdefault(above, []).append(run)
    sums: dict[str, tuple[int, int]] = {}
    ordered: list[tuple[M, int]] = []
    waiting = [(run, 0) for run in reversed(children.get("", []))]
    while waiting:  # runs that name each other as parents are in no branch
        run, depth = waiting.pop()
        ordered.append((run, depth))
        waiting += [(one, depth + 1) for one in reversed(children.get(run.run_id, []))]
    for run, _ in reversed(ordered):
        below = [sums[one.run_id] for one in children.get(run.run_id, [])]
        sums[run.run_id] = 1 + sum(one[0] for one in below), run.cost_usd_micro + sum(one[1] for one in below)
    for run, depth in ordered:
        yield Branch(run, depth, *sums[run.run_id])


@dataclass(slots=True)
class TreeMember:
    """What a report tells of another run of the session."""

    run_id: str
    parent: str = ""
    state: str = "running"
    turns: int = 0
    cost_usd_micro: int = 0
    why: str = ""


class RecordedTrees:
    """The runs of a log by session."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, TreeMember]] = {}

    def note(self, run_id: str, run: RunState, decisions: Iterable[Decision]) -> None:
        """Note a run after one of its events."""
        session = run.scope.session or short_name(run_id)
        members = self._sessions.setdefault(session, {})
        member = members.get(run_id)
        if member is None:
            member = members[run_id] = TreeMember(run_id)
        member.parent, member.turns, member.cost_usd_micro = run.scope.parent, run.turns, run.ledger.cost_usd_micro
        member.state = "halted" if run.halted >= 0 else "finished" if run.finished else "running"
        for decision in decisions:
            member.why = f"{decision.code} {decision.message}"

    def shown(self, run_id: str, session: str) -> tuple[tuple[BranchShown, ...], int]:
        """Return the tree of a run's session, and how many of its runs are left out; nothing for a run that is alone
        in it."""
        members = self._sessions.get(session or short_name(run_id), {})
        if len(members) < 2:
            return (), 0
        found = [
            BranchShown(
                run_id=one.run.run_id, depth=one.depth, state=one.run.state, turns=one.run.turns,
                cost_usd_micro=one.run.cost_usd_micro, runs=one.runs, branch_cost_usd_micro=one.cost_usd_micro,
                why=one.run.why,
            )
            for one in branches(members.values())
        ]  # fmt: skip
        return tuple(found[:BRANCHES_SHOWN]), max(0, len(found) - BRANCHES_SHOWN)
