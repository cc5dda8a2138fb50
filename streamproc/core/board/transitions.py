"""Events applied to a board: `apply_event` checks them against the configuration and changes the board.

The configuration refuses moves and sends tasks back; detectors report it. When a detector decides on a task (blocked,
stalled, escalated), `holds.settle` applies the decision once it is reported.
"""

from __future__ import annotations

import msgspec

from streamproc.core.board.chains import chain_through
from streamproc.core.board.change import BoardChange, Tag, board_of, find_task, note_failed
from streamproc.core.board.config import FOREIGN, STATE_SKIP, UNKNOWN, BoardConfig, state_name
from streamproc.core.board.cycles import end_cycle
from streamproc.core.board.ends import resume_tasks
from streamproc.core.board.failures import MOVE, count_failure, judge
from streamproc.core.board.guards import learn, open_gates, unmet
from streamproc.core.board.holds import approve, decide, holder, recover, release
from streamproc.core.board.owners import OWNERS_MAX, approves_own, deliver, note_worker
from streamproc.core.board.routes import note_skip, origin_of
from streamproc.core.board.state import (
    ASSUMED,
    DEPENDENCIES_MAX,
    DESIGN,
    DESIGNED,
    ENTERED_MAX,
    FREE,
    HELD,
    HELD_APPROVAL,
    HELD_ERROR,
    HELD_REPORTED,
    MODULE_CHARS,
    PASSED,
    PLAIN,
    UI,
    Task,
    shrink,
)
from streamproc.core.run_state import RunState
from streamproc.model.wire import (
    BoardEvent,
    CycleCompleted,
    DecisionRecorded,
    TaskCreated,
    TaskDelegated,
    TaskTransition,
    TaskVerdict,
)


def apply_event(run: RunState, event: BoardEvent, config: BoardConfig, tag: Tag) -> BoardChange:
    """Apply an event of the board, and return its effect."""
    change = BoardChange(board_of(run, config), config, tag)
    change.board.events += 1
    if event.task_id and approves_own(change.board, event, tag(event.task_id)):
        event = msgspec.structs.replace(event, approved_by="")
    if isinstance(event, CycleCompleted):
        end_cycle(run, change, event)
    elif isinstance(event, TaskDelegated):
        _delegated(run, change, event)
    elif isinstance(event, DecisionRecorded):
        decide(change, event)
    elif event.task_id:
        task = change.task = find_task(change, event.task_id)
        if isinstance(event, TaskCreated):
            _created(change, task, event)
        elif isinstance(event, TaskTransition):
            _describe(change, task, event.module, event.ui_touching)
        learn(change.board, config, task, event.evidence)
        if isinstance(event, TaskTransition):
            _moved(run, change, task, event)
        if isinstance(event, TaskVerdict):
            judge(run, change, task, event)
        elif event.approved_by and not change.refused:
            open_gates(change.board, config, task, change.overridden)
    resume_tasks(run, change, event)
    run.evicted += shrink(change.board, config, tag(event.task_id) if event.task_id else 0)
    return change


# Creation, delegation.


def _created(change: BoardChange, task: Task, event: TaskCreated) -> None:
    config = change.config
    if event.depends_on:
        _depend(change, task, [change.tag(name) for name in event.depends_on[:DEPENDENCIES_MAX]])
    _describe(change, task, event.module, event.ui_touching)
    kind = f"{event.kind} {event.agent}".strip()
    if any(word in f"{kind} {task.id}".lower() for word in config.design_kinds):
        task.flags |= DESIGN
    elif kind:
        task.flags |= PLAIN
    if event.phase:
        task.phase = _phase(config, event.phase)
    if event.agent:
        note_worker(change, event, change.tag(task.id))
    if task.state == UNKNOWN:
        if event.state:
            _trust_state(change, task, config.find(event.state), event.state)
            change.blocked = task.state >= 0 and bool(config.blocked >> task.state & 1)
        else:
            task.state, task.flags = config.initial, task.flags | ASSUMED


def _depend(change: BoardChange, task: Task, needs: list[int]) -> None:
    """Set what a task depends on. What a blocked task turns out to wait for may complete a chain."""
    if task.state >= 0 and change.config.blocked >> task.state & 1 and not set(needs) <= set(task.depends_on):
        change.blocked = True
        change.chained = len(chain_through(change.board, change.config, change.tag(task.id))[0])
    task.depends_on = needs


def _describe(change: BoardChange, task: Task, module: str, ui: bool | None) -> None:
    if module:
        task.module, task.module_name = change.tag(module), module[:MODULE_CHARS]
    if ui is not None:
        task.flags = task.flags | UI if ui else task.flags & ~UI


def _phase(config: BoardConfig, phase: str) -> int:
    known = phase.strip().upper()
    return 1 + list(config.batch).index(known) if known in config.batch else 0


def _delegated(run: RunState, change: BoardChange, event: TaskDelegated) -> None:
    change.phase = event.phase
    if not event.phase:
        known = {task.phase for name in event.tasks if (task := change.board.tasks.get(change.tag(name))) is not None}
        phase, phases = known.pop() if len(known) == 1 else 0, list(change.config.batch)
        change.phase = phases[phase - 1] if 0 < phase <= len(phases) else ""  # a state may be damaged
    if deliver(run, change, event) and change.config.tasks_of_turns:
        for name in event.tasks[:OWNERS_MAX]:
            find_task(change, name)


# Moves.


def _moved(run: RunState, change: BoardChange, task: Task, event: TaskTransition) -> None:
    config = change.config
    claimed, target = config.find(event.from_), config.find(event.to)
    if claimed != UNKNOWN and (task.state == UNKNOWN or task.flags & ASSUMED):
        _trust_state(change, task, claimed, event.from_)
    task.flags &= ~ASSUMED
    if task.flags & FREE and task.back < 0 <= claimed != task.state:
        task.back = claimed  # it was stalled before the board knew its state
    if task.flags & HELD_ERROR and task.failure and run.novelty.last_progress > task.failure[2]:
        recover(task)
    source = change.source = task.state
    change.target = target
    change.to = state_name(event.to)
    if target == UNKNOWN or (target == source and (target >= 0 or _foreign(change, event.to) == task.foreign)):
        if target >= 0 and task.skipped in task.entered:  # it was said to go back, which was refused, and to return
            change.source, task.skipped = task.skipped, UNKNOWN
            _count(change, task, target)
        count_failure(run, change, task, event.failure_class, MOVE)
        return
    if source < 0:  # any move is believed, but a guard of the state itself is asked
        _ask(change, task, event, (source, target, UNKNOWN))
    elif task.flags & HELD:
        _leave(change, task, event, claimed)
    else:
        _judge(change, task, event, claimed)
    if not change.refused:
        count_failure(run, change, task, event.failure_class, MOVE)
        if task.state >= 0 and config.progress >> task.state & 1:
            note_worker(change, event, change.tag(task.id))


def _trust_state(change: BoardChange, task: Task, state: int, name: str) -> None:
    """Accept the first reported state of a task, and that it has passed the guards before that state."""
    task.state, task.since = state, change.board.cycles
    if state == FOREIGN:
        task.foreign = _foreign(change, name)
        task.entered = {task.foreign: 1}
    elif state >= 0:
        task.entered = {state: 1}
        _trust_guards(change.config, task)


def _trust_guards(config: BoardConfig, task: Task) -> None:
    for number, guard in enumerate(config.guards):
        if guard.targets >> task.state & 1:
            task.flags |= PASSED << number | DESIGNED * guard.ticket
            task.items[number] = (1 << len(guard.items)) - 1


def _judge(change: BoardChange, task: Task, event: TaskTransition, claimed: int) -> None:
    """Check a move against transitions and guards, and apply or refuse it."""
    config, source, target = change.config, task.state, change.target
    origin, wanted = origin_of(config, task, target), UNKNOWN
    if origin is None:
        # A guard refused an earlier move, and the team continued regardless: ask that guard again.
        origin = claimed if claimed >= 0 else task.wanted
        wanted = task.wanted
        if claimed < 0 and target == wanted >= 0:
            origin = source  # the same move again, from where the guard sent the task back
        elif wanted < 0 or origin in (UNKNOWN, source) or not config.allows(origin, target):
            if STATE_SKIP in config.enforced:
                change.refused = STATE_SKIP
                _skip(change, task)
                note_skip(config, task, target)
                return
            origin, wanted = origin if origin >= 0 else source, UNKNOWN
    _ask(change, task, event, (origin, target, wanted))


def _ask(change: BoardChange, task: Task, event: TaskTransition, move: tuple[int, int, int]) -> None:
    """Apply a move, or refuse it if a guard is not met (`guards.unmet`). No guard protects a state that the board does
    not know."""
    config, target = change.config, change.target
    refusal = unmet(change.board, config, task, event, move, change.overridden) if target >= 0 else None
    if refusal is None:
        _enter(change, task, target)
        return
    change.refused, change.guard, change.missing, number, back = refusal
    if number >= 0:
        change.attempts = task.tries[number] = task.tries.pop(number, 0) + 1  # the last key refused last
        task.wanted = target
    else:
        _skip(change, task)
    if back >= 0:
        task.state, task.since = back, change.board.cycles
        _reset_guards(config, task, back)


def _skip(change: BoardChange, task: Task) -> None:
    """Count a skip; the same one from the same state is reported once."""
    change.attempts = 2 if task.skipped == change.target else 1
    task.skipped = change.target


def _leave(change: BoardChange, task: Task, event: TaskTransition, claimed: int) -> None:
    """Apply or refuse a move of a held task: it needs a root cause or a person's approval."""
    config, target = change.config, change.target
    cause = (event.evidence or {}).get("root_cause")
    if event.approved_by:
        approve(change, task)
        _enter(change, task, target)
    elif not task.flags & HELD_APPROVAL and cause is not None and cause.passed:
        release(task)
        if target < 0:
            _enter(change, task, target)
        else:
            _judge(change, task, event, claimed)
    elif target >= 0 and config.parked_states >> target & 1:
        _enter(change, task, target)
    else:
        change.refused = holder(task)
        change.attempts = 2 if task.flags & HELD_REPORTED else 1
        task.flags |= HELD_REPORTED


def _enter(change: BoardChange, task: Task, target: int) -> None:
    """Move a task to another state."""
    board, config, source = change.board, change.config, task.state
    task.since, task.skipped, task.wanted = board.cycles, UNKNOWN, UNKNOWN
    task.flags &= ~FREE
    task.state = target if target >= 0 else FOREIGN
    task.foreign = 0
    if target < 0:
        task.foreign = _foreign(change, change.to)
        _count(change, task, task.foreign)
        return
    parked = source >= 0 and bool(config.parked_states >> source & 1)
    if source < 0 or (parked and task.back < 0 and not config.allows(source, target)):
        _trust_guards(config, task)
    if config.parked_states >> target & 1 and not parked:
        task.back = source
    if source >= 0 and not task.entered:
        task.entered[source] = 1
    _count(change, task, target)
    _reset_guards(config, task, target)
    change.blocked = bool(config.blocked >> target & 1)
    if config.failed >> target & 1 and not (change.blocked and _waits(change, task)):
        note_failed(change, task)
    if config.done >> target & 1:
        _ended(change, task)


def _foreign(change: BoardChange, name: str) -> int:
    """Return a number for a state that this board does not have; tasks may swing between such states, too."""
    return -3 - (change.tag(state_name(name)) & 0xFFFF)


def _count(change: BoardChange, task: Task, state: int) -> None:
    task.entered[state] = task.entered.get(state, 0) + 1
    change.swings = task.entered[state] - 1
    if len(task.entered) > ENTERED_MAX:
        del task.entered[next(iter(task.entered))]


def _waits(change: BoardChange, task: Task) -> bool:
    """Whether a blocked task depends on another blocked task: then it did not fail itself."""
    known = (change.board.tasks.get(key) for key in task.depends_on)
    return any(other is not None and other.state >= 0 and change.config.blocked >> other.state & 1 for other in known)


def _reset_guards(config: BoardConfig, task: Task, state: int) -> None:
    """Forget the reports of the guards that need new evidence once a task was sent back to this state, or that report
    of work which begins in it."""
    for number, guard in enumerate(config.guards):
        if not guard.when and (guard.back == state or config.begins(state, guard)):
            task.flags &= ~(PASSED << number)
            task.lacks.pop(number, None)


def _ended(change: BoardChange, task: Task) -> None:
    """Forget what counted against a task that is done. If it is completed, and not cancelled, that is a success."""
    board = change.board
    board.owners.pop(change.tag(task.id), None)
    task.rejected, task.rejections, task.entered, task.failure = 0, [], {}, []
    if not change.config.completed >> task.state & 1:
        return
    board.done += 1
    board.failed = []
    if task.flags & DESIGN:
        key = change.tag(task.id)
        for other in board.tasks.values():
            if key in other.depends_on:
                other.flags |= DESIGNED
