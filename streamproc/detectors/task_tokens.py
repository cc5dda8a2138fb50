"""BUDGET008 task_tokens: a task approaches or exceeds its token budget.

Sees: the tokens of the turns of a task (`task_id`, of the turn or of the `run.started`) against the `max_token_budget`
of its `task.delegated`, or against `maxTaskTokens`. From 70 % on the task is warned, from 80 % restricted to essential
work, from 90 % asked to wrap up, and from 95 % on it is stopped and returns its results. Above 100 % the task is killed
and escalated. Each level is reported once; if several are reached at once, the highest. Tokens are those of input and
output; what a cache held counts in full.
A stopped task does not halt a run that has other tasks. The finding is then a warning with the task in `task_id` and
its status in `terminal_status`, and names the agent to stop. The run is halted if it was started for this task, if it
knows no other task, or if the policy says so.

Why: an agent that learns early that its tokens are running out delivers something; one that learns it at the end does
not.

False alarms: a task whose turns belong to several runs has a budget in each of them. An orchestrator that names the
task in its own turns spends the task's tokens.

Tuning: set `max_token_budget` on the delegation, and `maxTaskTokens` for tasks without one. A percentage of 0 skips
its level. `halt_run: 1` halts the run for any of its tasks.

Reference: ticket rules, per-task budgets and threshold actions.
"""

from __future__ import annotations

from streamproc.core.board.owners import owner_of
from streamproc.core.run_state import RunState
from streamproc.core.signals.task_tokens import RUNGS, TaskTokens
from streamproc.detectors.base import Example, Finding, Level, RuleSettings, View, kind, loop_of
from streamproc.detectors.budget_detector import BudgetDetector, layer_of


class TaskTokenBudget(BudgetDetector):
    code, name = "BUDGET008", "task_tokens"
    budgets = ("maxTaskTokens",)
    kinds = kind.TASK_TOKENS
    evidence = (*BudgetDetector.evidence, "rung", "agent")

    class Limits:
        """Shares of the task's budget, in percent, and whether a stopped task halts its run."""

        warn_percent: int = 70  # the agent must prioritise completion
        restrict_percent: int = 80  # essential operations only
        urgent_percent: int = 90  # time to wrap up
        halt_percent: int = 95  # the results so far must be returned now
        halt_run: int = 0  # 1: halt the run, too; one task without tokens is no reason to stop the others

    def settings(self, limits: Limits | None) -> RuleSettings:
        if limits is None:
            return {}
        rungs = [limits.warn_percent, limits.restrict_percent, limits.urgent_percent, limits.halt_percent]
        return {"task_percents": rungs}

    def check(self, view: View, limits: Limits) -> tuple[Finding, ...]:
        spent, run = view.task_tokens, view.run
        tag = next((known for known, tokens in run.task_tokens.items() if tokens is spent), 0)
        named = run.board.tasks.get(tag) if run.board is not None else None
        task = view.event.task_id or (named.id if named is not None else "")
        whole = bool(limits.halt_run) or run.scope.task == tag or not _has_other_tasks(run, tag)
        agent = owner_of(run.board, tag) if run.board is not None else ""
        found = self._reached(view, spent, task, agent or view.turn.node, whole=whole)
        return (found,) if spent.rung < len(RUNGS) else (self._escalated(spent, task, agent), found)

    def _reached(self, view: View, spent: TaskTokens, task: str, agent: str, *, whole: bool) -> Finding:
        rung = RUNGS[spent.rung - 1]
        level, advice, action = _LEVELS[rung]
        over = spent.limit - 1 if spent.used > spent.limit else 0  # 100 % is not exceeded
        share = (spent.used * 100 + over) // spent.limit if spent.limit else 100
        stopped = level == Level.HALT
        if stopped and not whole:
            level, advice = Level.WARN, f"{advice}; stop {agent}, the run's other tasks continue"
        message = f"{_subject(task)} has used {spent.used} of its {spent.limit} tokens ({share} %), level {advice}."
        return self.finding(
            level, loop_of(task, rung, spent.since), message, kind=self.name, task=task,
            type="" if stopped and not whole else "budget.level", action=action,
            task_status="budget_exceeded" if stopped else "", used=spent.used, limit=spent.limit, unit="tokens",
            rung=rung, agent=agent, limit_from=_limit_from(view, spent),
        )  # fmt: skip

    def _escalated(self, spent: TaskTokens, task: str, agent: str) -> Finding:
        what = f"{_subject(task)} has exceeded its budget of {spent.limit} tokens"
        message = f"{what}; a person must decide how to continue."
        return self.finding(
            Level.WARN, loop_of(task, "escalated", spent.since), message, kind=self.name, status="escalated",
            type="task.escalated", action="ask_human", task=task, task_status="escalated",
            used=spent.used, limit=spent.limit, unit="tokens", rung=RUNGS[-1], agent=agent or None,
        )  # fmt: skip


def _has_other_tasks(run: RunState, tag: int) -> bool:
    """Whether a run knows a task besides this one: from its budget, its board or its delegation."""
    board = run.board
    known = set(run.task_tokens)
    if board is not None:
        known |= board.tasks.keys() | board.owners.keys()
    return bool(known - {tag})


def _limit_from(view: View, spent: TaskTokens) -> str:
    """Return who set the budget of a task. Its delegation did, unless it has the budget of tasks without one."""
    layer = layer_of(view, "maxTaskTokens").name
    return layer if layer == "grant" or spent.limit == view.budgets.get("maxTaskTokens") else "delegation"


def _subject(task: str) -> str:
    return f"Task {task}" if task else "The run's task"


_LEVELS = {
    "warning": (Level.WARN, "WARNING: prioritise completion", "warn"),
    "restrict": (Level.WARN, "RESTRICT: essential operations only, no exploration", "warn"),
    "urgent": (Level.WARN, "URGENT: wrap up, deliver partial results if needed", "done_partial"),
    "hard_stop": (Level.HALT, "HARD STOP: return the results so far", "force_synthesis"),
    "violation": (Level.HALT, "VIOLATION: the task is killed and escalated", "kill"),
}

DETECTOR = TaskTokenBudget()
_DELEGATED = {"type": "task.delegated", "task_id": "T7", "agent": "backend", "max_token_budget": 1000}


def _spent(*tokens: int, task: str = "T7") -> list[dict[str, object]]:
    return [
        {"node": "agent", "output": f"{task} step {n}", "task_id": task, "usage": {"total_tokens": some}}
        for n, some in enumerate(tokens)
    ]


HEALTHY = [
    Example("no budget is set", _spent(*[10**6] * 5)),
    Example("a task within its budget", [_DELEGATED, *_spent(300, 300)]),
    Example("another task spends", [_DELEGATED, *_spent(500, *[900] * 3, task="T8"), *_spent(400)]),
    Example("delegated again, with a new budget", [_DELEGATED, *_spent(600), _DELEGATED, *_spent(60, 600)]),
]
STUCK = [
    Example("every level up to the hard stop", [_DELEGATED, *_spent(700, 100, 100, 50)], "halt", 3),
    Example("over its budget in one turn", [_DELEGATED, *_spent(400, 700)], "halt", 1),
    Example("past the level for exploration", [_DELEGATED, *_spent(500, 350)], "warn", 1),
    Example("one task of two is stopped, the run continues", [
        _DELEGATED, {"type": "task.delegated", "task_id": "T8", "agent": "frontend", "max_token_budget": 1000},
        *_spent(960), *_spent(300, task="T8"),
    ], "warn", 0),
]  # fmt: skip
