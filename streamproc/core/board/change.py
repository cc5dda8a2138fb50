"""The effect of one event on a run's board, as detectors read it."""

from __future__ import annotations

from collections.abc import Callable

from streamproc.core.board.config import UNKNOWN, BoardConfig
from streamproc.core.board.state import FAILED_MAX, PASSED, Board, Task
from streamproc.core.run_state import RunState

Tag = Callable[[str], int]


class BoardChange:
    """The effect of one event on a board. `task.state` is the state of the task afterwards."""

    __slots__ = (
        "attempts", "batch", "blocked", "board", "chained", "completed", "config", "cycled", "earlier", "failed",
        "failures", "guard", "missing", "overridden", "phase", "refused", "rejected", "source", "swings", "tag",
        "target", "task", "to",
    )  # fmt: skip

    def __init__(self, board: Board, config: BoardConfig, tag: Tag) -> None:
        self.board = board
        self.config = config
        self.tag = tag
        self.task: Task | None = None  # the task that the event is about
        self.source = UNKNOWN  # state of the task before the event
        self.target = UNKNOWN  # state that the event moves it to
        self.to = ""  # name of that state
        self.refused = ""  # code of the rule that refused the move
        self.guard = ""  # guard or evidence that the move lacks
        self.missing: tuple[str, ...] = ()  # what exactly is missing
        self.attempts = 0  # how often this move was refused
        self.swings = 0  # how often the task came back to this state
        self.rejected = 0  # verdicts against the task so far
        self.failures = 0  # failures of the same class in a row
        self.failed = 0  # tasks that failed one after the other
        self.overridden: list[tuple[str, str]] = []  # (code, what) of the rules that a person overrode
        self.batch = 0  # tasks given to an agent in this cycle
        self.earlier = 0  # those of them that earlier deliveries gave
        self.phase = ""  # their phase
        self.blocked = False  # whether the task is blocked since this event, or is blocked and depends on more tasks
        self.chained = 0  # of the latter: the length of its chain of blocked tasks before
        self.cycled = False  # whether a cycle of the board was completed
        self.completed: int | None = None  # tasks done in that cycle; None: not known


def find_task(change: BoardChange, task_id: str) -> Task:
    """Return the task with this id; its first event creates it."""
    board, key = change.board, change.tag(task_id)
    task = board.tasks.get(key)
    if task is None:
        task = board.tasks[key] = Task(task_id, since=board.cycles)
    return task


def note_failed(change: BoardChange, task: Task) -> None:
    """Count the tasks that failed one after the other; each task counts once."""
    failed, key = change.board.failed, change.tag(task.id)
    if key not in failed:
        change.board.failed = [*failed[1 - FAILED_MAX :], key]
        change.failed = len(change.board.failed)


def board_of(run: RunState, config: BoardConfig) -> Board:
    """Return the board of a run; its first event creates it. If policy has changed the board, task states are reset."""
    board: Board | None = run.board
    if board is None:
        board = run.cold.board = Board(config.tag)
        run.has_board = True
    elif board.config_tag != config.tag:  # another policy: its states have other numbers
        board.config_tag = config.tag
        for task in board.tasks.values():
            task.state = task.back = task.wanted = task.skipped = UNKNOWN
            task.foreign = task.phase = 0
            task.entered, task.items, task.tries = {}, {}, {}
            task.flags &= PASSED - 1
    return board
