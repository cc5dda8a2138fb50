"""BUDGET009 session: all runs of a session together come near their budget, or exceed it.

Sees: tokens and cost summed over every agent and child run of a session (`session_id`; without one, the run named by
`parent_run_id`), against `maxSessionTokens` and `maxSessionCostUsd`. Above 70 % of either all runs of the session are
warned, above 80 % it takes no new work (a task that is delegated then and a child run that starts then are
rejected), from 95 % on all should wrap up, and above 100 % all are halted. Says how fast it went over the last five
minutes.

Why: a parent that is within its own budget can spend without end through its children.

False alarms: none if usage is reported once. A child whose usage is also part of its parent's is counted twice.

Tuning: declare the budgets on the `run.started` of the root, or set them in the policy, where they hold for every
session; of several declared ones the least holds. Child runs need to declare nothing. Where the root
has a `session_id`, or the tree is deeper than one level, name it on every `run.started`.
Set a percentage to 0 to leave its rung out.

Reference: ticket rules, session-level budgets.
"""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from streamproc.core import kind
from streamproc.core.accounts import EXCEEDED, REJECTED
from streamproc.core.decision import BUDGET_EXCEEDED, Evidence, Finding, Level
from streamproc.core.view import View
from streamproc.detectors.account_budget import amounts, evidence_of, loop_of
from streamproc.detectors.base import Example
from streamproc.model.wire import BudgetReached


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares of the session's budget, in percent."""

    warn_percent: int = 70  # worth a notification
    restrict_percent: int = 80  # no new delegations
    wrap_up_percent: int = 95  # end the tasks at hand


class SessionBudget:
    """BUDGET009."""

    code = "BUDGET009"
    name = "session"
    kinds = kind.ACCOUNT | kind.BOARD

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if not isinstance(event, BudgetReached):
            delegated = view.run.session_closed and event.type == "task.delegated"
            return self._rejected(event.event_id or str(view.run.ignored_events), event.task_id) if delegated else None
        if not event.account.startswith("session:"):
            return None
        halts = event.rung in (EXCEEDED, REJECTED)
        return Finding(
            code=self.code,
            level=Level.HALT if halts else Level.WARN,
            loop=loop_of(event),
            message=f"The session has spent {amounts(event)}: {_ADVICE[event.rung]}.",
            evidence=evidence_of("session_budget", event),
            reason=BUDGET_EXCEEDED,
            status="blocked" if event.rung == REJECTED else "budget_exceeded",
            type="delegation.rejected" if event.rung == REJECTED else "budget.level",
            action=_ACTIONS[event.rung],
            anywhere=True,
        )

    def _rejected(self, delegation: str, task: str) -> Finding:
        who = f"Task {task}" if task else "What was delegated"
        return Finding(
            code=self.code,
            level=Level.WARN,
            loop=xxhash.xxh3_64_intdigest(f"delegated\0{delegation}\0{task}".encode("utf-8", "surrogatepass")),
            message=f"{who} is rejected: the session's budget is nearly spent, and it takes no new work.",
            evidence=Evidence(kind="session_budget", rung=REJECTED),
            reason=BUDGET_EXCEEDED,
            status="blocked",
            type="delegation.rejected",
        )


_ADVICE = {
    "warning": "mind what is left",
    "restrict": "no new delegations",
    "wrap_up": "wrap up the tasks at hand",
    EXCEEDED: "all of its runs stop",
    REJECTED: "this run is rejected, as no new work may start",
}
_ACTIONS = {"warning": "warn", "restrict": "warn", "wrap_up": "done_partial", EXCEEDED: "halt", REJECTED: "halt"}

DETECTOR = SessionBudget()

_ROOT = {"type": "run.started", "budgets": {"maxSessionTokens": 1000}}  # and the session has the name of the run


def _spent(*tokens: int) -> list[dict[str, object]]:
    return [{"node": "agent", "output": f"step {n}", "usage": {"total_tokens": some}} for n, some in enumerate(tokens)]


HEALTHY = [
    Example("nobody set a limit", [{"type": "run.started", "session_id": "s1"}, *_spent(*[10**6] * 5)]),
    Example("a session within its budget", [_ROOT, *_spent(300, 300, 100)]),
]
STUCK = [
    Example("a session that goes through all of its budget", [_ROOT, *_spent(750, 100, 110, 50)], "halt", 3),
    Example("a session near its end", [_ROOT, *_spent(500, 460)], "warn", 1),
]
