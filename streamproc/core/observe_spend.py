"""Applies what a turn has used to the state of its run, and says when a detector of budgets could speak."""

from __future__ import annotations

from streamproc.core import kind
from streamproc.core.board.owners import task_in_progress
from streamproc.core.marks import BudgetMarks
from streamproc.core.prices import priced
from streamproc.core.records import cfunc, i64, u32
from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.core.signals.cycles import Cycle
from streamproc.core.signals.open_turns import end_turn
from streamproc.core.signals.spend import Ledger, amount_of, tokens_of
from streamproc.core.signals.task_tokens import drop_idle, spend_tokens
from streamproc.core.view import View
from streamproc.model.wire import Turn, Usage


@cfunc
def observe_measures(view: View, rules: Rules, usage: Usage | None) -> Usage | None:
    run: RunState = view.run
    reported_ms: i64
    if usage is not None:
        if view.switches.priced:
            usage = priced(usage, view.turn.model, rules.prices)
        run.ledger.add(usage)
        view.counts.add_time(amount_of(usage.duration_ms))
        run.pace.observe(view, usage)
        if run.pace.is_unusual(view.marks):
            view.kinds |= kind.USAGE
        if view.budgets and _reaches_a_limit_of_spend(view, usage):
            view.kinds |= kind.SPENDING
        if view.turn.task_id or run.scope.task or (run.has_board and run.has_task_tokens):
            _spend_on_task(view, rules, usage)
    if run.turns_open:
        still_open, view.took_ms = end_turn(run.open_turns, view)
        run.set_open_turns(still_open)
        reported_ms = amount_of(usage.duration_ms) if usage is not None else 0
        if view.took_ms > reported_ms:  # the time since `turn.started` contains what the turn reports itself
            view.counts.add_time(view.took_ms - reported_ms)
    return usage


@cfunc
def _spend_on_task(view: View, rules: Rules, usage: Usage) -> None:
    run: RunState = view.run
    turn: Turn = view.turn
    task: u32
    default = view.budgets.get("maxTaskTokens")
    if not view.switches.task_budgets or not (run.has_task_tokens or default):
        return
    task = view.names.tag(turn.task_id) if turn.task_id else run.scope.task
    if not task:
        task = task_in_progress(run.board, rules.board, turn.agent or turn.node)
        if not task:
            return
    spent = spend_tokens(run.cold.task_tokens, usage, task, default, rules.task_percents, run.turns)
    run.has_task_tokens = len(run.cold.task_tokens) > 0
    view.evicted += drop_idle(run.cold.task_tokens)
    if spent is not None:
        view.task_tokens = spent
        view.kinds |= kind.TASK_TOKENS


@cfunc
def _reaches_a_limit_of_spend(view: View, usage: Usage) -> bool:
    """Whether a detector of spend could say something."""
    ledger: Ledger = view.run.ledger
    limits: BudgetMarks = view.limits
    if ledger.cost_usd_micro >= limits.cost_usd_micro or ledger.unpriced >= limits.unpriced:
        return True
    return tokens_of(usage) >= limits.turn_tokens or amount_of(usage.duration_ms) >= limits.turn_ms


@cfunc
def reaches_a_limit_of_cycles(view: View) -> bool:
    """Whether a detector of cycles could say something."""
    run: RunState = view.run
    cycle: Cycle | None = view.cycle
    limits: BudgetMarks = view.limits
    if cycle is None:
        return False
    if cycle.iterations >= limits.cycle_iterations or run.at_ms - cycle.since_ms >= limits.cycle_runtime_ms:
        return True
    return run.ledger.cost_usd_micro - cycle.spent_before >= limits.cycle_cost


@cfunc
def reaches_a_limit(view: View) -> bool:
    """Whether a detector of steps and times could say something."""
    run: RunState = view.run
    limits: BudgetMarks = view.limits
    if view.index + 1 >= limits.steps or view.counts.turns >= limits.node_turns:
        return True
    return view.counts.runtime_ms >= limits.node_runtime_ms or run.at_ms - run.started_ms >= limits.runtime_ms
