"""Guards of transitions: the evidence that a move requires, from earlier events or the event itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from streamproc.core.board.config import STATE_SKIP, UNKNOWN, BoardConfig, TransitionGuard
from streamproc.core.board.state import (
    DESIGN,
    DESIGNED,
    LACKS_CHARS,
    LACKS_MAX,
    MODULE_CHARS,
    MODULES_MAX,
    PASSED,
    PLAIN,
    UI,
    WAIVED,
    Board,
    Task,
)
from streamproc.model.wire import Proof, TaskTransition

ARTIFACTS = "artifacts"
NOT_GUARDS = frozenset({ARTIFACTS, "root_cause"})  # evidence that does not belong to a transition


class Refusal(NamedTuple):
    """The refusal of a move."""

    code: str  # detector that reports it
    guard: str  # guard or evidence that is missing
    missing: tuple[str, ...]  # what exactly is missing
    number: int = -1  # of the guard; -1: none
    back: int = -1  # state to which the task returns; -1: it stays


def learn(board: Board, config: BoardConfig, task: Task, evidence: Mapping[str, Proof] | None) -> None:
    """Record the evidence of an event. A passed report holds until the task is sent back."""
    if not evidence:
        return
    for number, guard in enumerate(config.guards):
        proof = _report(evidence, guard, task)
        if proof is not None:
            if _passes(proof, guard):
                task.flags = task.flags & ~(WAIVED << number) | PASSED << number
                task.lacks.pop(number, None)
                if guard.when == "module" and task.module and task.module not in board.modules:
                    board.modules = [*board.modules[1 - MODULES_MAX :], task.module]
            elif _denies(proof, guard):
                task.flags &= ~(PASSED << number)
                if not guard.ticket:
                    task.lacks[number] = [name[:LACKS_CHARS] for name in _why(proof, guard, None)[:LACKS_MAX]]
        if guard.items:
            task.items[number] = task.items.get(number, 0) | _named_items(guard, proof, evidence.get(ARTIFACTS))


def unmet(
    board: Board,
    config: BoardConfig,
    task: Task,
    event: TaskTransition,
    move: tuple[int, int, int],
    overridden: list[tuple[str, str]],
) -> Refusal | None:
    """Return why a move is refused, or None. `move` is (source, target, target of an earlier refused move or -1). A
    source below 0 is none of the board's, or not known; so is the one of a task that was parked before it was known.
    Guards that a person's approval replaces are added to `overridden`, as (code, guard)."""
    source, target, wanted = move
    before = UNKNOWN if source >= 0 and config.parked_states >> source & 1 and task.back < 0 else source
    evidence = event.evidence or {}
    opened: list[int] = []
    closed = next(reversed(task.tries), UNKNOWN) if wanted >= 0 else UNKNOWN  # the guard that refused that move
    behind = config.guards[closed].targets if 0 <= closed < len(config.guards) else -1
    for number in sorted(range(len(config.guards)), key=lambda number: number != closed):
        guard = config.guards[number]
        # However far the team goes on, the gate that refused it is asked first, and those at the same place.
        retried = wanted >= 0 and (guard.targets >> wanted & 1 or guard.targets == behind)
        asked = retried or config.asks(guard, before, target)
        asked = asked or _goes_on_denied(config, task, guard, (before, target), evidence)
        if guard.code not in config.enforced or not asked:
            continue
        missing = _missing(board, config, task, number, evidence)
        if missing and guard.override and event.approved_by:
            opened.append(number)
        elif missing:
            return Refusal(guard.code, guard.name, missing, number, guard.back)
    if STATE_SKIP in config.enforced and source >= 0 and config.ahead(source, target):
        named = NOT_GUARDS | {guard.name for guard in config.guards}
        for name, proof in evidence.items():
            if not proof.passed and name not in named:
                return Refusal(STATE_SKIP, name, proof.failing or (name,))
    for number in opened:
        _open(config, task, number, overridden)
    return None


def open_gates(board: Board, config: BoardConfig, task: Task, overridden: list[tuple[str, str]]) -> None:
    """Open the guards that a person may override, before the move. One that does not apply to the task so far opens as
    well, and replaces nothing yet: the task may not be described before it is approved."""
    for number, guard in enumerate(config.guards):
        if guard.override and guard.code in config.enforced:
            told = task.state == UNKNOWN or _missing(board, config, task, number, {})
            _open(config, task, number, overridden if told else [])


def close_gates(config: BoardConfig, task: Task) -> None:
    """Close the guards that an approval has opened: it was withdrawn."""
    for number, guard in enumerate(config.guards):
        if task.flags & WAIVED << number:
            task.flags &= ~((PASSED | WAIVED) << number | DESIGNED * guard.ticket)
            task.items.pop(number, None)


def pass_verdicts(config: BoardConfig, task: Task) -> None:
    """Pass the guards that require a verdict: a person has given it. A task that was sent back off the path continues
    from the first state that such a guard protects."""
    for number, guard in enumerate(config.guards):
        if guard.verdict:
            task.flags |= PASSED << number
            if task.back not in config.path:
                task.back = next((state for state in config.path if guard.sources >> state & 1), task.back)


def _open(config: BoardConfig, task: Task, number: int, overridden: list[tuple[str, str]]) -> None:
    guard = config.guards[number]
    if not task.flags & PASSED << number:  # what the evidence has passed does not depend on the approval
        task.flags |= WAIVED << number
    task.flags |= PASSED << number | DESIGNED * guard.ticket
    task.items[number] = (1 << len(guard.items)) - 1
    overridden.append((guard.code, guard.name))


def _missing(
    board: Board, config: BoardConfig, task: Task, number: int, evidence: Mapping[str, Proof]
) -> tuple[str, ...]:
    guard = config.guards[number]
    proof = _report(evidence, guard, task)
    if guard.when == "ui" and not task.flags & UI:
        return ()
    if guard.when == "module":
        if task.module in board.modules and (proof is None or _passes(proof, guard)):
            return ()
        if not task.module and proof is None:
            return ()
    passed = bool(task.flags & PASSED << number) and (proof is None or not _denies(proof, guard))
    found: list[str] = []
    if guard.ticket:
        if not _designed(board, config, task, passed):
            found.append(f"{guard.name} ticket")
    elif not passed and (proof is not None or not guard.items):
        sent = evidence.get(guard.name)
        found += task.lacks.get(number, ()) if sent is None else ()
        found = found or list(_why(proof, guard, sent))
    existing = task.items.get(number, 0)
    found += [name for bit, name in enumerate(guard.items) if not existing >> bit & 1 and name not in found]
    return tuple(found)


def _goes_on_denied(
    config: BoardConfig, task: Task, guard: TransitionGuard, move: tuple[int, int], evidence: Mapping[str, Proof]
) -> bool:
    """Whether a move goes forward behind a guard, and carries a report that the guard does not accept."""
    proof, (source, target) = _report(evidence, guard, task), move
    denied = proof is not None and _denies(proof, guard)
    return denied and config.ahead(source, target) and config.is_behind(target, guard)


def _report(evidence: Mapping[str, Proof], guard: TransitionGuard, task: Task) -> Proof | None:
    """Return the report for a guard, unless it says that it is of another task or of another module."""
    proof = evidence.get(guard.name)
    if proof is None or not proof.subject:
        return proof
    of_module = guard.name == "init"
    subject = _words(proof.subject[:MODULE_CHARS] if of_module else proof.subject)
    own = _words(task.module_name if of_module else task.id)
    return proof if not own or subject <= own or own <= subject else None


def _words(name: str) -> set[str]:
    """Return the words of a name: `T1-rework` and `src/billing` are of `T1` and of `billing`."""
    return set(re.findall(r"[^\W_]+", name.lower()))


def _why(proof: Proof | None, guard: TransitionGuard, sent: Proof | None) -> tuple[str, ...]:
    """Return what is wrong with a report, item by item. `sent` may be of another task."""
    if proof is None:
        return (f"{guard.name} report" + (f" (not of {sent.subject})" if sent else ""),)
    if proof.failing:
        return proof.failing
    if proof.passed or proof.verdict:
        return (f"{guard.name} verdict {proof.verdict}".rstrip(),)
    return (f"{guard.name} report that passes",)


def _passes(proof: Proof, guard: TransitionGuard) -> bool:
    """Whether a report passes. If the guard requires a verdict, a report without one does not. A list of artifacts says
    nothing about the ticket that they are of."""
    if guard.ticket and proof.items and not proof.verdict:
        return False
    return proof.passed and (not guard.verdict or proof.verdict == guard.verdict)


def _denies(proof: Proof, guard: TransitionGuard) -> bool:
    """Whether a report fails, or gives another verdict than the guard requires. One without a verdict neither passes
    nor withdraws an earlier one."""
    return not proof.passed or bool(guard.verdict and proof.verdict and proof.verdict != guard.verdict)


def _named_items(guard: TransitionGuard, report: Proof | None, artifacts: Proof | None) -> int:
    """Return which of a guard's items the evidence names, as names or within paths. A passed report without items
    stands for all of them, unless the guard needs a ticket and the report may mean that."""
    found = 0
    for proof in (report, artifacts):
        if proof is None:
            continue
        if proof.passed and not proof.items and (proof is artifacts or not guard.ticket):
            found |= (1 << len(guard.items)) - 1
        names = [name.lower().replace("_", "-").replace(" ", "-") for name in proof.items]
        for bit, item in enumerate(guard.items):
            if any(item in name for name in names):
                found |= 1 << bit
    return found


def _designed(board: Board, config: BoardConfig, task: Task, passed: bool) -> bool:
    """Whether the design ticket is done: according to the board, else according to the evidence."""
    if task.flags & DESIGNED:
        return True
    known = [board.tasks[key] for key in task.depends_on if key in board.tasks]
    done = [other for other in known if other.state >= 0 and config.completed >> other.state & 1]
    design = [other for other in known if other.flags & DESIGN]
    if design:
        return any(other in done for other in design)
    return passed or any(not other.flags & PLAIN for other in done)
