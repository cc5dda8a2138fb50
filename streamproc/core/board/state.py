"""The state of a run's board: small structs, states as numbers, and a cap on the whole.

It is stored by position, like the state of the run (`core.run_state`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.board.config import UNKNOWN, BoardConfig

TASKS_MAX: Final = 32  # tasks on a board; a run works on a few at a time, and those are dropped last
BOARD_BYTES: Final = 1_536  # of the encoded board: 32 tasks with short ids, in three eighths of the state of a run
DEPENDENCIES_MAX: Final = 16  # of one task: the design ticket may be any of them
MODULES_MAX: Final = 8  # modules whose initialisation has passed
MODULE_CHARS: Final = 24  # of its name
LACKS_MAX: Final = 6  # items of a report that fail, kept for messages
LACKS_CHARS: Final = 32  # of their names
ENTERED_MAX: Final = 16  # states for which entries of a task are counted
REJECTIONS_MAX: Final = 3  # rejections kept of one task; the third escalates it
FAILED_MAX: Final = 8  # tasks that failed in a row

# Bits of `Task.flags`.
ASSUMED: Final = 1  # no event named its state: it is assumed to be in the first one
UI: Final = 2  # it changes a user interface
DESIGN: Final = 4  # it is a design ticket
PLAIN: Final = 8  # its kind is known, and it is not a design ticket
DESIGNED: Final = 16  # its design ticket is done
HELD_CAUSE: Final = 32  # parked because it swings between states, until an event names the root cause
HELD_ERROR: Final = 64  # parked because it fails again and again, until an event names the root cause
HELD_APPROVAL: Final = 128  # escalated, until a person approves
HELD: Final = HELD_CAUSE | HELD_ERROR | HELD_APPROVAL
HELD_REPORTED: Final = 256  # a move in spite of being held was reported
FREE: Final = 512  # stalled by a decision, or approved by a person: it may continue as from the state before
PASSED: Final = 1_024  # this and the bits above: guards that it has passed, in their order
WAIVED: Final = PASSED << 32  # this and the bits above: guards that it passed because a person approved that


class Assignee(msgspec.Struct, array_like=True):
    """An agent that tasks were given to."""

    name: str  # shortened
    turns: int = 0  # turns that its node had taken at its last delivery
    unnamed: int = 0  # tasks that it was given in this cycle by their number only


class Task(msgspec.Struct, array_like=True):
    """A task on the board. States are numbers of the board configuration; -1 means none."""

    id: str
    state: int = -1  # UNKNOWN and FOREIGN (`board.config`) are below 0
    since: int = 0  # cycles completed when the state last changed
    back: int = -1  # state before it was parked
    flags: int = 0  # bits, see above
    module: int = 0  # tag of its module; 0: none
    phase: int = 0  # number of its phase in the configuration, from 1; 0: none
    rejected: int = 0  # verdicts against it
    foreign: int = 0  # number of a state that the board does not have; 0: none
    wanted: int = -1  # target of its last move, refused by a guard
    skipped: int = -1  # target of its last move, refused for want of a transition
    depends_on: list[int] = []  # tags of task ids
    entered: dict[int, int] = {}  # by state: how often it entered it
    tries: dict[int, int] = {}  # by number of the guard: how often it refused the task
    items: dict[int, int] = {}  # by number of the guard: items that exist, as bits
    rejections: list[list[str]] = []  # [validator, reason] of the last verdicts against it
    failure: list[int] = []  # [tag of the class, times in a row, turn, reporters (`failures`)] of the last failure
    module_name: str = ""  # its beginning, for messages
    lacks: dict[int, list[str]] = {}  # by number of the guard: what its last report lacked, for messages


class Board(msgspec.Struct, array_like=True):
    """The board of a run."""

    config_tag: int  # tag of the configuration that its numbers belong to
    tasks: dict[int, Task] = {}  # by tag of the task id, oldest first
    modules: list[int] = []  # tags of modules whose initialisation has passed
    cycles: int = 0  # completed so far
    done: int = 0  # tasks done in the current cycle
    empty_cycles: int = 0  # cycles in a row in which no task was done
    failed: list[int] = []  # tags of the tasks that failed one after the other
    events: int = 0  # events of the board so far
    agents: list[Assignee] = []  # agents that own tasks
    owners: dict[int, int] = {}  # by tag of the task id, oldest first: owner and cycle of delivery (`owners`)
    claimed: list[int] = []  # tags of tasks that a cycle listed as completed, and that have not moved since
    ended: list[int] = []  # of the last cycle that had a name: its tag, and the events and turns so far


_encoder = msgspec.msgpack.Encoder()


def shrink(board: Board, config: BoardConfig, keep: int) -> int:
    """Drop tasks until the board is small enough, and return how many: finished ones, then, once the others have no
    texts for messages left, untouched ones, then those that are neither in progress nor parked; of several alike, the
    oldest. The task with the tag `keep` stays as it is."""
    gone = 0
    while len(board.tasks) > TASKS_MAX or len(_encoder.encode(board)) > BOARD_BYTES:
        others = [tag for tag in board.tasks if tag != keep]
        if not others:
            board.agents, board.owners, board.claimed = [], {}, []
            task = board.tasks.get(keep)
            if task is not None:
                task.rejections, task.depends_on = task.rejections[-1:], []
            return gone + 1
        dropped = min(others, key=lambda tag: _worth(board, config, tag))
        if len(board.tasks) <= TASKS_MAX and _worth(board, config, dropped) and _drop_texts(board, others):
            continue
        del board.tasks[dropped]
        board.owners.pop(dropped, None)
        gone += 1
    return gone


def _drop_texts(board: Board, tags: list[int]) -> bool:
    """Drop the texts that the oldest of these tasks keeps for messages; return False if none has any."""
    for tag in tags:
        task = board.tasks[tag]
        if task.rejections or task.lacks or task.module_name:
            task.rejections, task.lacks, task.module_name = [], {}, ""
            return True
    return False


def _worth(board: Board, config: BoardConfig, tag: int) -> int:
    """Return the place of a task in the order of eviction."""
    task = board.tasks[tag]
    state = 1 << task.state if task.state >= 0 else 0
    if config.done & state:
        return 0
    if task.flags & HELD or (config.progress | config.parked_states) & state:
        return 3
    moved = task.state not in (UNKNOWN, config.initial) or task.back >= 0 or sum(task.entered.values()) > 1
    evidence = task.flags >= PASSED or bool(task.items or task.lacks)
    against = task.skipped >= 0 or bool(task.tries or task.rejected or task.failure)
    return 2 if moved or evidence or against or tag in board.owners else 1
