"""Notifications to people: their fields, their urgency, and their rendering as text and as JSON."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamproc.errors import plural
from streamproc.model.escaping import escape_json, inert

NotificationType = Literal[
    "LOOP_DETECTED", "STALL", "FAILURE", "BUDGET_WARNING", "BUDGET_EXCEEDED", "HARD_CAP", "TIMEOUT", "ESCALATION",
    "STOP", "PAUSE", "CLEAR", "ORDER_REFUSED", "BLOCKED", "HALT", "UNWATCHED", "WATCHED",
]  # fmt: skip
SeedType = Literal["LOOP_DETECTED", "BUDGET_WARNING", "STALL", "FAILURE", ""]
SEED_TYPES: Final[dict[NotificationType, SeedType]] = {
    "LOOP_DETECTED": "LOOP_DETECTED",
    "STALL": "STALL", "BLOCKED": "STALL", "TIMEOUT": "STALL",
    "BUDGET_WARNING": "BUDGET_WARNING", "BUDGET_EXCEEDED": "BUDGET_WARNING", "HARD_CAP": "BUDGET_WARNING",
    "FAILURE": "FAILURE", "ESCALATION": "FAILURE", "HALT": "FAILURE", "STOP": "FAILURE", "ORDER_REFUSED": "FAILURE",
    "UNWATCHED": "FAILURE",
}  # fmt: skip
"""The four types of the tickets requirement, for receivers that know no others. The rest is good news, or a choice."""
UrgencyName = Literal["LOW", "MEDIUM", "HIGH", "CRITICAL"]

LISTED_MAX: Final = 20  # notifications listed in a summary; the others are only counted
SCOPE: Final = ("run_id", "workflow", "tenant", "user", "at")
LINE_MAX: Final = 300  # characters of one line of a summary


class Urgency(IntEnum):
    """How soon a person should look."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Notification(_Model):
    """The fields of every notification. A field without a value is empty text."""

    type: NotificationType
    agent: str = Field(description="the agent that owns the task, or the node whose turn triggered it")
    task_id: str
    evidence: str = Field(description="what was detected, and where")
    recommendation: str = Field(description="what to do, best first")
    urgency: UrgencyName


class Notice(_Model):
    """A notification with its trigger and scope. Webhooks receive it as JSON."""

    notification: Notification
    trigger: str = Field(description="the notification rule that matched")
    seed_type: SeedType = Field("", description="the type among the four of the tickets requirement; empty: none fits")
    run_id: str
    code: str
    control_id: str = Field(description="id of the control event; two notifications with the same id are one")
    workflow: str = ""
    tenant: str = ""
    user: str = ""
    at: str = Field("", description="log time, RFC 3339")
    page_url: str = Field("", description="the decision on the page of the run; empty: the page's address is not set")
    trace_url: str = Field("", description="the trace of the turn that caused it; empty: it is not known")
    repeats: int = Field(0, description="similar notifications suppressed since the last one")
    lost_before: int = Field(0, description="earlier notifications that could not be delivered to this service")

    @property
    def urgency(self) -> Urgency:
        """The urgency as a comparable value."""
        return Urgency[self.notification.urgency]


class Notices(_Model):
    """Several notifications in one webhook message: the most urgent ones, and the count of all."""

    notifications: list[Notice]
    count: int
    lost_before: int = 0


class Message(_Model):
    """A message for a notification service to send."""

    title: str
    body: str
    urgency: Urgency


def message_of(notice: Notice, *, as_json: bool = False, lost: int = 0) -> Message:
    """Render one notification. `lost` is the number of undelivered ones since the last delivered message."""
    notification = notice.notification
    subject = inert(notification.agent or notification.task_id or notice.run_id)
    title = f"{notification.urgency} {notification.type}: {subject}"
    if as_json:
        body = escape_json(notice.model_copy(update={"lost_before": lost}).model_dump_json())
        return Message(title=title, body=body, urgency=notice.urgency)
    lines = [f"{name}: {inert(getattr(notification, name)) or '-'}" for name in Notification.model_fields]
    lines += [f"{name}: {inert(getattr(notice, name))}" for name in SCOPE if getattr(notice, name)]
    links = (("open", notice.page_url), ("trace", notice.trace_url))
    lines += [f"{name}: {address}" for name, address in links if address]  # ours, so services may link them
    if notice.repeats:
        lines.append(f"suppressed since the last one: {notice.repeats} similar")
    return Message(title=title, body="\n".join([*lines, *_lost_lines(lost)]), urgency=notice.urgency)


def summary_of(notices: list[Notice], *, as_json: bool = False, lost: int = 0) -> Message:
    """Render several notifications as one message: the most urgent first, with a count of each type."""
    ordered = sorted(notices, key=lambda notice: -notice.urgency)
    counts = Counter(notice.notification.type for notice in ordered)
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    title = f"{ordered[0].notification.urgency}: {len(ordered)} notifications ({listed})"
    if as_json:
        sent = Notices(notifications=ordered[:LISTED_MAX], count=len(ordered), lost_before=lost)
        return Message(title=title, body=escape_json(sent.model_dump_json()), urgency=ordered[0].urgency)
    lines = [_line(notice) for notice in ordered[:LISTED_MAX]]
    more = [f"and {len(ordered) - LISTED_MAX} more"] if len(ordered) > LISTED_MAX else []
    return Message(title=title, body="\n".join([*lines, *more, *_lost_lines(lost)]), urgency=ordered[0].urgency)


def _lost_lines(lost: int) -> list[str]:
    return [f"{plural(lost, 'earlier notification')} could not be delivered to this service"] if lost else []


def _line(notice: Notice) -> str:
    notification = notice.notification
    head = f"{notification.urgency} {notification.type} {notification.agent or '-'} {notice.run_id}"
    text = f"{head}: {notification.evidence}"
    if notice.trigger == "escalation":  # a person has to choose
        return inert(f"{text} | {notification.recommendation}")
    return inert(text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…")
