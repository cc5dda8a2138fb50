"""BUDGET009 session: the runs of a session together approach or exceed their budget.

Sees: tokens and cost summed over every agent and child run of a session (`session_id`; without one, the run named by
`parent_run_id`), against `maxSessionTokens` and `maxSessionCostUsd`. Above 70 % of either, all runs of the session are
warned. Above 80 % the session takes no new work: tasks delegated and child runs started from then on are rejected.
From 95 % on all runs should wrap up, and above 100 % all are halted. Reports the spend rate of the last five minutes.
What a cache held counts in full as tokens, and by its price as cost.

Why: a parent within its own budget can spend without limit through its children.

False alarms: none if usage is reported once. If a child's usage is also part of its parent's, it counts twice.

Tuning: declare the budgets on the `run.started` of the root, or set them in the policy, where they apply to every
session; of several declared budgets the lowest applies. Child runs need not declare any. If the root has a
`session_id`, or the tree is deeper than one level, name the session on every `run.started`. Set a percentage to 0 to
skip its level.

Reference: ticket rules, session-level budgets.
"""

from __future__ import annotations

from streamproc.core.accounts import EXCEEDED, REJECTED
from streamproc.detectors.account_budget import AccountDetector, amounts
from streamproc.detectors.base import Example, Finding, Level, RuleSettings, View, kind, loop_of, started
from streamproc.model.wire import BudgetReached, Event


class SessionBudget(AccountDetector):
    code, name = "BUDGET009", "session"
    budgets = ("maxSessionTokens", "maxSessionCostUsd")
    kinds = kind.ACCOUNT | kind.BOARD

    class Limits:
        """Shares of the session's budget, in percent."""

        warn_percent: int = 70  # worth a notification
        restrict_percent: int = 80  # no new delegations
        wrap_up_percent: int = 95  # finish the current tasks

    def settings(self, limits: Limits | None) -> RuleSettings:
        if limits is None:
            return {}
        return {"session_percents": [limits.warn_percent, limits.restrict_percent, limits.wrap_up_percent]}

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if not isinstance(event, BudgetReached):
            delegated = view.run.session_closed and event.type == "task.delegated"
            return self._rejected(event) if delegated else None
        if not event.account.startswith("session:"):
            return None
        advice, action = _ADVICE[event.rung]
        message = f"The session has spent {amounts(event)}; {advice}."
        if event.rung == REJECTED:
            return self.reached(event, message, action, type="delegation.rejected", status="blocked")
        return self.reached(event, message, action)

    def _rejected(self, event: Event) -> Finding:
        task, tasks = event.task_id, getattr(event, "tasks", ())
        what = f"Task {task}" if task else f"The delegation of {', '.join(tasks)}" if tasks else "The delegation"
        message = f"{what} was rejected because the session's budget is nearly spent and allows no new work."
        loop = loop_of("delegated", event.event_id, event.agent, task, *tasks)
        return self.finding(Level.WARN, loop, message, status="blocked", type="delegation.rejected", rung=REJECTED)


_ADVICE = {
    "warning": ("plan with the remaining budget", "warn"),
    "restrict": ("delegate no new tasks", "warn"),
    "wrap_up": ("wrap up the current tasks", "done_partial"),
    EXCEEDED: ("all of its runs are halted", "halt"),
    REJECTED: ("this run is rejected because no new work may start", "halt"),
}

DETECTOR = SessionBudget()
_ROOT = started(maxSessionTokens=1000)  # the session takes the name of the run


def _spent(*tokens: int) -> list[dict[str, object]]:
    return [{"node": "agent", "output": f"step {n}", "usage": {"total_tokens": some}} for n, some in enumerate(tokens)]


HEALTHY = [
    Example("no limit is set", [{"type": "run.started", "session_id": "s1"}, *_spent(*[10**6] * 5)]),
    Example("a session within its budget", [_ROOT, *_spent(300, 300, 100)]),
]
STUCK = [
    Example("a session that exceeds its budget", [_ROOT, *_spent(750, 100, 110, 50)], "halt", 3),
    Example("a session near its limit", [_ROOT, *_spent(500, 460)], "warn", 1),
]
