"""Which control events people are told of, as what, and how urgently: a table, and the words around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, cast

from streamproc.model.controls import ControlEvent, ControlEvidence
from streamproc.model.notification import Notice, Notification, NotificationType, Urgency, UrgencyName

EVIDENCE_MAX: Final = 1_000  # characters; phones and chat windows show fewer
TASK_TOKENS_PERCENT: Final = 80  # ticket rules: "token budget exceeds 80 % for any task"
SESSION_PERCENT: Final = 70  # ticket rules: "session budget exceeds 70 %"
URGENT_PERCENT: Final = 90  # ticket rules: "URGENT: wrap up, deliver partial results if needed"
WRAP_UP_PERCENT: Final = 95  # ticket rules: "at 95 %, all agents must wrap up current tasks"


class NotificationTrigger(NamedTuple):
    """One row: what it is called in a notify file, what is sent, how urgent that is by default and why so; and when
    it is sent, for people and as a function."""

    name: str
    type: NotificationType
    urgency: Urgency
    what: str
    reason: str
    when: Callable[[ControlEvent], bool]


def _kind(control: ControlEvent) -> str:
    return control.evidence.kind if control.evidence is not None else ""


def _fleet(kind: str) -> Callable[[ControlEvent], bool]:
    return lambda control: control.type == "fleet.state" and _kind(control) == f"fleet_{kind}"


def share_percent(evidence: ControlEvidence | None) -> float | None:
    """How much of a budget is spent, where the evidence says so."""
    if evidence is None or evidence.used is None or not evidence.limit:
        return None
    return 100 * evidence.used / evidence.limit


def _spent(code: str, percent: float, unknown: bool = True) -> Callable[[ControlEvent], bool]:
    """Past this share; `unknown` is for a level that does not say how much is spent."""

    def when(control: ControlEvent) -> bool:
        if control.code != code:
            return False
        share = share_percent(control.evidence)
        return unknown if share is None else share > percent

    return when


def _hard_cap(control: ControlEvent) -> bool:
    reason = control.evidence.reason if control.evidence is not None else None
    return control.halts and control.code == "BUDGET005" and (reason or "").startswith("hard_cap")


def _escalated(control: ControlEvent) -> bool:
    return (
        control.type == "task.escalated"
        or control.terminal_status == "escalated"
        or _kind(control) == "unacknowledged"  # a halt, and the run goes on
    )


def _halts(*codes: str) -> Callable[[ControlEvent], bool]:
    return lambda control: control.halts and control.code.startswith(codes)


def _warns(*codes: str) -> Callable[[ControlEvent], bool]:
    return lambda control: control.severity == "warn" and control.code.startswith(codes)


def _halted_for(reason: str) -> Callable[[ControlEvent], bool]:
    return lambda control: control.halts and control.halt_reason == reason


LOW, MEDIUM, HIGH, CRITICAL = Urgency

Row = NotificationTrigger

# The first row that fits is taken.
TRIGGERS: Final[tuple[NotificationTrigger, ...]] = (
    Row("stop", "STOP", CRITICAL, "STOP is ordered for the fleet, a user or a tenant",
            "everything there stands still", _fleet("stop")),
    Row("pause", "PAUSE", MEDIUM, "PAUSE is ordered", "nothing new starts; somebody knows", _fleet("pause")),
    Row("clear", "CLEAR", LOW, "CLEAR is ordered", "good news can wait", _fleet("clear")),
    Row("order_refused", "ORDER_REFUSED", HIGH, "an order does not count",
            "somebody gives orders who may not, or a key is wrong", _fleet("refused")),
    Row("timeout", "TIMEOUT", HIGH, "a run has run out of time", "999 of 1 000 runs should end without one",
            lambda control: control.type == "run.timed_out" or control.terminal_status == "timed_out"),
    Row("hard_cap", "HARD_CAP", CRITICAL, "a deliberation is halted at the hard cap of rounds",
            "every earlier limit has failed before this one", _hard_cap),
    Row("escalation", "ESCALATION", CRITICAL, "a task is escalated, or a halt that nobody acknowledged",
            "somebody was told before, and nothing happened", _escalated),
    Row("task_tokens_spent", "BUDGET_EXCEEDED", HIGH, "a task is ended by its tokens (BUDGET008)",
            "it ends with what it has", _halts("BUDGET008")),
    Row("task_tokens_urgent", "BUDGET_WARNING", HIGH, f"a task has used {URGENT_PERCENT} % of its tokens",
            "it wraps up: soon it is ended", _spent("BUDGET008", URGENT_PERCENT - 0.01, unknown=False)),
    Row("task_tokens", "BUDGET_WARNING", MEDIUM, f"a task has used more than {TASK_TOKENS_PERCENT} % of its tokens",
            "there is time to add some", _spent("BUDGET008", TASK_TOKENS_PERCENT)),
    Row("session_spent", "BUDGET_EXCEEDED", CRITICAL, "a session has spent its budget (BUDGET009)",
            "all of its runs stop", _halts("BUDGET009")),
    Row("session_urgent", "BUDGET_WARNING", HIGH, f"a session has spent {WRAP_UP_PERCENT} %",
            "all of its agents wrap up", _spent("BUDGET009", WRAP_UP_PERCENT - 0.01, unknown=False)),
    Row("session", "BUDGET_WARNING", MEDIUM, f"a session has spent more than {SESSION_PERCENT} %",
            "soon nothing more can be delegated", _spent("BUDGET009", SESSION_PERCENT)),
    Row("cost", "BUDGET_EXCEEDED", HIGH, "a run, user or tenant has spent its money (BUDGET007, BUDGET010)",
            "an answer comes early, or not at all", _halts("BUDGET007", "BUDGET010")),
    Row("budget", "BUDGET_EXCEEDED", MEDIUM, "any other budget halts a run", "a limit did what it is there for",
            _halted_for("budget_exceeded")),
    Row("failures", "FAILURE", HIGH, "three tasks in a row have failed (ERROR004)",
            "something is broken for all of them", lambda control: control.code == "ERROR004"),
    Row("errors", "FAILURE", HIGH, "a run is halted for its errors (ERROR…)",
            "it waits, and trying again does not help", _halts("ERROR")),
    Row("loop", "LOOP_DETECTED", HIGH, "a loop is halted (LOOP…, GRAPH001), or a task goes to and fro (TASK001)",
            "it waits for somebody",
            lambda control: _halts("LOOP", "GRAPH")(control) or _halted_for("oscillating")(control)
            or control.code == "TASK001"),
    Row("stalled", "STALL", HIGH, "a run or a task is stalled (STALL…)", "it waits for somebody",
            lambda control: _halts("STALL")(control) or _halted_for("stalled")(control)
            or control.terminal_status == "stalled"),
    Row("stopped", "STOP", MEDIUM, "one run is stopped by a person", "that person knows",
            _halted_for("user_stop")),
    Row("halt", "HALT", HIGH, "anything else halts a run", "also by a code that is newer than this table",
            lambda control: control.halts),
    Row("asked", "BLOCKED", HIGH, "a detector asks for a person (type `notification`), as TASK002 does",
            "it says itself that the board cannot mend this",
            lambda control: control.type == "notification" and control.severity == "warn"),
    Row("retries", "FAILURE", MEDIUM, "a task is blocked after its retries (ERROR002)",
            "it waits; others go on", lambda control: control.code == "ERROR002"),
    Row("blocked", "BLOCKED", LOW, "a task, transition or delegation is put back",
            "its owner sees that on the board",
            lambda control: control.type in ("transition.blocked", "delegation.rejected")
            or _warns("TASK")(control)),
    Row("loop_warning", "LOOP_DETECTED", LOW, "a loop is warned of", "the agent gets a nudge first",
            _warns("LOOP", "GRAPH")),
    Row("stall_warning", "STALL", LOW, "a stall or error is warned of", "the agent gets a nudge first",
            _warns("STALL", "ERROR", "INFRA")),
    Row("budget_warning", "BUDGET_WARNING", LOW, "a lower level of a budget is reached",
            "the agent gets a nudge first", _warns("BUDGET")),
)  # fmt: skip

BY_NAME: Final = {trigger.name: trigger for trigger in TRIGGERS}


def trigger_of(control: ControlEvent) -> NotificationTrigger | None:
    """The row for this event; None for what nobody is told of."""
    return next((trigger for trigger in TRIGGERS if trigger.when(control)), None)


def notice_of(control: ControlEvent, trigger: NotificationTrigger, urgency: Urgency, repeats: int = 0) -> Notice:
    """What is told of this event."""
    return Notice(
        notification=Notification(
            type=trigger.type,
            agent=control.node or "",
            task_id=control.task_id or "",
            evidence=_evidence(control),
            recommendation=_recommendation(control, trigger),
            urgency=cast("UrgencyName", urgency.name),
        ),
        trigger=trigger.name,
        run_id=control.run_id,
        code=control.code,
        control_id=control.id,
        workflow=control.workflow or "",
        tenant=control.tenant or "",
        user=control.user or "",
        at=control.at or "",
        repeats=repeats,
    )


def subject_of(control: ControlEvent) -> str:
    """What a series of notifications is about: an order to many runs, or a budget that many share; else the run."""
    if control.evidence is not None and control.evidence.account:
        return control.evidence.account
    if control.type == "fleet.state" and control.trigger is not None and control.trigger.event_id:
        return control.trigger.event_id
    return control.run_id


def _evidence(control: ControlEvent) -> str:
    """What was seen in one paragraph: the message, then tool, steps and figures that it does not have to say."""
    seen = control.evidence
    turn = control.trigger.turn if control.trigger is not None else None
    parts = [f"{control.code}{f' at turn {turn}' if turn is not None else ''}: {control.message}"]
    if seen is not None:
        figures = None if seen.used is None else f"{seen.used} of {seen.limit} {seen.unit or ''}".rstrip()
        facts = (
            ("tool", f"{seen.tool} (args {seen.args_hash})" if seen.tool and seen.args_hash else seen.tool),
            ("turns", ", ".join(map(str, seen.turns)) if seen.turns else None),
            ("edge", " → ".join(seen.edge) if seen.edge else None),
            ("cycles", "; ".join(", ".join(cycle) for cycle in seen.cycles) if seen.cycles else None),
            ("failing tests", ", ".join(seen.failing_tests) if seen.failing_tests else None),
            ("trend of failing tests", " → ".join(map(str, seen.failing_trend)) if seen.failing_trend else None),
            ("first error", seen.first_error),
            ("spent", figures),
            ("by", seen.by),
        )
        parts += [f"{name}: {value}" for name, value in facts if value]
    text = " | ".join(" ".join(part.split()) for part in parts)
    return text if len(text) <= EVIDENCE_MAX else f"{text[: EVIDENCE_MAX - 1]}…"


_DO: Final = {
    "warn": "let it go on, and tell the agent",
    "pause": "pause it",
    "switch_to_interactive": "switch it to interactive mode and take over",
    "spawn_reviewer": "let a reviewer look at it",
    "retry_with_new_provider": "try again with another provider",
    "force_synthesis": "let it answer with what it has",
    "snitch": "hand it to the one who reports",
    "ask_human": "ask a person",
    "done_partial": "take the partial result",
    "halt": "leave it halted until the cause is mended",
    "kill": "end it",
}

_ALWAYS: Final[dict[str, str]] = {
    "stop": "find out why, then `streamproc clear`",
    "pause": "`streamproc clear` when work may start again",
    "clear": "nothing: work goes on",
    "order_refused": "check who gave it, and its key",
    "failures": "look at what the failed tasks have in common before more are started",
    "session": "start nothing new that can wait, or raise the session's budget",
    "session_urgent": "let what runs come to an end, and start nothing new",
    "task_tokens_urgent": "take its partial result, or raise max_token_budget now",
    "task_tokens": "let it come to an end, or raise max_token_budget",
}


def _recommendation(control: ControlEvent, trigger: NotificationTrigger) -> str:
    if trigger.name in _ALWAYS:
        return _ALWAYS[trigger.name]
    chosen = [action for action in (control.action, *control.suggested_actions) if action]
    words = [_DO.get(action, action) for action in dict.fromkeys(chosen)]
    if not words:
        return f"look at it: `streamproc explain {control.code}`"
    return "; or ".join(words)
