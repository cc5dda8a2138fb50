"""What an event of the board does to the board, judged by its configuration: `apply_event` changes it.

The law refuses moves and puts tasks back; the detectors say so. What a detector decides about a task (blocked,
stalled, escalated) is done to it by `settle`, once it is told.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.board.change import BoardChange, Tag, board_of, find_task
from streamproc.core.board.config import FOREIGN, STATE_SKIP, UNKNOWN, BoardConfig, state_name
from streamproc.core.board.guards import learn, unmet
from streamproc.core.board.state import (
    ASSUMED,
    DEPENDENCIES_MAX,
    DESIGN,
    DESIGNED,
    ENTERED_MAX,
    FAILED_MAX,
    HELD_APPROVAL,
    HELD_CAUSE,
    HELD_ERROR,
    HELD_TOLD,
    PASSED,
    PLAIN,
    REJECTIONS_MAX,
    STALL_TOLD,
    UI,
    Task,
    shrink,
)
from streamproc.core.decision import Finding
from streamproc.core.run_state import RunState
from streamproc.model.wire import (
    BoardEvent,
    CycleCompleted,
    TaskCreated,
    TaskDelegated,
    TaskTransition,
    TaskVerdict,
    Turn,
)

TURN: Final = 1  # who told of a failure: a turn, a verdict, a transition
VERDICT: Final = 2
MOVE: Final = 3

VALIDATOR_MAX: Final = 40  # characters kept of a validator's name
REASON_MAX: Final = 100  # and of its report


def apply_event(run: RunState, event: BoardEvent, law: BoardConfig, tag: Tag) -> BoardChange:
    """Take in one event of the board."""
    step = BoardChange(board_of(run, law), law, tag)
    step.board.events += 1
    if isinstance(event, CycleCompleted):
        _cycle(step, event)
    elif isinstance(event, TaskDelegated):
        _delegated(step, event)
    elif event.task_id:
        task = step.task = find_task(step, event.task_id)
        if isinstance(event, TaskCreated):
            _created(step, task, event)
        learn(step.board, law, task, event.evidence)
        if isinstance(event, TaskTransition):
            _describe(step, task, event.module, event.ui_touching)
            _moved(run, step, task, event)
        elif isinstance(event, TaskVerdict):
            _judged(run, step, task, event)
    run.evicted += shrink(step.board, law.done, tag(event.task_id) if event.task_id else 0)
    return step


def apply_failure(run: RunState, turn: Turn, law: BoardConfig, tag: Tag) -> BoardChange:
    """A turn failed at a task, and said with what kind of failure."""
    step = BoardChange(board_of(run, law), law, tag)
    step.board.events += 1
    step.task = find_task(step, turn.task_id)
    assert turn.errors is not None
    _failure(run, step, step.task, turn.errors.error_class, TURN)
    run.evicted += shrink(step.board, law.done, tag(turn.task_id))
    return step


def settle(run: RunState, finding: Finding, law: BoardConfig, tag: Tag) -> None:
    """Do to a task what was decided about it: it is blocked, stalled or escalated now."""
    board, status, code = run.board, finding.task_status, finding.code
    task = board.tasks.get(tag(finding.task)) if board is not None else None
    if task is None or board is None:
        return
    forced = {"blocked": law.blocked_state, "stalled": law.stalled_state, "escalated": law.escalated_state}[status]
    if status == "stalled":
        task.flags |= STALL_TOLD
    if status != "stalled":
        held = HELD_APPROVAL if status == "escalated" else HELD_ERROR if code == "ERROR002" else HELD_CAUSE
        task.flags = task.flags & ~HELD_TOLD | held
    if forced not in (task.state, UNKNOWN):  # on a board without such a state it is held where it is
        if not law.aside >> max(task.state, 0) & 1:
            task.back = task.state
        task.state, task.since = forced, board.cycles
        task.flags &= ~ASSUMED


# Tasks come, are described, delegated and judged.


def _created(step: BoardChange, task: Task, event: TaskCreated) -> None:
    law = step.law
    if event.depends_on:
        task.depends_on = [step.tag(name) for name in event.depends_on[:DEPENDENCIES_MAX]]
    _describe(step, task, event.module, event.ui_touching)
    kind = f"{event.kind} {event.agent}".strip()
    if any(word in f"{kind} {task.id}".lower() for word in law.design_kinds):
        task.flags |= DESIGN
    elif kind:
        task.flags |= PLAIN
    if event.phase:
        task.phase = _phase(law, event.phase)
    if task.state == UNKNOWN:
        if event.state:
            _believe(step, task, law.find(event.state), event.state)
            step.blocked = task.state >= 0 and bool(law.blocked >> task.state & 1)
        else:
            task.state = law.initial
            task.flags |= ASSUMED


def _describe(step: BoardChange, task: Task, module: str, ui: bool | None) -> None:
    if module:
        task.module = step.tag(module)
    if ui is not None:
        task.flags = task.flags | UI if ui else task.flags & ~UI


def _phase(law: BoardConfig, phase: str) -> int:
    known = phase.strip().upper()
    return 1 + list(law.batch).index(known) if known in law.batch else 0


def _delegated(step: BoardChange, event: TaskDelegated) -> None:
    step.batch = event.count or len(event.tasks)
    step.phase = event.phase
    if not event.phase:
        known = {task.phase for name in event.tasks if (task := step.board.tasks.get(step.tag(name))) is not None}
        phase = known.pop() if len(known) == 1 else 0
        step.phase = list(step.law.batch)[phase - 1] if phase else ""


def _judged(run: RunState, step: BoardChange, task: Task, event: TaskVerdict) -> None:
    if event.verdict == "APPROVED":
        step.board.failed = []
        task.failure = []
        if event.approved_by:
            _release(task)
        elif task.flags & HELD_ERROR:
            _recover(task)
    elif event.verdict == "REJECTED":
        task.rejected += 1
        step.rejected = task.rejected
        task.rejections = [
            *task.rejections[1 - REJECTIONS_MAX :], [event.validator[:VALIDATOR_MAX], event.reason[:REASON_MAX]],
        ]  # fmt: skip
        _failed(step, task)
        _failure(run, step, task, event.failure_class, VERDICT)


def _failed(step: BoardChange, task: Task) -> None:
    """Tasks that failed one after the other; the same one twice is one."""
    failed, key = step.board.failed, step.tag(task.id)
    if key not in failed:
        step.board.failed = [*failed[1 - FAILED_MAX :], key]
        step.failed = len(step.board.failed)


def _failure(run: RunState, step: BoardChange, task: Task, kind: str, teller: int) -> None:
    """The same kind of failure in a row. A verdict and the move that follows it tell of one failure."""
    if not kind:
        return
    known, key = task.failure, step.tag(kind)
    if not known or known[0] != key or run.progress > known[2]:
        task.failure = [key, 1, run.turns, teller]
    elif known[3] in (0, teller):
        task.failure = [key, known[1] + 1, run.turns, teller]
    else:
        task.failure = [key, known[1], run.turns, 0]
        return
    step.failures = task.failure[1]


# Tasks move.


def _moved(run: RunState, step: BoardChange, task: Task, event: TaskTransition) -> None:
    law = step.law
    claimed, target = law.find(event.from_), law.find(event.to)
    if claimed != UNKNOWN and (task.state == UNKNOWN or task.flags & ASSUMED):
        _believe(step, task, claimed, event.from_)
    task.flags &= ~ASSUMED
    if task.flags & HELD_ERROR and task.failure and run.progress > task.failure[2]:
        _recover(task)
    source = step.source = task.state
    step.target = target
    step.to = state_name(event.to)
    if target == UNKNOWN or (target == source and (target >= 0 or _foreign(step, event.to) == task.foreign)):
        _failure(run, step, task, event.failure_class, MOVE)
        return
    if not law.judged(source):
        _enter(step, task, target)
    elif task.flags & (HELD_CAUSE | HELD_ERROR | HELD_APPROVAL):
        _leave(step, task, event)
    else:
        _judge(step, task, event, claimed)
    if not step.refused:
        _failure(run, step, task, event.failure_class, MOVE)
    elif target >= 0:
        step.board.done += law.done >> target & 1  # whoever says that it is done may be wrong, and does not stand still


def _believe(step: BoardChange, task: Task, state: int, name: str) -> None:
    """What is told first of a task is believed: also that it has what the ways into its state ask for."""
    task.state = state
    if state == FOREIGN:
        task.foreign = _foreign(step, name)
        task.entered = {task.foreign: 1}
    elif state >= 0:
        task.entered = {state: 1}
        _trust(step.law, task)


def _trust(law: BoardConfig, task: Task) -> None:
    for number, guard in enumerate(law.guards):
        if guard.targets >> task.state & 1:
            task.flags |= PASSED << number | DESIGNED * guard.ticket
            task.items[number] = (1 << len(guard.items)) - 1


def _judge(step: BoardChange, task: Task, event: TaskTransition, claimed: int) -> None:
    """Whether the board has this way, and whether what it asks for is there."""
    law, source, target = step.law, task.state, step.target
    origin, wanted = source, UNKNOWN
    if not _leads(law, task, source, target):
        # A guard refused the move before this one, and the team went on as if it had not: that asks the guard again.
        origin = claimed if claimed >= 0 else task.wanted
        wanted = task.wanted
        if wanted < 0 or origin in (UNKNOWN, source) or not law.allows(origin, target):
            if STATE_SKIP in law.enforced:
                step.refused = STATE_SKIP
                _skip(step, task)
                return
            wanted = UNKNOWN
    refusal = unmet(step.board, law, task, event, (origin, target, wanted))
    if refusal is None:
        _enter(step, task, target)
        return
    step.refused, step.guard, step.missing, number, back = refusal
    if number >= 0:
        step.attempts = task.tries[number] = task.tries.get(number, 0) + 1
        task.wanted = target
    else:
        _skip(step, task)
    if back >= 0:
        task.state, task.since = back, step.board.cycles
        task.flags &= ~_asked_again(law, back)


def _skip(step: BoardChange, task: Task) -> None:
    """The same skip, tried again from the same state, is not told again."""
    step.attempts = 2 if task.skipped == step.target else 1
    task.skipped = step.target


def _leads(law: BoardConfig, task: Task, source: int, target: int) -> bool:
    """Whether there is a way; from aside, a task may go back to where it was."""
    return law.allows(source, target) or (bool(law.aside >> source & 1) and 0 <= target == task.back)


def _leave(step: BoardChange, task: Task, event: TaskTransition) -> None:
    """A task that was put aside for a reason goes on with the root cause, or with a person's approval."""
    law, target = step.law, step.target
    cause = (event.evidence or {}).get("root_cause")
    escalated = bool(task.flags & HELD_APPROVAL)
    if event.approved_by or (not escalated and cause is not None and cause.passed):
        _release(task)
        if event.approved_by or target < 0 or _leads(law, task, task.state, target):
            _enter(step, task, target)
        else:
            step.refused = STATE_SKIP
            _skip(step, task)
    elif target >= 0 and law.aside >> target & 1:
        _enter(step, task, target)
    else:
        step.refused = "TASK008" if escalated else "ERROR002" if task.flags & HELD_ERROR else "TASK001"
        step.attempts = 2 if task.flags & HELD_TOLD else 1
        task.flags |= HELD_TOLD


def _release(task: Task) -> None:
    """Somebody took it in hand: what counted against the task counts no more."""
    task.flags &= ~(HELD_CAUSE | HELD_ERROR | HELD_APPROVAL | HELD_TOLD)
    task.rejected, task.rejections, task.entered, task.failure = 0, [], {}, []


def _recover(task: Task) -> None:
    """What failed again and again fails no more: the task is where it was before."""
    _release(task)
    if task.back >= 0:
        task.state = task.back


def _enter(step: BoardChange, task: Task, target: int) -> None:
    """The task is in another state now."""
    board, law, source = step.board, step.law, task.state
    task.since, task.skipped, task.wanted = board.cycles, UNKNOWN, UNKNOWN
    task.flags &= ~STALL_TOLD
    task.state = target if target >= 0 else FOREIGN
    task.foreign = 0
    if target < 0:
        task.foreign = _foreign(step, step.to)
        _count(step, task, task.foreign)
        return
    if source < 0:
        _trust(law, task)
    if law.aside >> target & 1 and source >= 0 and not law.aside >> source & 1:
        task.back = source
    if source >= 0 and not task.entered:
        task.entered[source] = 1
    _count(step, task, target)
    task.flags &= ~_asked_again(law, target)
    step.blocked = bool(law.blocked >> target & 1)
    if law.failed >> target & 1 and not (step.blocked and _waits(step, task)):
        _failed(step, task)
    if law.done >> target & 1:
        _completed(step, task)


def _foreign(step: BoardChange, name: str) -> int:
    """A number for a state that this board does not have: a task may swing all the same."""
    return -3 - (step.tag(state_name(name)) & 0xFFFF)


def _count(step: BoardChange, task: Task, state: int) -> None:
    task.entered[state] = task.entered.get(state, 0) + 1
    step.swings = task.entered[state] - 1
    if len(task.entered) > ENTERED_MAX:
        del task.entered[next(iter(task.entered))]


def _waits(step: BoardChange, task: Task) -> bool:
    """Whether a blocked task only waits for another that is blocked: then it did not fail itself."""
    known = (step.board.tasks.get(key) for key in task.depends_on)
    return any(other is not None and other.state >= 0 and step.law.blocked >> other.state & 1 for other in known)


def _asked_again(law: BoardConfig, state: int) -> int:
    """The guards (as flags) that ask for new evidence when a task was sent back for another round of work."""
    again = (number for number, guard in enumerate(law.guards) if guard.back == state and not guard.when)
    return sum(PASSED << number for number in again)


def _completed(step: BoardChange, task: Task) -> None:
    board = step.board
    board.done += 1
    board.failed = []
    task.rejected, task.rejections, task.entered, task.failure = 0, [], {}, []
    if task.flags & DESIGN:
        key = step.tag(task.id)
        for other in board.tasks.values():
            if key in other.depends_on:
                other.flags |= DESIGNED


# Cycles.


def _cycle(step: BoardChange, event: CycleCompleted) -> None:
    board, law = step.board, step.law
    if event.phase and law.cycle_phases and not any(word in event.phase.upper() for word in law.cycle_phases):
        return  # a cycle of another kind, such as one of SPEC
    board.cycles += 1
    step.cycled = True
    listed = 0
    for name, state in event.moved:
        task, target = find_task(step, name), law.find(state)
        listed += target >= 0 and law.done >> target & 1
        task.since = board.cycles
        if task.state < 0 and target >= 0:
            task.state = target
            task.flags &= ~ASSUMED
    open_tasks = [task for task in board.tasks.values() if task.state < 0 or not law.done >> task.state & 1]
    if event.completed is not None or event.moved or board.tasks:
        step.completed = max(event.completed or 0, listed, board.done)
    if step.completed or (board.tasks and not open_tasks):
        board.zero = 0
    elif step.completed == 0:
        board.zero += 1
    board.done = 0
