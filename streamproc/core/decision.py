"""Findings of detectors, and the decisions that the engine makes of them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from streamproc.model.controls import ControlEvent, ControlEvidence, ControlPolicy, ControlTrigger

Decision: TypeAlias = ControlEvent
"""What the engine decides; its caller calls `set_place`."""
Evidence: TypeAlias = ControlEvidence
Trigger: TypeAlias = ControlTrigger
PolicyRef: TypeAlias = ControlPolicy

OSCILLATING: Final = "oscillating"
STALLED: Final = "stalled"
REPEATED_ERROR: Final = "repeated_error"
BUDGET_EXCEEDED: Final = "budget_exceeded"
USER_STOP: Final = "user_stop"


class Level(IntEnum):
    """Escalation level of an episode."""

    INFO = 0
    WARN = 1
    HALT = 2


class Finding(msgspec.Struct, kw_only=True):
    """The verdict of one detector on one turn or event."""

    code: str
    level: Level
    loop: int  # distinguishes the loops that one detector finds
    message: str
    evidence: Evidence
    reason: str
    status: str  # terminal status of the run if this halts it
    onset: int = -1  # turn in which the loop began; -1: not a loop but, say, a budget or a command
    type: str = ""  # of the decision, if it does not follow from level and reason
    action: str = ""  # if it does not follow from the policy
    anywhere: bool = False  # the turn in which it is found is chance, and no part of the decision's id
    task: str = ""  # task that it is about
    node: str = ""  # if it is not that of the event
    task_status: str = ""  # new status of the task, whatever happens to the run
    stop: str = ""  # short name of the reason to stop, if it is not the kind of the evidence of a halt
    remembered: bool = False  # recorded elsewhere: escalation reports it whenever it is found


def set_place(decision: Decision, topic: str, partition: int, offset: int) -> None:
    """Say where in the log the event stands that caused a decision. Only who has got the decision from the engine may
    do that: for all others it does not change."""
    if decision.trigger is not None:
        for name, value in (("topic", topic), ("partition", partition), ("offset", offset)):
            msgspec.structs.force_setattr(decision.trigger, name, value)


def hex16(value: int) -> str:
    """Return a 64-bit hash as 16 hex digits."""
    return f"{value & 0xFFFFFFFFFFFFFFFF:016x}"


encode_decision = msgspec.json.Encoder().encode
