"""Never run: ``mypy --strict`` reads it to hold the types of the public API.

Every `type: ignore` is a check too: mypy reports it as unused if the line becomes valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, assert_type

from streamproc import (
    BlockingHaltListener,
    BlockingTurnPublisher,
    ControlEvent,
    Halted,
    HaltListener,
    InvalidEvent,
    InvalidGraph,
    InvalidPolicy,
    Monitor,
    StreamprocError,
    TurnPublisher,
    UnsafeCycle,
    check_graph,
    load_policy,
)
from streamproc.client import Guard
from streamproc.core.decision import Decision
from streamproc.core.engine import Engine
from streamproc.core.graph import CycleShape
from streamproc.errors import Problem
from streamproc.fingerprint import fingerprint, read_event
from streamproc.model.controls import ControlEvidence, ControlTrigger, RunStatus, read_control
from streamproc.model.fleet_command import FleetCommand
from streamproc.model.raw_events import RawEvent, parse_line, parse_raw
from streamproc.model.wire import Event, decode, encode
from streamproc.policy import Policy


def in_one_process() -> None:
    monitor = Monitor(policy="policy.yaml")
    Monitor(load_policy("standard"), runs_max=5)
    assert_type(Monitor(strict=True).unknown_field_counts, Mapping[str, int])
    controls = monitor.feed(run_id="r", node="coder", output="...", from_="planner", tests={"failed": ["t"]})
    assert_type(controls, list[ControlEvent])
    assert_type(monitor.feed({"run_id": "r", "node": "coder"}), list[ControlEvent])
    assert_type(monitor.status("r"), RunStatus | None)
    assert_type(monitor.policy, Policy)
    Monitor(policy=5)  # type: ignore[arg-type]


def control_events(control: ControlEvent) -> None:
    assert_type(control.id, str)
    assert_type(control.code, str)
    assert_type(control.halts, bool)
    assert_type(control.onset, int | None)
    assert_type(control.evidence, ControlEvidence | None)
    assert_type(control.trigger, ControlTrigger | None)
    assert_type(control.suggested_actions, list[str])
    assert_type(control.labels, dict[str, str] | None)
    assert_type(read_control(b"{}"), ControlEvent)
    _ = control.severity == "fatal"  # type: ignore[comparison-overlap]
    control.code = "LOOP001"  # type: ignore[misc]


async def distributed() -> None:
    async with TurnPublisher("localhost:9092") as turns, HaltListener("localhost:9092") as halts:
        assert_type(turns, TurnPublisher)
        guard = halts.guard("r")
        assert_type(guard, Guard)
        async with guard:
            sent = await turns.turn(run_id="r", node="coder", output="...", usage={"cost_usd": "0.01"}, at=None)
            assert_type(sent, str)
            halts.check("r")
            assert_type(await guard.ready(), None)
        assert_type(halts.halted("r"), ControlEvent | None)
        assert_type(halts.fleet.status, Literal["STOP", "PAUSE", "CLEAR"])
        assert_type(halts.fleet.command, FleetCommand | None)
        assert_type(halts.fleet.command, FleetCommand | None)
        await turns.run_started(run_id="r", tier="free", budgets={"maxSteps": 55})
        await turns.turn_started(run_id="r", node="coder", task_id="T1")
        await turns.run_finished(run_id="r", status="done")
        await turns.user_message(run_id="r")
        await turns.operator_stop(run_id="r", by="ann")
        await turns.operator_resume(run_id="r", grant={"turns": 10, "cost": "0.50"}, by="ann")
        await turns.halt_acknowledged(run_id="r", by="ann")
        await turns.feedback(run_id="r", verdict="right", by="ann")
        await turns.feedback(run_id="r", verdict="wrong")  # type: ignore[arg-type]
        await turns.turn(run_id="r")  # type: ignore[call-arg]
        await turns.turn(run_id="r", node="coder", outputs="...")  # type: ignore[call-arg]
        await turns.turn(run_id="r", node="coder", output=5)  # type: ignore[arg-type]


def distributed_and_blocking() -> None:
    with BlockingTurnPublisher("localhost:9092") as turns, BlockingHaltListener("localhost:9092") as halts:
        assert_type(turns.turn(run_id="r", node="coder", output="..."), str)
        halts.check("r")
        assert_type(halts.guard("r", user="ann").ready(timeout_s=1.0), bool)


def errors() -> None:
    try:
        parse_raw({})
    except InvalidEvent as refusal:
        assert_type(refusal.problems, tuple[Problem, ...])
    except InvalidPolicy as refusal_of_policy:
        assert_type(refusal_of_policy.problems, tuple[Problem, ...])
    except StreamprocError:
        pass
    except Halted as halt:
        assert_type(halt.run_id, str)
        assert_type(halt.control, ControlEvent | None)


def graphs(compiled: object) -> None:
    cycles = check_graph({"edges": [["a", "b"], ["b", "end"]]})
    assert_type(cycles, list[CycleShape])
    assert_type(cycles[0].nodes, tuple[str, ...])
    check_graph(compiled)  # NetworkX and LangGraph graphs are recognised by their attributes
    try:
        check_graph({})
    except UnsafeCycle as refusal:
        assert_type(refusal.cycles, tuple[tuple[str, ...], ...])
    except InvalidGraph as refusal_of_graph:
        assert_type(refusal_of_graph, InvalidGraph)
    TurnPublisher("localhost:9092", on_unsafe="publish", strict=True)
    TurnPublisher("localhost:9092", on_unsafe="ignore")  # type: ignore[arg-type]


def one_pure_function(policy: Policy, state: bytes, event: Event) -> None:
    engine = policy.engine()
    assert_type(engine, Engine)
    assert_type(engine.step(state, event, None).decisions, list[Decision])
    assert_type(policy.hash, str)
    assert_type(policy.effective(workflow="w"), dict[str, Any])


def the_edges() -> None:
    raw = parse_line(b"{}")
    assert_type(raw, RawEvent)
    assert_type(fingerprint(raw, include_content=True), Event)
    assert_type(read_event(b""), Event)
    assert_type(decode(encode(fingerprint(raw))), Event)
