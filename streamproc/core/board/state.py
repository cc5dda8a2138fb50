"""The memory of a run's board: small structs, states as numbers, a cap on all of it."""

from __future__ import annotations

from typing import Final

import msgspec

TASKS_MAX: Final = 32  # tasks on a board; a run works on a few at a time, and those that are done go first
BOARD_BYTES: Final = 1_024  # of all tasks together, encoded: a quarter of what a run may take
DEPENDENCIES_MAX: Final = 6  # of one task: a chain needs one each, and a design ticket is among the first
MODULES_MAX: Final = 8  # modules whose initialisation is known to have passed
ENTERED_MAX: Final = 16  # states of which is counted how often a task came into them
REJECTIONS_MAX: Final = 3  # reports kept of one task; the third escalates it
FAILED_MAX: Final = 8  # tasks that failed in a row

# What is known of a task, as bits of `flags`.
ASSUMED: Final = 1  # its state is the board's first, as nobody named another
UI: Final = 2
DESIGN: Final = 4  # it is a design ticket
PLAIN: Final = 8  # of a kind that is named, and no design ticket
DESIGNED: Final = 16  # its design ticket is done
HELD_CAUSE: Final = 32  # it was forced aside, and stays there until somebody names the root cause
HELD_ERROR: Final = 64  # the same, because of its failures and not of its swings
HELD_APPROVAL: Final = 128  # it was escalated, and waits for a person
HELD_TOLD: Final = 256  # somebody tried to go on, and was told
STALL_TOLD: Final = 512
PASSED: Final = 1_024  # and the bits above: which guards it has passed, in their order


class Task(msgspec.Struct, array_like=True):
    """A task. `since` is how many cycles were over when its state last changed; `back` the state before it was put
    aside; `foreign` the tag of a state that the board does not have; `wanted` the state into which a guard refused it;
    `entered` counts how often it came into a state, `tries` how often a guard refused it, `items` which items of a
    guard are there; `failure` is [class, times, turn, teller]."""

    id: str
    state: int = -1
    since: int = 0
    back: int = -1
    flags: int = 0
    module: int = 0
    phase: int = 0
    rejected: int = 0
    foreign: int = 0
    wanted: int = -1
    skipped: int = -1
    depends_on: list[int] = []
    entered: dict[int, int] = {}
    tries: dict[int, int] = {}
    items: dict[int, int] = {}
    rejections: list[list[str]] = []
    failure: list[int] = []


class Board(msgspec.Struct, array_like=True):
    """A run's board. Tasks are known by the tag of their id; `law` tells whether state numbers are still the same."""

    law: int
    tasks: dict[int, Task] = {}
    modules: list[int] = []
    cycles: int = 0
    done: int = 0
    zero: int = 0
    failed: list[int] = []
    events: int = 0


_encoder = msgspec.msgpack.Encoder()


def shrink(board: Board, settled: int, keep: int) -> int:
    """Forget tasks until the board is small enough: those in a `settled` state first, the oldest first, never the one
    with the tag `keep`. Returns how many went."""
    gone = 0
    while len(board.tasks) > TASKS_MAX or len(_encoder.encode(board)) > BOARD_BYTES:
        others = [tag for tag in board.tasks if tag != keep]
        if not others:
            task = board.tasks.get(keep)
            if task is not None:
                task.rejections, task.depends_on = task.rejections[-1:], []
            return gone + 1
        over = (tag for tag in others if (state := board.tasks[tag].state) >= 0 and settled >> state & 1)
        del board.tasks[next(over, others[0])]
        gone += 1
    return gone
