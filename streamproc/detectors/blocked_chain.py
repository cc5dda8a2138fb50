"""TASK002 blocked_chain: the tasks of one dependency chain are all blocked.

Sees: three or more blocked tasks, each of which depends on the one before. The finding names the root, the task that
all others wait for, and raises it to P0. A chain may be completed by a task that an event or a decision blocks, or by a
dependency that is published later. If it is still blocked more than one cycle later, a second finding asks a person.

Why: work on any of the other tasks is wasted until the root moves.

False alarms: independent blocked tasks, or a pair, do not form a chain. Dependencies that were never published are not
seen.

Tuning: `warn` is the length of the chain. `cycles` is how many more cycles a chain may stay blocked before a person is
asked.

Reference: tickets requirement, "3+ tasks in a dependency chain are all blocked"; "if blocked > 1 full cycle".
"""

from __future__ import annotations

from streamproc.core.board.chains import chain_through, chains
from streamproc.core.board.change import BoardChange
from streamproc.detectors.base import Example, Finding, RawTurn, View, cycles, moved
from streamproc.detectors.board_detector import BoardDetector


class BlockedChain(BoardDetector):
    code, name = "TASK002", "blocked_chain"
    evidence = "count", "root", "chain", "priority"

    class Limits:
        """Blocked tasks in one dependency chain, and cycles."""

        warn: int = 3  # a pair is just a task that waits for another
        cycles: int = 1  # the coordinator gets one cycle to unblock the root

    def check(self, view: View, limits: Limits) -> Finding | tuple[Finding, ...] | None:
        step = view.board_change
        if step is None or limits.warn <= 0:
            return None
        if step.cycled:
            return self._still_blocked(view, step, limits)
        if not step.blocked or step.task is None:
            return None
        chain, without = chain_through(step.board, step.config, step.tag(step.task.id))
        if not (step.chained or without) < limits.warn <= len(chain):
            return None
        names = [step.board.tasks[key].id for key in chain]
        message = f"{len(names)} tasks of one dependency chain are blocked; the root, {names[0]}, is now P0."
        return self._finding(view, names, message, "loop.warning", "warn", 0)

    def _still_blocked(self, view: View, step: BoardChange, limits: Limits) -> tuple[Finding, ...]:
        found: list[Finding] = []
        for chain in chains(step.board, step.config):
            tasks = [step.board.tasks[key] for key in chain]
            if len(tasks) < limits.warn:
                continue
            since = sorted(task.since for task in tasks)[limits.warn - 1]
            if step.board.cycles - since == limits.cycles + 1:
                names = [task.id for task in tasks]
                message = f"{names[0]} still blocks a chain of {len(names)} tasks; a person must decide."
                found.append(self._finding(view, names, message, "notification", "ask_human", len(found)))
        return tuple(found)

    def _finding(self, view: View, names: list[str], message: str, kind: str, action: str, number: int) -> Finding:
        return self.task_finding(
            view, message, number=number, task=names[0], type=kind, action=action,
            count=len(names), root=names[0], chain=names, priority="P0",
        )  # fmt: skip


DETECTOR = BlockedChain()


def _chain(length: int) -> list[RawTurn]:
    return [
        {"type": "task.created", "task_id": f"T{n}", "depends_on": [f"T{n - 1}"] if n else []} for n in range(length)
    ]


def _blocked(*tasks: str) -> list[RawTurn]:
    return [move for task in tasks for move in moved(task, "IMPLEMENTING", "BLOCKED")]


HEALTHY = [
    Example("a blocked pair", [*_chain(4), *_blocked("T0", "T1")]),
    Example("three independent tasks are blocked", _blocked("T0", "T1", "T2")),
    Example("the chain is broken in the middle", [*_chain(5), *_blocked("T0", "T1", "T3", "T4")]),
]
STUCK = [
    Example("a chain of three", [*_chain(3), *_blocked("T2", "T1", "T0")], "warn", 0),
    Example(
        "the middle of the chain is blocked last", [*_chain(5), *_blocked("T0", "T1", "T3", "T4", "T2")], "warn", 0
    ),
    Example("a chain that stays blocked for several cycles", [
        *_chain(3), *_blocked("T0", "T1", "T2"), *cycles(1, 1, 1),
    ], "warn", 0),
]  # fmt: skip
