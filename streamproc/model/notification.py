"""What a person is told: six fields, how urgent it is, and how it reads as text and as JSON."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

NotificationType = Literal[
    "LOOP_DETECTED", "STALL", "FAILURE", "BUDGET_WARNING", "BUDGET_EXCEEDED", "HARD_CAP", "TIMEOUT", "ESCALATION",
    "STOP", "PAUSE", "CLEAR", "ORDER_REFUSED", "BLOCKED", "HALT",
]  # fmt: skip
UrgencyName = Literal["LOW", "MEDIUM", "HIGH", "CRITICAL"]

LISTED_MAX: Final = 20  # notifications in a summary; the rest is counted in it
SCOPE: Final = ("run_id", "workflow", "tenant", "user", "at")
LINE_MAX: Final = 300  # characters of one of them


class Urgency(IntEnum):
    """How soon somebody should look."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Notification(_Model):
    """The fields of every notification. Empty text where nothing is known."""

    type: NotificationType
    agent: str = Field(description="the node whose turn was the trigger")
    task_id: str
    evidence: str = Field(description="what was seen, and where")
    recommendation: str = Field(description="what to do, best first")
    urgency: UrgencyName


class Notice(_Model):
    """A notification, and what it is about. Also the JSON that webhooks get."""

    notification: Notification
    trigger: str = Field(description="which rule of the table asked for it")
    run_id: str
    code: str
    control_id: str = Field(description="id of the control event: the same id twice is one notification")
    workflow: str = ""
    tenant: str = ""
    user: str = ""
    at: str = Field("", description="log time, RFC 3339")
    repeats: int = Field(0, description="how many alike were held back since the last one")
    lost_before: int = Field(0, description="notifications that could not be delivered here before this one")

    @property
    def urgency(self) -> Urgency:
        """For comparisons."""
        return Urgency[self.notification.urgency]


class Notices(_Model):
    """Several notifications in one message for a webhook: the most urgent ones, and how many there are in all."""

    notifications: list[Notice]
    count: int
    lost_before: int = 0


class Message(_Model):
    """What a service is asked to send."""

    title: str
    body: str
    urgency: Urgency


def message_of(notice: Notice, *, as_json: bool = False, lost: int = 0) -> Message:
    """One notification as a message. `lost` were given up since the last message that went through."""
    said = notice.notification
    title = f"{said.urgency} {said.type}: {said.agent or said.task_id or notice.run_id}"
    if as_json:
        body = notice.model_copy(update={"lost_before": lost}).model_dump_json()
        return Message(title=title, body=body, urgency=notice.urgency)
    lines = [f"{name}: {getattr(said, name) or '-'}" for name in Notification.model_fields]
    lines += [f"{name}: {getattr(notice, name)}" for name in SCOPE if getattr(notice, name)]
    if notice.repeats:
        lines.append(f"held back since the last one: {notice.repeats} alike")
    return Message(title=title, body="\n".join([*lines, *_told_of(lost)]), urgency=notice.urgency)


def summary_of(notices: list[Notice], *, as_json: bool = False, lost: int = 0) -> Message:
    """Several notifications as one message: the most urgent first, and how many there are of each type."""
    ordered = sorted(notices, key=lambda notice: -notice.urgency)
    counts = Counter(notice.notification.type for notice in ordered)
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    title = f"{ordered[0].notification.urgency}: {len(ordered)} notifications ({listed})"
    if as_json:
        body = Notices(notifications=ordered[:LISTED_MAX], count=len(ordered), lost_before=lost).model_dump_json()
        return Message(title=title, body=body, urgency=ordered[0].urgency)
    lines = [_line(notice) for notice in ordered[:LISTED_MAX]]
    more = [f"and {len(ordered) - LISTED_MAX} more"] if len(ordered) > LISTED_MAX else []
    return Message(title=title, body="\n".join([*lines, *more, *_told_of(lost)]), urgency=ordered[0].urgency)


def _told_of(lost: int) -> list[str]:
    return [f"{lost} earlier notification(s) could not be delivered here"] if lost else []


def _line(notice: Notice) -> str:
    said = notice.notification
    text = f"{said.urgency} {said.type} {said.agent or '-'} {notice.run_id}: {said.evidence}"
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
