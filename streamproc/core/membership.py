"""What the tree of a session learns of a run: its birth, its end, its halt, and that it has fallen silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.core.charges import SESSION_BUDGETS, AccountRules, Charge, charge
from streamproc.core.records import HASH
from streamproc.core.run_scope import change_scope
from streamproc.core.scope import short_name
from streamproc.core.session_tree import BUDGETS, FINISHED, HALTED, SILENT, WORKING, TreeEntry
from streamproc.model.wire import Deadline, OperatorResume, RunStarted, Turn

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.core.run_state import RunState
    from streamproc.model.wire import Event

SHARED_BUDGETS: Final = frozenset((*BUDGETS.values(), *(name for _, name in SESSION_BUDGETS)))
"""Budgets of a session: a run that declares one, and names no session, is the root of its own."""
SILENCE: Final = "STALL007"


def name_session(run: RunState, event: Event) -> None:
    """Make a run that declares a budget of sessions, and names none, the root of its own."""
    if not run.scope.session and not SHARED_BUDGETS.isdisjoint(run.scope.budgets):
        change_scope(run, session=short_name(event.run_id))


def tell_tree(
    run: RunState, event: Event, decisions: list[Decision], charges: list[Charge], accounts: AccountRules, position: int
) -> None:
    """Report to the tree of the run's session, by the charges, what this event has made of the run."""
    if accounts.tree is None or not (run.scope.session or accounts.tree.limits):
        return
    member = member_of(run, event, decisions, charges, position)
    if member is not None and not charges:
        charges.append(charge(run, event.run_id, accounts, None, position))
        charges[-1].spends = False
    if member is not None:
        charges[-1].member = member


def member_of(
    run: RunState, event: Event, decisions: list[Decision], charges: list[Charge], position: int
) -> TreeEntry | None:
    """Return what a run's worker reports of an event; None: nothing that concerns the tree. Other events of a run that
    was silent say nothing: it works again with its next birth, end or halt."""
    born = left = False
    for one in charges:
        born, left = born or one.first, left or one.left
    halts = [one.code for one in decisions if one.severity == "halt"]
    silent = type(event) is Deadline and any(one.code == SILENCE for one in decisions)
    resumed = type(event) is OperatorResume and run.halted < 0
    budgets = run.scope.budgets
    declares = type(event) is RunStarted and not SHARED_BUDGETS.isdisjoint(budgets)  # perhaps after a turn
    if not (born or halts or silent or resumed or left or declares):
        return None
    state = HALTED if run.halted >= 0 else FINISHED if run.finished or left else SILENT if silent else WORKING
    scope = run.scope
    prompt = event.prompt if type(event) is RunStarted else None
    outputs = run.evidence.outputs.listed() if state == FINISHED else []  # only ends are compared
    return TreeEntry(
        event.run_id,
        position,
        run.at_ms,
        state,
        born,
        parent=scope.parent,
        agent=event.agent or event.node or run.handovers.previous_name.get(),
        prompt=(prompt.norm if prompt is not None else event.request if type(event) is Turn else 0) & HASH,
        sim=(prompt.sim if prompt is not None else 0) & HASH,
        digest=outputs[-1] if outputs else 0,
        reason=halts[0] if halts else SILENCE if silent else "",
        declared={unit: budgets[name] for unit, name in BUDGETS.items() if name in budgets} if budgets else {},
    )
