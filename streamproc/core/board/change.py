"""What one event did to a run's board, for the detectors."""

from __future__ import annotations

from collections.abc import Callable

from streamproc.core.board.config import UNKNOWN, BoardConfig
from streamproc.core.board.state import PASSED, Board, Task
from streamproc.core.run_state import RunState

Tag = Callable[[str], int]


class BoardChange:
    """What one event did. `refused` is the code of the rule that refused a move, `source` where the task was before,
    `target` where it should go, and `task.state` where it is now."""

    __slots__ = (
        "attempts", "batch", "blocked", "board", "completed", "cycled", "failed", "failures", "guard", "law",
        "missing", "phase", "refused", "rejected", "source", "swings", "tag", "target", "task", "to",
    )  # fmt: skip

    def __init__(self, board: Board, law: BoardConfig, tag: Tag) -> None:
        self.board = board
        self.law = law
        self.tag = tag
        self.task: Task | None = None
        self.source = self.target = UNKNOWN
        self.refused = self.guard = self.phase = self.to = ""
        self.missing: tuple[str, ...] = ()
        self.attempts = self.swings = self.rejected = self.failures = self.failed = self.batch = 0
        self.blocked = self.cycled = False
        self.completed: int | None = None


def find_task(step: BoardChange, task_id: str) -> Task:
    """The task of this id, which becomes known with its first event."""
    board, key = step.board, step.tag(task_id)
    task = board.tasks.get(key)
    if task is None:
        task = board.tasks[key] = Task(task_id, since=board.cycles)
    return task


def board_of(run: RunState, law: BoardConfig) -> Board:
    """The board of a run, which begins with its first event."""
    board = run.board
    if board is None:
        board = run.board = Board(law.tag)
    elif board.law != law.tag:  # another policy: its states have other numbers
        board.law = law.tag
        for task in board.tasks.values():
            task.state = task.back = task.wanted = task.skipped = UNKNOWN
            task.foreign = task.phase = 0
            task.entered, task.items, task.tries = {}, {}, {}
            task.flags &= PASSED - 1
    return board
