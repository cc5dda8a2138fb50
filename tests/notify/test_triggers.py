"""Triggers: which control events notify people, with which type and urgency."""

from __future__ import annotations

import orjson
import pytest

from streamproc.detectors import MODULES
from streamproc.fleet import command_events
from streamproc.fleet.state import Fleet, new_command
from streamproc.model.controls import ControlEvent
from streamproc.model.fleet_command import read_command
from streamproc.model.notification import Notification
from streamproc.monitor import Monitor
from streamproc.notify.triggers import TRIGGERS, Urgency, notice_of, trigger_of
from tests.notify.controls import budget, control

WARN = {"severity": "warn", "halt_reason": None, "terminal_status": None, "type": "loop.warning"}


def fleet(status: str, severity: str, **fields: object) -> ControlEvent:
    evidence = {"kind": f"fleet_{status}", "by": "ann", "reason": "deploy"}
    return control(type="fleet.state", run_id="*", code="FLEET001", severity=severity, evidence=evidence, **fields)


@pytest.mark.parametrize(
    ("event", "type_", "urgency"),
    [
        (control(), "LOOP_DETECTED", "HIGH"),
        (control(code="LOOP002", halt_reason="oscillating"), "LOOP_DETECTED", "HIGH"),
        (control(code="GRAPH001", terminal_status="blocked"), "LOOP_DETECTED", "HIGH"),
        (control(code="STALL005", terminal_status="stalled"), "STALL", "HIGH"),
        (control(code="STALL008", halt_reason="oscillating"), "LOOP_DETECTED", "HIGH"),
        (budget("BUDGET008", 80), "BUDGET_WARNING", "MEDIUM"),
        (budget("BUDGET008", 90), "BUDGET_WARNING", "HIGH"),
        (budget("BUDGET009", 95), "BUDGET_WARNING", "HIGH"),
        (budget("BUDGET008", 101, severity="halt"), "BUDGET_EXCEEDED", "HIGH"),
        (budget("BUDGET009", 70), "BUDGET_WARNING", "MEDIUM"),
        (budget("BUDGET009", 101, severity="halt"), "BUDGET_EXCEEDED", "CRITICAL"),
        (control(code="ERROR004", **WARN | {"type": "notification"}), "FAILURE", "HIGH"),
        (control(code="ERROR001", halt_reason="repeated_error"), "FAILURE", "HIGH"),
        (fleet("stop", "halt"), "STOP", "CRITICAL"),
        (fleet("pause", "warn"), "PAUSE", "MEDIUM"),
        (fleet("clear", "info"), "CLEAR", "LOW"),
        (fleet("refused", "warn", node=None), "ORDER_REFUSED", "HIGH"),
        (budget("BUDGET006", 3_600, 3_600, "halt", type="run.timed_out"), "TIMEOUT", "HIGH"),
        (budget("BUDGET007", 501, 500, "halt"), "BUDGET_EXCEEDED", "HIGH"),
        (budget("BUDGET010", 501, 500, "halt"), "BUDGET_EXCEEDED", "HIGH"),
        (budget("BUDGET005", 16, 15, "halt", evidence={"reason": "hard_cap_15_rounds"}), "HARD_CAP", "CRITICAL"),
        (budget("BUDGET005", 8, 7, "halt", evidence={"reason": "max_rounds"}), "BUDGET_EXCEEDED", "MEDIUM"),
        (control(code="TASK008", type="task.escalated", terminal_status="escalated"), "ESCALATION", "CRITICAL"),
        (
            control(code="OPERATOR002", **WARN | {"type": "notification"}, evidence={"kind": "unacknowledged"}),
            "ESCALATION",
            "CRITICAL",
        ),
        (control(code="STALL005", **WARN | {"terminal_status": "stalled"}), "STALL", "HIGH"),
        (control(code="TASK001", **WARN | {"terminal_status": "blocked"}), "LOOP_DETECTED", "HIGH"),
        (control(code="TASK002", **WARN | {"type": "notification"}), "BLOCKED", "HIGH"),
        (control(code="ERROR002", **WARN | {"terminal_status": "blocked"}), "FAILURE", "MEDIUM"),
        (control(code="TASK004", **WARN | {"type": "transition.blocked"}), "BLOCKED", "MEDIUM"),
        (control(code="TASK006", **WARN | {"type": "transition.blocked", "action": "ask_human"}), "BLOCKED", "HIGH"),
        (budget("BUDGET008", 96, severity="warn", evidence={"rung": "hard_stop"}), "BUDGET_EXCEEDED", "HIGH"),
        (control(code="OPERATOR001", halt_reason="user_stop", terminal_status="stopped"), "STOP", "MEDIUM"),
        (control(code="NEW001", halt_reason=None, terminal_status=None), "HALT", "HIGH"),
        (control(**WARN), "LOOP_DETECTED", "LOW"),
    ],
    ids=lambda value: value.code if isinstance(value, ControlEvent) else value,
)
def test_every_trigger_has_its_type_and_urgency(event: ControlEvent, type_: str, urgency: str) -> None:
    trigger = trigger_of(event)

    assert (trigger.type, trigger.urgency.name) == (type_, urgency)


@pytest.mark.parametrize("event", [
    control(code="BUDGET005", **WARN | {"type": "notification", "severity": "info"}),
    control(code="LOOP007", **WARN | {"type": "information.none", "severity": "info"}),
    control(code="OPERATOR002", **WARN | {"type": "run.resumed", "severity": "info"}),
], ids=lambda event: event.type)  # fmt: skip
def test_information_does_not_notify(event: ControlEvent) -> None:
    assert trigger_of(event) is None


@pytest.mark.parametrize(("code", "used"), [("BUDGET008", 79), ("BUDGET009", 69), ("BUDGET008", 71)])
def test_below_the_percentage_it_is_an_ordinary_warning(code: str, used: int) -> None:
    trigger = trigger_of(budget(code, used))

    assert (trigger.name, trigger.urgency) == ("budget_warning", Urgency.LOW)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.DETECTOR.code)
def test_every_halt_of_every_detector_notifies_with_all_fields(module) -> None:
    for example in module.STUCK:
        monitor = Monitor()
        for turn in example.turns:
            for event in monitor.feed(turn, run_id="r"):
                trigger = trigger_of(event)
                if event.halts:
                    assert trigger.name != "halt", "its own row"
                    sent = notice_of(event, trigger, trigger.urgency).notification
                    assert event.code in sent.evidence
                    assert sent.recommendation
                    assert sent.urgency in ("MEDIUM", "HIGH", "CRITICAL")


@pytest.mark.parametrize(
    ("status", "part", "type_"), [("STOP", "fleet", "STOP"), ("STOP", "user", "STOP"), ("PAUSE", "fleet", "PAUSE")]
)
def test_fleet_commands_notify_with_issuer_and_reason(status: str, part: str, type_: str) -> None:
    scope = part if part == "fleet" else f"{part}:mallory"
    given = {"w": 1, "id": "o1", "scope": scope, "status": status, "by": "ann", "why": "runaway", "at": 1}
    event = command_events.state_event(read_command(orjson.dumps(given)))
    trigger = trigger_of(event)

    sent = notice_of(event, trigger, trigger.urgency).notification
    assert sent.type == type_
    assert "by: ann" in sent.evidence
    assert "runaway" in sent.evidence


def test_the_fields_are_those_of_the_requirement() -> None:
    assert list(Notification.model_fields) == ["type", "agent", "task_id", "evidence", "recommendation", "urgency"]
    trigger = trigger_of(control())
    assert trigger is not None

    sent = notice_of(control(), trigger, Urgency.HIGH).notification

    assert (sent.type, sent.agent, sent.task_id, sent.urgency) == ("LOOP_DETECTED", "coder", "T-7", "HIGH")
    assert sent.evidence == (
        "LOOP003 at turn 7: pytest was called 3 times and answered the same. "
        "| tool: pytest (args 00ff) | turns: 3, 5, 7"
    )
    assert sent.recommendation == "switch it to interactive mode and take over; or ask a person"


def test_what_came_before_any_turn_names_none() -> None:
    event = control(trigger={"event_id": "e0", "turn": 0})
    trigger = trigger_of(event)
    assert trigger is not None
    assert notice_of(event, trigger, Urgency.HIGH).notification.evidence.startswith("LOOP003: pytest was called")


def test_evidence_is_one_paragraph_of_a_bounded_length() -> None:
    event = control(message="no\nend " * 5_000)
    trigger = trigger_of(event)
    assert trigger is not None

    evidence = notice_of(event, trigger, Urgency.HIGH).notification.evidence

    assert len(evidence) <= 1_000
    assert "\n" not in evidence


def test_rows_have_unique_names_and_reasons() -> None:
    assert len({trigger.name for trigger in TRIGGERS}) == len(TRIGGERS)
    assert all(len(trigger.reason) > 10 for trigger in TRIGGERS)


@pytest.mark.parametrize(("scope", "command"), [
    ("fleet", "streamproc clear`"), ("user:zoe", "streamproc clear --user zoe`"),
    ("session:s1", "streamproc clear --session s1`"), ("member:acme/zoe", "streamproc clear --tenant acme --user zoe`"),
])  # fmt: skip
def test_a_stop_recommends_the_command_that_ends_it(scope: str, command: str) -> None:
    event = command_events.state_event(new_command(Fleet(), "STOP", scope, "ann", "it loops"))
    trigger = trigger_of(event)
    assert trigger is not None
    assert command in notice_of(event, trigger, trigger.urgency).notification.recommendation
