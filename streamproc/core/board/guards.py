"""What a way on the board asks for, and whether a task has it: passed before, or shown with this event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from streamproc.core.board.config import STATE_SKIP, BoardConfig, TransitionGuard
from streamproc.core.board.state import DESIGN, DESIGNED, MODULES_MAX, PASSED, PLAIN, UI, Board, Task
from streamproc.model.wire import Proof, TaskTransition

ARTIFACTS = "artifacts"
NOT_GUARDS = frozenset({ARTIFACTS, "root_cause"})  # evidence that belongs to something else than a way


class Refusal(NamedTuple):
    """Which rule refuses a move, for want of what; the guard's number (-1: none) and where it sends the task."""

    code: str
    guard: str
    missing: tuple[str, ...]
    number: int = -1
    back: int = -1


def learn(board: Board, law: BoardConfig, task: Task, evidence: Mapping[str, Proof] | None) -> None:
    """Remember what an event proves: a report once passed stays so until the task is sent back."""
    if not evidence:
        return
    for number, guard in enumerate(law.guards):
        proof = evidence.get(guard.name)
        if proof is not None:
            if _passes(proof, guard):
                task.flags |= PASSED << number
                if guard.when == "module" and task.module and task.module not in board.modules:
                    board.modules = [*board.modules[1 - MODULES_MAX :], task.module]
            else:
                task.flags &= ~(PASSED << number)
        if guard.items:
            task.items[number] = task.items.get(number, 0) | _there(guard, proof, evidence.get(ARTIFACTS))


def unmet(
    board: Board, law: BoardConfig, task: Task, event: TaskTransition, way: tuple[int, int, int]
) -> Refusal | None:
    """Why this move is refused, if it is. `way` is (from, to, the state that was refused before or -1)."""
    source, target, wanted = way
    evidence = event.evidence or {}
    for number, guard in enumerate(law.guards):
        again = wanted >= 0 and guard.targets >> wanted & 1
        if guard.code not in law.enforced or not (again or (guard.targets >> target & guard.sources >> source & 1)):
            continue
        if guard.override and event.approved_by:
            task.flags |= PASSED << number
            task.items[number] = (1 << len(guard.items)) - 1
            continue
        missing = _missing(board, law, task, number, evidence)
        if missing:
            return Refusal(guard.code, guard.name, missing, number, guard.back)
    if STATE_SKIP in law.enforced and law.ahead(source, target):
        named = NOT_GUARDS | {guard.name for guard in law.guards}
        for name, proof in evidence.items():
            if not proof.passed and name not in named:
                return Refusal(STATE_SKIP, name, proof.failing or (name,))
    return None


def _missing(board: Board, law: BoardConfig, task: Task, number: int, evidence: Mapping[str, Proof]) -> tuple[str, ...]:
    guard = law.guards[number]
    proof = evidence.get(guard.name)
    if guard.when == "ui" and not task.flags & UI and proof is None:
        return ()
    if guard.when == "module":
        if task.module in board.modules and (proof is None or _passes(proof, guard)):
            return ()
        if not task.module and proof is None:
            return ()
    passed = bool(task.flags & PASSED << number) and (proof is None or _passes(proof, guard))
    found: list[str] = []
    if guard.ticket:
        if not _designed(board, law, task, passed):
            found.append(f"{guard.name} ticket")
    elif not passed and (proof is not None or not guard.items):
        found += _why(proof, guard)
    there = task.items.get(number, 0)
    found += [name for bit, name in enumerate(guard.items) if not there >> bit & 1 and name not in found]
    return tuple(found)


def _why(proof: Proof | None, guard: TransitionGuard) -> tuple[str, ...]:
    """What is wrong with a report, item by item."""
    if proof is None:
        return (f"{guard.name} report",)
    if proof.failing:
        return proof.failing
    return (f"{guard.name} verdict {proof.verdict}" if proof.verdict else f"{guard.name} report that passes",)


def _passes(proof: Proof, guard: TransitionGuard) -> bool:
    """A report that gives a verdict must give the right one; a bare yes is taken."""
    if not proof.passed:
        return False
    return not guard.verdict or not proof.verdict or proof.verdict == guard.verdict


def _there(guard: TransitionGuard, own: Proof | None, artifacts: Proof | None) -> int:
    """Which of a guard's items some evidence names, as a name or within a path. A bare yes names all of them, but not
    where it may speak of the ticket."""
    found = 0
    for proof in (own, artifacts):
        if proof is None:
            continue
        if proof.passed and not proof.items and (proof is artifacts or not guard.ticket):
            found |= (1 << len(guard.items)) - 1
        names = [name.lower().replace("_", "-").replace(" ", "-") for name in proof.items]
        for bit, item in enumerate(guard.items):
            if any(item in name for name in names):
                found |= 1 << bit
    return found


def _designed(board: Board, law: BoardConfig, task: Task, passed: bool) -> bool:
    """Whether the design ticket is done: the board knows it, or else the evidence says so."""
    if task.flags & DESIGNED:
        return True
    known = [board.tasks[key] for key in task.depends_on if key in board.tasks]
    done = [other for other in known if other.state >= 0 and law.done >> other.state & 1]
    design = [other for other in known if other.flags & DESIGN]
    if design:
        return any(other in done for other in design)
    return passed or any(not other.flags & PLAIN for other in done)
