"""`Monitor`: the engine in one process."""

from __future__ import annotations

import doctest
import json
import pickle
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel, ValidationError

import streamproc
from streamproc import monitor as module
from streamproc.errors import Halted, InvalidEvent, InvalidPolicy
from streamproc.model.controls import ControlEvent, RunStatus, read_control
from streamproc.monitor import Monitor
from streamproc.policy import load_policy
from tests.feeding import decisions

AGAIN = "I will try again."


def fed(monitor: Monitor, run_id: str, times: int) -> list[tuple[str, str]]:
    found = [control for _ in range(times) for control in monitor.feed(run_id=run_id, node="coder", output=AGAIN)]
    return [(control.code, control.severity) for control in found]


def test_the_docstring_example_holds() -> None:
    assert doctest.testmod(module).attempted > 0
    assert doctest.testmod(module).failed == 0


def test_monitor_is_exported_by_the_package() -> None:
    assert streamproc.Monitor is Monitor
    assert {name: getattr(streamproc, name) for name in streamproc.__all__}
    with pytest.raises(AttributeError, match="no attribute 'Nonesuch'"):
        _ = streamproc.Nonesuch


def test_a_turn_may_be_a_mapping_or_keywords() -> None:
    one, other = Monitor(), Monitor()
    for _ in range(3):
        controls = one.feed({"run_id": "r", "node": "n", "from": "p", "output": AGAIN})
        assert controls == other.feed(run_id="r", node="n", from_="p", output=AGAIN)
    assert controls[0].halts


def test_other_raw_events_are_accepted() -> None:
    monitor = Monitor()
    monitor.feed(type="run.started", run_id="r", budgets={"maxSteps": 1})
    [warning] = monitor.feed(run_id="r", node="n")
    [halt] = monitor.feed(run_id="r", node="n")
    assert (warning.type, halt.type, halt.code) == ("budget.level", "loop.halted", "BUDGET004")
    [stop] = Monitor().feed(type="operator.stop", run_id="r", by="ann", reason="enough")
    assert (stop.code, stop.halt_reason, stop.terminal_status) == ("OPERATOR001", "user_stop", "stopped")
    assert stop.message == "Stopped by ann: enough."


def test_runs_are_kept_apart() -> None:
    monitor = Monitor()
    assert fed(monitor, "a", 1) + fed(monitor, "b", 1) == []
    assert fed(monitor, "a", 2) == [("LOOP001", "warn"), ("LOOP001", "halt")]
    assert fed(monitor, "b", 1) == [("LOOP001", "warn")]


def test_a_bad_turn_changes_nothing() -> None:
    monitor = Monitor()
    fed(monitor, "a", 2)
    with pytest.raises(InvalidEvent, match="node: missing"):
        monitor.feed(run_id="a", output=AGAIN)
    with pytest.raises(InvalidEvent, match="run_id"):
        monitor.feed(node="coder")
    assert fed(monitor, "a", 1) == [("LOOP001", "halt")]


def test_a_policy_may_be_a_name_a_policy_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("presets: [tickets]\n")
    for policy in ("tickets", load_policy("tickets"), path, str(path)):
        assert fed(Monitor(policy), "r", 2)[-1] == ("LOOP001", "halt")
    with pytest.raises(InvalidPolicy):
        Monitor("nonesuch")


def test_beyond_its_cap_the_monitor_evicts_the_run_that_was_idle_longest() -> None:
    monitor = Monitor(runs_max=2)
    fed(monitor, "a", 3)
    fed(monitor, "b", 1)
    fed(monitor, "a", 1)
    fed(monitor, "c", 1)
    assert monitor.evicted == 1
    assert monitor.status("b") is None
    assert monitor.status("a") is not None
    assert fed(monitor, "b", 2) == [("LOOP001", "warn")]


# Unknown fields.


def misspelt(monitor: Monitor, times: int = 1) -> None:
    for _ in range(times):
        monitor.feed(run_id="r", node="n", tool_calls=[{"name": "write", "argumets": {}}], mood="grim")


def test_unknown_fields_are_counted_and_logged_once_for_each_name(caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor()
    assert (monitor.unknown_fields, monitor.unknown_field_counts) == (0, {})
    misspelt(monitor, 3)
    assert monitor.unknown_fields == 6
    assert monitor.unknown_field_counts == {"tool_calls.argumets": 3, "mood": 3}
    assert [record.getMessage() for record in caplog.records] == [
        "ignored the unknown field mood",
        "ignored the unknown field tool_calls.argumets; did you mean arguments?",
    ]


def test_a_strict_monitor_refuses_unknown_fields_and_changes_nothing() -> None:
    monitor = Monitor(strict=True)
    fed(monitor, "r", 2)
    with pytest.raises(InvalidEvent, match=r"tool_calls\.argumets: unknown field \(did you mean arguments\?"):
        misspelt(monitor)
    assert fed(monitor, "r", 1) == [("LOOP001", "halt")]
    assert monitor.unknown_fields == 0


# Status.


def test_a_run_that_was_never_fed_has_no_status() -> None:
    assert Monitor().status("nonesuch") is None


def test_a_status_has_scope_badge_trend_and_spend() -> None:
    monitor = Monitor()
    monitor.feed(type="run.started", run_id="r", workflow="w", tenant="t", user="u", budgets={"maxCycleIterations": 8})
    for n, failing in enumerate((["a", "b", "c"], ["a", "b"], ["a"])):
        monitor.feed(run_id="r", node="coder", output=f"patch {n}", at="2026-01-01T00:00:00Z")
        monitor.feed(run_id="r", node="verifier", tests={"failed": failing, "total": 3}, usage={"input_tokens": 5})
    status = monitor.status("r")
    assert (status.status, status.severity, status.turns) == ("running", "info", 6)
    assert (status.workflow, status.tenant, status.user) == ("w", "t", "u")
    assert (status.badge, status.failing_trend, status.total_tokens) == ("Loop 2/8", [3, 2, 1], 15)
    assert status.at == "2026-01-01T00:00:00.000Z"


def test_a_halted_run_keeps_the_decision_that_halted_it() -> None:
    monitor = Monitor()
    fed(monitor, "r", 5)
    monitor.feed(type="operator.stop", run_id="r")
    status = monitor.status("r")
    assert (status.status, status.severity) == ("halted", "halt")
    assert status.halt.code == "LOOP001"


def test_a_finished_run_is_finished() -> None:
    monitor = Monitor()
    fed(monitor, "r", 1)
    monitor.feed(type="run.finished", run_id="r", status="done")
    status = monitor.status("r")
    assert status.status == "finished"


def test_a_reused_run_id_starts_a_new_run() -> None:
    monitor = Monitor()
    fed(monitor, "r", 2)
    monitor.feed(type="run.finished", run_id="r")
    monitor.feed(type="run.started", run_id="r")
    status = monitor.status("r")
    assert (status.status, status.severity, status.turns, status.halt) == ("running", "info", 0, None)


# Control events.


def test_a_decision_and_its_json_are_the_same_control_event() -> None:
    turns = [{"node": "coder", "output": AGAIN, "labels": {"team": "red"}, "task_id": "7", "user": "u"}] * 3
    for control in decisions(turns):
        assert control == read_control(msgspec.json.encode(control))
        assert control == pickle.loads(pickle.dumps(control)) == control.model_copy()
        assert ControlEvent.model_validate(control.model_dump()) == control
        assert control == ControlEvent.model_validate_json(control.model_dump_json())
        assert (control.labels, control.task_id, control.user) == ({"team": "red"}, "7", "u")


def test_a_control_event_is_the_field_of_a_pydantic_model() -> None:
    class Alarm(BaseModel):
        control: ControlEvent

    [control] = decisions([{"node": "coder", "output": AGAIN}] * 2)
    alarm = Alarm(control=control)
    assert Alarm.model_validate_json(alarm.model_dump_json()) == alarm == Alarm.model_validate(alarm.model_dump())
    with pytest.raises(ValidationError, match="no ControlEvent"):
        Alarm.model_validate({"control": {"id": 1}})


def test_fields_are_chosen_as_of_a_pydantic_model() -> None:
    [control] = decisions([{"node": "coder", "output": AGAIN}] * 2)
    whole = control.model_dump(mode="json")
    assert (whole["labels"], whole["trigger"]["topic"], whole["suggested_actions"]) == (None, None, [])
    assert control.model_dump(exclude={"evidence"}) == {key: one for key, one in whole.items() if key != "evidence"}
    assert control.model_dump(include={"id", "code"}) == {"id": control.id, "code": "LOOP001"}
    assert "topic" not in control.model_dump(exclude_none=True)["trigger"]
    assert control.model_dump(exclude_defaults=True) == json.loads(msgspec.json.encode(control))
    assert json.loads(control.model_dump_json(indent=2)) == whole
    with pytest.raises(TypeError):
        control.model_dump(excluded={"evidence"})  # type: ignore[call-arg]


def test_what_is_no_control_event_is_a_value_error() -> None:
    for raw in (b"", b"{}", b'{"id": 1}', b"\xff", b"[]"):
        with pytest.raises(ValueError, match="no ControlEvent"):
            read_control(raw)


def test_readers_accept_words_of_a_newer_worker() -> None:
    record = msgspec.json.encode(decisions([{"node": "coder", "output": AGAIN}] * 2)[0])
    assert read_control(record.replace(b'"loop.warning"', b'"loop.foreseen"')).type == "loop.foreseen"


def test_readers_ignore_unknown_fields() -> None:
    record = msgspec.json.encode(decisions([{"node": "coder", "output": AGAIN}] * 2)[0])
    newer = record[:-1] + b',"mood":"grim","evidence":{"kind":"repeated_output","smell":1}}'
    assert read_control(newer).code == "LOOP001"
    assert RunStatus.model_validate({"run_id": "r", "status": "running", "mood": "grim"}).severity == "info"


def test_check_raises_at_the_halt_and_ever_after() -> None:
    monitor = Monitor()
    turn = {"run_id": "r1", "node": "coder", "output": "I will try again."}
    assert monitor.check(turn) == []
    assert [control.severity for control in monitor.check(turn)] == ["warn"]
    with pytest.raises(Halted, match=r"^run r1 is halted \(LOOP001\): coder repeated the same output 3") as caught:
        monitor.check(turn)
    assert caught.value.control.code == "LOOP001"
    with pytest.raises(Halted, match="LOOP001"):
        monitor.check(run_id="r1", node="coder", output="Something else.")
    assert monitor.check(run_id="r2", node="coder", output="Something else.") == []


def test_check_goes_on_once_the_run_is_resumed() -> None:
    monitor = Monitor()
    for _ in range(3):
        monitor.feed(run_id="r1", node="coder", output="I will try again.")
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="it waits for a deployment")
    assert monitor.check(run_id="r1", node="coder", output="Done.") == []


def test_a_control_event_prints_what_is_set() -> None:
    monitor = Monitor()
    for _ in range(2):
        controls = monitor.feed(run_id="r1\n", node="coder", output="I will try again.")
    text = str(controls[0])
    assert text.startswith("WARN LOOP001, run r1\\n, turn 1, node coder: ")
    assert "\n  evidence: repeated_output, count 2, match normalised" in text
    assert text.endswith("\n  to do: warn")
    assert "None" not in repr(controls[0])
    assert "severity='warn'" in repr(controls[0])
