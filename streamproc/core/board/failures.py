"""Failures of tasks: verdicts against them, errors of turns at them, and failures of the same class in a row."""

from __future__ import annotations

from typing import Final

from streamproc.core.board.change import BoardChange, Tag, board_of, find_task, note_failed
from streamproc.core.board.config import BoardConfig
from streamproc.core.board.holds import approve, recover
from streamproc.core.board.owners import note_verdict
from streamproc.core.board.state import HELD_ERROR, REJECTIONS_MAX, Task, shrink
from streamproc.core.run_state import RunState
from streamproc.model.wire import TaskVerdict

# Reporters of a failure, as bits.
TURN: Final = 1
VERDICT: Final = 2
MOVE: Final = 4
ALL: Final = 7

VALIDATOR_MAX: Final = 40  # characters kept of a validator's name
REASON_MAX: Final = 100  # and of its report


def apply_failure(run: RunState, task_id: str, error_class: str, config: BoardConfig, tag: Tag) -> BoardChange:
    """Apply the failure of a turn at a task, and return its effect."""
    change = BoardChange(board_of(run, config), config, tag)
    change.board.events += 1
    change.task = find_task(change, task_id)
    count_failure(run, change, change.task, error_class, TURN)
    run.evicted += shrink(change.board, config, tag(task_id))
    return change


def judge(run: RunState, change: BoardChange, task: Task, event: TaskVerdict) -> None:
    """Apply a verdict: an approval is a success, and a rejection a failure."""
    note_verdict(run, event, change.tag)
    if event.verdict == "APPROVED":
        change.board.failed = []
        task.failure = []
        if event.approved_by:
            approve(change, task)
        elif task.flags & HELD_ERROR:
            recover(task)
    elif event.verdict == "REJECTED":
        task.rejected += 1
        change.rejected = task.rejected
        task.rejections = [
            *task.rejections[1 - REJECTIONS_MAX :], [event.validator[:VALIDATOR_MAX], event.reason[:REASON_MAX]],
        ]  # fmt: skip
        note_failed(change, task)
        count_failure(run, change, task, event.failure_class, VERDICT)


def count_failure(run: RunState, change: BoardChange, task: Task, kind: str, reporter: int) -> None:
    """Count failures of the same class in a row. A turn that fails, the verdict about it and the move that follows
    report one failure; the next turn that fails, or a second report by the same, is the next attempt. Classes are
    compared without case: a validator and a runtime write them in their own way."""
    if not (kind := kind.strip()):
        return
    known, key = task.failure, change.tag(kind.casefold())
    if not known or known[0] != key or run.novelty.last_progress > known[2]:
        task.failure = [key, 1, run.turns, reporter]
    elif reporter == TURN or (known[3] or ALL) & reporter:
        task.failure = [key, known[1] + 1, run.turns, reporter]
    else:
        task.failure = [key, known[1], run.turns, known[3] | reporter]
        return
    change.failures = task.failure[1]
