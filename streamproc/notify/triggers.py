"""The triggers of notifications: which control events notify people, with which type and urgency, in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, cast

from streamproc.model.advice import ADVICE
from streamproc.model.controls import ControlEvent, ControlEvidence
from streamproc.model.notification import SEED_TYPES, Notice, Notification, NotificationType, Urgency, UrgencyName

APPROVAL: Final = ", or record a person's approval"
APPROVABLE: Final = ("TASK001", "TASK007", "TASK008", "ERROR002")  # what a person's approval opens or releases
EVIDENCE_MAX: Final = 1_000  # characters; phones and chat windows show fewer
TASK_TOKENS_PERCENT: Final = 80  # ticket rules: "token budget exceeds 80 % for any task"
SESSION_PERCENT: Final = 70  # ticket rules: "session budget exceeds 70 %"
URGENT_PERCENT: Final = 90  # ticket rules: "URGENT: wrap up, deliver partial results if needed"
WRAP_UP_PERCENT: Final = 95  # ticket rules: "at 95 %, all agents must wrap up current tasks"


class NotificationTrigger(NamedTuple):
    """One row of the table: its name in a notify file, the type and default urgency of the notification, the reason for
    that urgency, and the condition, in words (`what`) and as a function (`when`)."""

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
    """Return the percentage of a budget that is spent; None if the evidence does not include it."""
    if evidence is None or evidence.used is None or not evidence.limit:
        return None
    return 100 * evidence.used / evidence.limit


def _spent(code: str, percent: float, unknown: bool = True) -> Callable[[ControlEvent], bool]:
    """Match levels of a budget from this percentage on: each is reported once, by the turn that reaches it, and not
    again by the next, which exceeds it. `unknown` is the answer for a level without figures."""

    def when(control: ControlEvent) -> bool:
        if control.code != code:
            return False
        share = share_percent(control.evidence)
        return unknown if share is None else share >= percent

    return when


def _hard_cap(control: ControlEvent) -> bool:
    reason = control.evidence.reason if control.evidence is not None else None
    return control.halts and control.code == "BUDGET005" and (reason or "").startswith("hard_cap")


def _escalated(control: ControlEvent) -> bool:
    return (
        control.type == "task.escalated"
        or control.terminal_status == "escalated"
        or _kind(control) == "unacknowledged"  # halted, and the run continues
    )


def _stopped_task(control: ControlEvent) -> bool:
    rung = control.evidence.rung if control.evidence is not None else None
    return control.code == "BUDGET008" and (control.halts or rung in ("hard_stop", "violation"))


def _asks(control: ControlEvent) -> bool:
    asks = control.type == "notification" or (control.type == "transition.blocked" and control.action == "ask_human")
    return asks and control.severity == "warn"


def _halts(*codes: str) -> Callable[[ControlEvent], bool]:
    return lambda control: control.halts and control.code.startswith(codes)


def _warns(*codes: str) -> Callable[[ControlEvent], bool]:
    return lambda control: control.severity == "warn" and control.code.startswith(codes)


def _halted_for(reason: str) -> Callable[[ControlEvent], bool]:
    return lambda control: control.halts and control.halt_reason == reason


LOW, MEDIUM, HIGH, CRITICAL = Urgency

Row = NotificationTrigger

# The first matching row wins.
TRIGGERS: Final[tuple[NotificationTrigger, ...]] = (
    Row("unwatched", "UNWATCHED", CRITICAL, "no worker decides any more (the notifier hears their heartbeats)",
            "no agent is halted, whatever it does", _fleet("unwatched")),
    Row("partition_unwatched", "UNWATCHED", HIGH, "some partitions have had no worker for half a minute",
            "the runs in them are not halted", _fleet("partition_unwatched")),
    Row("disconnected", "UNWATCHED", HIGH, "Kafka has not answered the notifier for half a minute",
            "nothing is halted if the workers cannot reach it either", _fleet("disconnected")),
    Row("watched", "WATCHED", MEDIUM, "workers decide on all partitions again",
            "those who were called can stop looking", _fleet("watched")),
    Row("stop", "STOP", CRITICAL, "the fleet, a user or a tenant is stopped",
            "all of its runs stand still", _fleet("stop")),
    Row("pause", "PAUSE", MEDIUM, "the fleet is paused", "no work starts, as intended", _fleet("pause")),
    Row("clear", "CLEAR", LOW, "a stop or pause is cleared", "good news can wait", _fleet("clear")),
    Row("order_refused", "ORDER_REFUSED", HIGH, "a fleet command is refused",
            "an issuer is not authorised, or a key is wrong", _fleet("refused")),
    Row("timeout", "TIMEOUT", HIGH, "a run has run out of time", "999 of 1 000 runs should end without a timeout",
            lambda control: control.type == "run.timed_out" or control.terminal_status == "timed_out"),
    Row("hard_cap", "HARD_CAP", CRITICAL, "a deliberation is halted at the hard cap of rounds",
            "every earlier limit has failed", _hard_cap),
    Row("escalation", "ESCALATION", CRITICAL, "a task is escalated, or a halt stays unacknowledged",
            "an earlier notification had no effect", _escalated),
    Row("task_tokens_spent", "BUDGET_EXCEEDED", HIGH, "a task has spent its tokens (BUDGET008)",
            "it ends with a partial result", _stopped_task),
    Row("task_tokens_urgent", "BUDGET_WARNING", HIGH, f"a task has used {URGENT_PERCENT} % of its tokens",
            "it wraps up, and ends soon", _spent("BUDGET008", URGENT_PERCENT, unknown=False)),
    Row("task_tokens", "BUDGET_WARNING", MEDIUM, f"a task has used {TASK_TOKENS_PERCENT} % of its tokens",
            "there is time to raise its budget", _spent("BUDGET008", TASK_TOKENS_PERCENT)),
    Row("session_spent", "BUDGET_EXCEEDED", CRITICAL, "a session has spent its budget (BUDGET009)",
            "all of its runs stop", _halts("BUDGET009")),
    Row("session_urgent", "BUDGET_WARNING", HIGH, f"a session has spent {WRAP_UP_PERCENT} % of its budget",
            "all of its agents wrap up", _spent("BUDGET009", WRAP_UP_PERCENT, unknown=False)),
    Row("session", "BUDGET_WARNING", MEDIUM, f"a session has spent {SESSION_PERCENT} % of its budget",
            "delegations are rejected soon", _spent("BUDGET009", SESSION_PERCENT)),
    Row("cost", "BUDGET_EXCEEDED", HIGH, "a run, user or tenant has spent its cost budget (BUDGET007, BUDGET010)",
            "the result is incomplete or missing", _halts("BUDGET007", "BUDGET010")),
    Row("budget", "BUDGET_EXCEEDED", MEDIUM, "any other budget halts a run", "the limit works as intended",
            _halted_for("budget_exceeded")),
    Row("failures", "FAILURE", HIGH, "three tasks in a row have failed (ERROR004)",
            "they probably share a cause", lambda control: control.code == "ERROR004"),
    Row("errors", "FAILURE", HIGH, "a run is halted for its errors (ERROR…)",
            "it waits, and a retry does not help", _halts("ERROR")),
    Row("loop", "LOOP_DETECTED", HIGH, "a loop is halted (LOOP…, GRAPH001), or a task oscillates (TASK001)",
            "it waits for a person",
            lambda control: _halts("LOOP", "GRAPH")(control) or _halted_for("oscillating")(control)
            or _warns("TASK001")(control)),
    Row("stalled", "STALL", HIGH, "a run or a task is stalled (STALL…)", "it waits for a person",
            lambda control: _halts("STALL")(control) or _halted_for("stalled")(control)
            or control.terminal_status == "stalled"),
    Row("stopped", "STOP", MEDIUM, "an operator stops one run", "the operator knows already",
            _halted_for("user_stop")),
    Row("halt", "HALT", HIGH, "anything else halts a run", "covers codes that are newer than this table",
            lambda control: control.halts),
    Row("asked", "BLOCKED", HIGH, "a detector asks for a person: TASK002, or TASK005 and TASK006 a second time",
            "the board cannot resolve this by itself", _asks),
    Row("retries", "FAILURE", MEDIUM, "a task is blocked after its retries (ERROR002)",
            "it waits while other tasks continue", _warns("ERROR002")),
    Row("blocked", "BLOCKED", MEDIUM, "a task, transition or delegation is rejected",
            "the lead of the team must know, and can correct it",
            lambda control: control.type in ("transition.blocked", "delegation.rejected")
            or _warns("TASK")(control)),
    Row("loop_warning", "LOOP_DETECTED", LOW, "a warning for a loop", "the agent gets a nudge first",
            _warns("LOOP", "GRAPH")),
    Row("stall_warning", "STALL", LOW, "a warning for a stall, an error or an unproven success",
            "the agent gets a nudge first",
            _warns("STALL", "ERROR", "INFRA", "CLAIM")),
    Row("budget_warning", "BUDGET_WARNING", LOW, "a lower level of a budget is reached",
            "the agent gets a nudge first", _warns("BUDGET")),
)  # fmt: skip

BY_NAME: Final = {trigger.name: trigger for trigger in TRIGGERS}


def trigger_of(control: ControlEvent) -> NotificationTrigger | None:
    """Return the trigger of a control event; None if it does not notify."""
    return next((trigger for trigger in TRIGGERS if trigger.when(control)), None)


def notice_of(control: ControlEvent, trigger: NotificationTrigger, urgency: Urgency) -> Notice:
    """Return the notification of a control event."""
    return Notice(
        notification=Notification(
            type=trigger.type,
            agent=(control.evidence.agent if control.evidence is not None else "") or control.node or "",
            task_id=control.task_id or "",
            evidence=_evidence(control),
            recommendation=_recommendation(control, trigger),
            urgency=cast("UrgencyName", urgency.name),
        ),
        trigger=trigger.name,
        seed_type=SEED_TYPES.get(trigger.type, ""),
        run_id=control.run_id,
        code=control.code,
        control_id=control.id,
        workflow=control.workflow or "",
        tenant=control.tenant or "",
        user=control.user or "",
        at=control.at or "",
    )


def subject_of(control: ControlEvent) -> str:
    """Return the subject of a series of notifications: a fleet command, a shared budget, or else the run."""
    if control.type == "fleet.state" and control.trigger is not None and control.trigger.event_id:
        return control.trigger.event_id
    if control.evidence is not None and control.evidence.account:
        return control.evidence.account
    return control.run_id


def _evidence(control: ControlEvent) -> str:
    """Describe the evidence in one paragraph: the message, then tool, turns, figures and other facts."""
    seen = control.evidence
    place = f" at turn {control.turn}" if control.turn else ""  # 0 may as well be before the first turn
    parts = [f"{control.code}{place}: {control.message}"]
    if seen is not None:
        figures = None if seen.used is None else f"{seen.used} of {seen.limit} {seen.unit or ''}".rstrip()
        facts = (
            ("tool", f"{seen.tool} (args {seen.args_hash})" if seen.tool and seen.args_hash else seen.tool),
            ("arguments", seen.args_excerpt),
            ("turns", ", ".join(map(str, seen.turns)) if seen.turns else None),
            ("edge", " → ".join(seen.edge) if seen.edge else None),
            ("cycles", "; ".join(", ".join(cycle) for cycle in seen.cycles) if seen.cycles else None),
            ("failing tests", ", ".join(seen.failing_tests) if seen.failing_tests else None),
            ("trend of failing tests", " → ".join(map(str, seen.failing_trend)) if seen.failing_trend else None),
            ("first error", seen.first_error),
            ("spent", figures),
            ("by", seen.by),
            ("rejections", "; ".join(f"{one.validator}: {one.reason}" for one in seen.rejections or ())),
        )
        parts += [f"{name}: {value}" for name, value in facts if value]
    text = " | ".join(" ".join(part.split()) for part in parts)
    return text if len(text) <= EVIDENCE_MAX else f"{text[: EVIDENCE_MAX - 1]}…"


_ADVICE_BY_TRIGGER: Final[dict[str, str]] = {
    "unwatched": "start the workers, or read their logs: turns wait in Kafka until then",
    "partition_unwatched": "read the logs of the workers; `streamproc doctor` names the partitions",
    "disconnected": "check Kafka, and the network of the notifier; publishers keep turns until it answers",
    "watched": "nothing: workers decide on what has waited",
    "stop": "find the cause, then run `{clear}`",
    "pause": "run `{clear}` when work may start again",
    "clear": "nothing: work continues",
    "order_refused": "check the issuer and its key",
    "failures": "find what the failed tasks have in common before you start more",
    "session": "start nothing that can wait, or raise the session's budget",
    "session_urgent": "let running work finish, and start nothing new",
    "task_tokens_urgent": "accept its partial result, or raise max_token_budget now",
    "task_tokens": "let it finish, or raise max_token_budget",
}


def _clear(control: ControlEvent) -> str:
    """Return the command that ends a stop or a pause of the fleet, or a kill of a part of it."""
    account = control.evidence.account if control.evidence is not None else None
    kind, _, name = (account or "").partition(":")
    if kind == "member":
        tenant, _, user = name.partition("/")
        return f"streamproc clear --tenant {tenant} --user {user}"
    return f"streamproc clear --{kind} {name}" if kind and name else "streamproc clear"


def _opening(control: ControlEvent) -> list[str]:
    """Say what was blocked and how it opens, or what a person can choose; nothing for other decisions."""
    seen, task = control.evidence, control.task_id or "the task"
    if seen is None:
        return []
    if seen.options:
        return [f"decide about {task}: {', '.join(seen.options)}"]
    if seen.root:
        return [f"unblock {seen.root} first: {', '.join((seen.chain or [])[1:]) or 'others'} wait for it"]
    if control.type == "transition.blocked":
        state = f"{task} stays in {seen.last_valid}" if seen.last_valid else f"{task} does not move"
        if not seen.missing:
            return [f"{state}: move it through the states in their order"]
        to = f" to {seen.to_state}" if seen.to_state else ""
        missing = ", ".join(seen.missing)
        approval = APPROVAL if control.code in APPROVABLE and "approval" not in missing else ""
        was_sent_back = seen.last_valid and seen.from_state not in (None, seen.last_valid)
        way = ", through the states in their order," if was_sent_back else ""
        return [f"{state}: move it{to}{way} with {missing}{approval}"]
    if control.type == "delegation.rejected" and seen.unit == "tasks":
        return [f"the batch of {seen.count} tasks is rejected: delegate at most {seen.limit} in one cycle"]
    if control.type == "delegation.rejected":
        return ["nothing new is delegated: let running work finish, or raise the budget"]
    return []


def _recommendation(control: ControlEvent, trigger: NotificationTrigger) -> str:
    if trigger.name in _ADVICE_BY_TRIGGER:
        return _ADVICE_BY_TRIGGER[trigger.name].format(clear=_clear(control))
    actions = [action for action in (control.action, *control.suggested_actions) if action]
    opening = _opening(control)
    advice = [ADVICE.get(action, action) for action in dict.fromkeys(actions) if not opening or action != "warn"]
    advice = [*opening, *advice]
    return "; or ".join(advice) or f"investigate: see `streamproc explain {control.code}`"
