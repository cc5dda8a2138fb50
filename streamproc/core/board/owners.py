"""Who owns a task: the agent that it was delegated to, or the first one that worked on it; and deliveries of a cycle.

`Board.owners` holds one number for each task: the place of its agent in `Board.agents`, and the cycle in which it was
delivered (0: it was not delivered, its agent is only known). Memory: `AGENTS_MAX` agents and `OWNERS_MAX` tasks.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.board.change import BoardChange, Tag
from streamproc.core.board.config import BoardConfig
from streamproc.core.board.state import Assignee, Board
from streamproc.core.run_state import RunState
from streamproc.model.wire import BoardEvent, TaskDelegated, TaskVerdict

AGENTS_MAX: Final = 8  # a team has a handful; also the factor between cycle and agent in `Board.owners`
OWNERS_MAX: Final = 32  # as many as tasks on a board
NAME_BYTES: Final = 40  # of an agent's name


def owner_of(board: Board, task: int) -> str:
    """Return the name of the agent that owns a task, by its tag; empty if it is not known."""
    known = board.owners.get(task)
    if known is None or known % AGENTS_MAX >= len(board.agents):
        return ""
    return board.agents[known % AGENTS_MAX].name


def approves_own(board: Board, event: BoardEvent, task: int) -> bool:
    """Return whether an approval comes from the agent that the task was delivered to: it is no person's."""
    known = board.owners.get(task, 0)
    return known >= AGENTS_MAX and bool(event.approved_by) and owner_of(board, task) == _name(event.approved_by)


def task_in_progress(board: Board, config: BoardConfig, agent: str) -> int:
    """Return the tag of the one task that an agent has in progress or, if it has none, of the one that it was given; 0
    if there is none, or several."""
    agent = _name(agent)
    started: list[int] = []
    given: list[int] = []
    for tag in board.owners if agent else ():
        if owner_of(board, tag) != agent:
            continue
        task = board.tasks.get(tag)
        if task is None or task.state < 0:
            given.append(tag)
        elif config.progress >> task.state & 1:
            started.append(tag)
        elif not (config.done | config.parked_states) >> task.state & 1:
            given.append(tag)
    found = started or given
    return found[0] if len(found) == 1 else 0


def note_worker(change: BoardChange, event: BoardEvent, task: int) -> None:
    """Note the agent of an event as the owner of a task that has none."""
    name = event.agent or event.node
    if name and task not in change.board.owners:
        _own(change.board, task, _place(change.board, name))


def note_verdict(run: RunState, event: TaskVerdict, tag: Tag) -> None:
    """End what the node of a validator repeats: its next words are about another report."""
    node = run.nodes.find(tag(event.validator))
    if node is not None:
        node.output.clear()
        node.structured.clear()


def deliver(run: RunState, change: BoardChange, event: TaskDelegated) -> bool:
    """Count the tasks of a delivery, and those that the same agent was given before in this cycle; return whether the
    board allows as many. A larger delivery is rejected: it does not count later, and displaces no task or agent."""
    board, given = change.board, [change.tag(name) for name in event.tasks]
    change.batch = max(event.count, len(set(given)))
    allowed = change.config.size(change.phase)
    new = all(one.name != _name(event.agent) for one in board.agents)
    if new and 0 < allowed < change.batch:
        return False
    if not event.agent:
        return True
    place = _place(board, event.agent)
    agent, counts = board.agents[place], run.node_counts.find(change.tag(event.agent))
    turns = counts.turns if counts is not None else 0
    delivered = place + AGENTS_MAX * (board.cycles + 1)
    worked = turns > agent.turns
    agent.unnamed = 0 if worked else agent.unnamed
    change.earlier = agent.unnamed
    for task, known in board.owners.items():
        if known == delivered and task not in given and _is_open(change, task, worked=worked):
            change.earlier += 1
    change.batch += change.earlier
    agent.turns = turns
    if 0 < allowed < change.batch:
        return False
    agent.unnamed += max(0, event.count - len(given))
    for task in given[:OWNERS_MAX]:
        _own(board, task, delivered)
    return True


def forget_deliveries(board: Board) -> None:
    """Forget the tasks that agents were given by their number: a cycle is over. Those with ids name their cycle."""
    for agent in board.agents:
        agent.unnamed = 0


def _is_open(change: BoardChange, task: int, *, worked: bool) -> bool:
    """Whether an agent still has a task. Of a task without a state, no event says that it is done: it counts until its
    agent has worked."""
    known = change.board.tasks.get(task)
    if known is None or known.state < 0:
        return not worked
    return not change.config.done >> known.state & 1


def _own(board: Board, task: int, owner: int) -> None:
    board.owners.pop(task, None)
    board.owners[task] = owner
    if len(board.owners) > OWNERS_MAX:
        del board.owners[next(iter(board.owners))]


def _name(agent: str) -> str:
    return agent.encode("utf-8", "replace")[:NAME_BYTES].decode("utf-8", "ignore")


def _place(board: Board, agent: str) -> int:
    """Return the place of an agent. If there is none left, it gets that of the agent whose last task is the oldest."""
    name = _name(agent)
    for place, known in enumerate(board.agents):
        if known.name == name:
            return place
    if len(board.agents) < AGENTS_MAX:
        board.agents.append(Assignee(name))
        return len(board.agents) - 1
    latest = dict.fromkeys(range(AGENTS_MAX), -1)
    for order, owner in enumerate(board.owners.values()):
        latest[owner % AGENTS_MAX] = order
    place = min(latest, key=latest.__getitem__)
    board.agents[place] = Assignee(name)
    for task in [task for task, owner in board.owners.items() if owner % AGENTS_MAX == place]:
        del board.owners[task]
    return place
