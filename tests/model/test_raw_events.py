"""Raw events: what is accepted, what is refused, and what an error says."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.errors import InvalidEvent, Problem
from streamproc.model.budgets import BUDGETS, declared
from streamproc.model.raw_events import (
    DEPTH_MAX,
    EPOCH_MS_MIN,
    RawCycleCompleted,
    RawDeadline,
    RawFeedback,
    RawHaltAcknowledged,
    RawOperatorResume,
    RawOperatorStop,
    RawRunFinished,
    RawRunStarted,
    RawTaskCreated,
    RawTaskDelegated,
    RawTaskTransition,
    RawTaskVerdict,
    RawTurn,
    RawTurnStarted,
    RawUserMessage,
    parse_line,
    parse_raw,
)

TURN = {"run_id": "r", "node": "n"}
START = {"type": "run.started", "run_id": "r"}
INFINITY, NAN = float("inf"), float("nan")
HALF = "\ud800"  # half of a surrogate pair: Python text that UTF-8 cannot encode


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def in_itself() -> list[Any]:
    value: list[Any] = []
    value += [value, value]
    return value


def problems(raw: Any) -> tuple[Problem, ...]:
    with pytest.raises(InvalidEvent) as refusal:
        parse_raw(raw)
    return refusal.value.problems


BAD_LINES: list[tuple[bytes | str, str, str]] = [
    (b"", "event", "not JSON"), (b"\xff\xfe{}", "event", "not JSON"), (b'{"run_id": "r"', "event", "not JSON"),
    ("half a pair: \ud800", "event", "not JSON"), (b'{"run_id": "\\ud800", "node": "n"}', "event", "not JSON"),
    (b"null", "event", "expected a JSON object, got NoneType"), (b"[1]", "event", "expected a JSON object, got list"),
    (b'{"run_id":"r","node":"n","usage":{"cost_usd":NaN}}', "event", "not JSON"),
    (b'{"run_id":"r","node":"n","usage":{"duration_ms":1e999}}', "event", "not JSON"),
    (b'{"run_id":"r","node":"n","progress":{"score":Infinity}}', "event", "not JSON"),
    (b"[" * 100_000, "event", "more than"), (b'{"a":' * 10_000, "event", "not JSON"),
    (b'{"run_id":"r","node":"n","output":' + b"[" * 500 + b"]" * 500 + b"}", "output", "nested deeper"),
]  # fmt: skip

BAD_RAW: list[tuple[Any, str, str]] = [
    ({}, "run_id", "missing"), ({"run_id": "r"}, "node", "missing"),
    ({"run_id": None, "node": "n"}, "run_id", "missing"), ({"run_id": "", "node": "n"}, "run_id", "at least 1"),
    ({"run_id": 5, "node": "n"}, "run_id", "string"), (TURN | {"run_id": "x" * 257}, "run_id", "longer than 256 bytes"),
    (TURN | {"run_id": "é" * 129}, "run_id", "longer than 256 bytes"),
    (TURN | {"run_id": HALF}, "run_id", "not valid Unicode"), (TURN | {"node": ""}, "node", "at least 1"),
    (TURN | {"node": ["n"]}, "node", "string"), (TURN | {"event_id": "x" * 257}, "event_id", "longer than 256 bytes"),
    (TURN | {"event_id": HALF}, "event_id", "not valid Unicode"), (TURN | {"from": HALF}, "from", "not valid Unicode"),
    (TURN | {"workflow": "x" * 129}, "workflow", "128"), (TURN | {"model": HALF}, "model", "not valid Unicode"),
    (TURN | {"labels": {"team": 5}}, "labels.team", "string"),
    (TURN | {"labels": {"team": HALF}}, "labels.team", "not valid Unicode"),
    ({"type": "turn.stopped", "run_id": "r"}, "type", "'turn.stopped' is not a known type"),
    ({"type": 7, "run_id": "r"}, "type", "7 is not a known type"),
    ({"type": "x" * 10_000, "run_id": "r"}, "type", "10000 characters"),
    (TURN | {"at": "9999-12-31T23:59:59Z"}, "at", "outside the years 2000 to 2100"),
    (TURN | {"at": "1999-12-31T23:59:59Z"}, "at", "outside the years 2000 to 2100"),
    (TURN | {"at": 1_767_225_600}, "at", "outside the years 2000 to 2100"),
    (TURN | {"at": 10**5_000}, "at", "outside the years 2000 to 2100"),
    (TURN | {"at": INFINITY}, "at", "outside the years 2000 to 2100"),
    (TURN | {"at": NAN}, "at", "outside the years 2000 to 2100"), (TURN | {"at": "yesterday"}, "at", "not a time"),
    (TURN | {"at": ""}, "at", "not a time"), (TURN | {"at": True}, "at", "not a time"),
    (TURN | {"at": [2026]}, "at", "not a time"), (TURN | {"seq": -1}, "seq", "greater than or equal to 0"),
    (TURN | {"seq": 2**53 + 1}, "seq", "less than or equal"), (TURN | {"seq": 10**5_000}, "seq", "less than or equal"),
    (TURN | {"seq": 1.5}, "seq", "integer"), (TURN | {"usage": {"cost_usd": -0.01}}, "usage.cost_usd", "between 0 and"),
    (TURN | {"usage": {"cost_usd": NAN}}, "usage.cost_usd", "between 0 and"),
    (TURN | {"usage": {"cost_usd": "NaN"}}, "usage.cost_usd", "between 0 and"),
    (TURN | {"usage": {"cost_usd": "sNaN"}}, "usage.cost_usd", "between 0 and"),
    (TURN | {"usage": {"cost_usd": "-inf"}}, "usage.cost_usd", "between 0 and"),
    (TURN | {"usage": {"cost_usd": "1e999999999"}}, "usage.cost_usd", "between 0 and"),
    (TURN | {"usage": {"cost_usd": "9" * 5_000}}, "usage.cost_usd", "between 0 and"),
    (TURN | {"usage": {"cost_usd": 10**5_000}}, "usage.cost_usd", "expected USD"),
    (TURN | {"usage": {"cost_usd": "free"}}, "usage.cost_usd", "expected USD"),
    (TURN | {"usage": {"cost_usd": True}}, "usage.cost_usd", "expected USD"),
    (TURN | {"usage": {"input_tokens": -5}}, "usage.input_tokens", "greater than or equal to 0"),
    (TURN | {"usage": {"total_tokens": 2**60}}, "usage.total_tokens", "less than or equal"),
    (TURN | {"usage": {"duration_ms": INFINITY}}, "usage.duration_ms", "finite"),
    (TURN | {"usage": {"duration_ms": NAN}}, "usage.duration_ms", "finite"),
    (TURN | {"usage": {"duration_ms": 1e300}}, "usage.duration_ms", "less than or equal"),
    (TURN | {"usage": "expensive"}, "usage", "dictionary"), (TURN | {"output": {"text": "x"}}, "output", "string"),
    (TURN | {"artifact": 5}, "artifact", "dictionary"), (TURN | {"artifact": {"a.py": 5}}, "artifact.a.py", "string"),
    (TURN | {"tests": {"failed": "t1"}}, "tests.failed", "list"),
    (TURN | {"tests": {"failed": ["t1", None]}}, "tests.failed[1]", "string"),
    (TURN | {"tests": {"passed": "many"}}, "tests.passed", "integer"),
    (TURN | {"progress": {"score": NAN}}, "progress.score", "finite"),
    (TURN | {"progress": {"score": "good"}}, "progress.score", "number"),
    (TURN | {"progress": ["score"]}, "progress", "dictionary"), (TURN | {"errors": 5}, "errors", "list"),
    (TURN | {"errors": [5]}, "errors[0]", "dictionary"),
    (TURN | {"errors": [{"retryable": True}]}, "errors[0].message", "missing"),
    (TURN | {"tool_calls": {"name": "ls"}}, "tool_calls", "list"),
    (TURN | {"tool_calls": [{"args": {}}]}, "tool_calls[0].name", "missing"),
    (TURN | {"tool_calls": [{"name": HALF}]}, "tool_calls[0].name", "not valid Unicode"),
    (TURN | {"tool_calls": [{"name": "x" * 257}]}, "tool_calls[0].name", "longer than 256 bytes"),
    (TURN | {"decision": {"reason": "because"}}, "decision.next", "missing"),
    (TURN | {"convergence": 1.5}, "convergence", "less than or equal to 1"),
    (TURN | {"structured_output": nested(DEPTH_MAX + 1)}, "structured_output", "nested deeper"),
    (TURN | {"structured_output": nested(100_000)}, "structured_output", "nested deeper"),
    (TURN | {"tool_calls": [{"name": "t", "args": in_itself()}]}, "tool_calls", "nested deeper"),
    (TURN | {7: "seven"}, "[7]", "string"),
    (START | {"budgets": {"maxStepz": 5}}, "budgets.maxStepz", "no such budget"),
    (START | {"budgets": {"maxSteps": 0}}, "budgets.maxSteps", "more than 0"),
    (START | {"budgets": {"maxSteps": 2.5}}, "budgets.maxSteps", "whole number"),
    (START | {"budgets": {"maxSteps": "many"}}, "budgets.maxSteps", "whole number"),
    (START | {"budgets": {"maxSteps": True}}, "budgets.maxSteps", "whole number"),
    (START | {"budgets": {"maxSteps": INFINITY}}, "budgets.maxSteps", "whole number"),
    (START | {"budgets": {"maxSteps": 10**5_000}}, "budgets.maxSteps", "more than 0"),
    (START | {"budgets": {"maxCostUsd": "-1"}}, "budgets.maxCostUsd", "between 0 and"),
    (START | {"budgets": [5]}, "budgets", "expected an object"), (START | {"graph": ["a", "b"]}, "graph", "dictionary"),
    (START | {"graph": {"nodes": [object()]}}, "graph", "not JSON"),
    (START | {"graph": {"nodes": [HALF]}}, "graph", "not JSON"),
    ({"type": "operator.resume", "run_id": "r", "grant": object()}, "grant", "expected an object"),
    ({"type": "deadline", "run_id": "r", "due_at": "soon"}, "due_at", "not a time"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "field", "what"), BAD_LINES, ids=lambda value: repr(value)[:40])
def test_a_bad_line_is_refused_with_field_and_remedy(line: bytes | str, field: str, what: str) -> None:
    with pytest.raises(InvalidEvent) as refusal:
        parse_line(line)
    [problem] = refusal.value.problems
    assert problem.field == field
    assert what in problem.what
    assert problem.remedy


@pytest.mark.parametrize(("raw", "field", "what"), BAD_RAW, ids=range(len(BAD_RAW)))
def test_a_bad_value_is_refused_with_field_and_remedy(raw: Any, field: str, what: str) -> None:
    found = {problem.field: problem for problem in problems(raw)}
    assert field in found
    assert what in found[field].what
    assert found[field].remedy
    assert all(len(problem.what) < 400 for problem in found.values())


def test_all_problems_of_an_event_are_reported_together() -> None:
    raw = {"run_id": "", "at": "soon", "usage": {"cost_usd": -1}, "tool_calls": [{}, {"name": 5}]}
    assert {problem.field for problem in problems(raw)} == {
        "run_id", "node", "at", "tool_calls[0].name", "tool_calls[1].name", "usage.cost_usd",
    }  # fmt: skip


def test_an_error_reads_as_a_sentence() -> None:
    with pytest.raises(InvalidEvent, match=r"at: outside the years 2000 to 2100, got 5 \(send milliseconds since 1970"):
        parse_raw(TURN | {"at": 5})


def test_a_huge_bad_value_is_shortened() -> None:
    [problem] = problems(TURN | {"output": ["x" * 10_000_000]})
    assert len(problem.what) < 200
    assert "(list, 10000004 characters)" in problem.what


NULLS = [
    *({name: None} for name in RawTurn.model_fields if name not in ("run_id", "node")), {"from": None},
    {"tests": {"failed": None, "passed": None, "total": None}},
    {"usage": {"input_tokens": None, "cost_usd": None, "duration_ms": None}},
    {"errors": [{"message": "boom", "class": None, "retryable": None}]},
    {"tool_calls": [{"name": "t", "args": None, "result": None, "error": None, "id": None, "retryable": None}]},
    {"progress": {"score": None}}, {"labels": {"team": None}}, {"artifact": {"a.py": None}},
    {"decision": {"next": "n", "reason": None}},
]  # fmt: skip


@pytest.mark.parametrize("nulls", NULLS, ids=str)
def test_a_null_is_a_missing_field(nulls: dict[str, Any]) -> None:
    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(inner) for name, inner in value.items() if inner is not None}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    parsed = parse_raw(TURN | nulls)
    assert parsed == parse_raw(TURN | without(nulls))
    assert parsed.unknown == 0


def test_a_null_budget_is_absent() -> None:
    started = parse_raw(START | {"budgets": {"maxSteps": None, "maxTokens": 5}})
    assert isinstance(started, RawRunStarted)
    assert started.budgets == {"maxTokens": 5}


def test_unknown_fields_are_ignored_and_counted() -> None:
    assert parse_raw(TURN | {"temperature": 0.5, "unknown": 1, "model_extra": 2, "__class__": 3}).unknown == 4
    assert parse_raw(TURN).unknown == 0


@pytest.mark.parametrize(("raw", "model"), [
    (TURN, RawTurn), (TURN | {"type": "turn"}, RawTurn), (START, RawRunStarted),
    ({"type": "run.finished", "run_id": "r", "status": "done"}, RawRunFinished),
    ({"type": "user.message", "run_id": "r"}, RawUserMessage),
    ({"type": "operator.stop", "run_id": "r", "by": "ann"}, RawOperatorStop),
    ({"type": "task.created", "run_id": "r", "task_id": "T1"}, RawTaskCreated),
    ({"type": "task.delegated", "run_id": "r", "tasks": ["T1"]}, RawTaskDelegated),
    ({"type": "task.transition", "run_id": "r", "task_id": "T1", "to": "DONE"}, RawTaskTransition),
    ({"type": "task.verdict", "run_id": "r", "task_id": "T1", "verdict": "APPROVED"}, RawTaskVerdict),
    ({"type": "cycle.completed", "run_id": "r", "completed": 1}, RawCycleCompleted),
    ({"type": "operator.resume", "run_id": "r", "grant": {"turns": 5}}, RawOperatorResume),
    ({"type": "halt.acknowledged", "run_id": "r", "by": "ann"}, RawHaltAcknowledged),
    ({"type": "feedback", "run_id": "r", "verdict": "false-alarm"}, RawFeedback),
    ({"type": "turn.started", "run_id": "r", "node": "n"}, RawTurnStarted),
    ({"type": "deadline", "run_id": "r", "about": "STALL007"}, RawDeadline),
])  # fmt: skip
def test_each_type_has_its_model(raw: dict[str, Any], model: type) -> None:
    assert type(parse_raw(raw)) is model


@pytest.mark.parametrize(("at", "ms"), [
    ("2026-01-01T00:00:00Z", 1_767_225_600_000), ("2026-01-01T00:00:00.250Z", 1_767_225_600_250),
    ("2026-01-01T02:00:00+02:00", 1_767_225_600_000), ("2026-01-01 00:00:00", 1_767_225_600_000),
    (1_767_225_600_000, 1_767_225_600_000), (1_767_225_600_000.9, 1_767_225_600_000), (EPOCH_MS_MIN, EPOCH_MS_MIN),
])  # fmt: skip
def test_a_time_is_read_in_every_documented_form(at: str | float, ms: int) -> None:
    assert parse_raw(TURN | {"at": at}).at == ms


@pytest.mark.parametrize(
    ("cost", "micro"),
    [("0.50", 500_000), (0.1, 100_000), (2, 2_000_000), ("1e-6", 1), ("0.0000004", 0), ("1e-999999999", 0), (0, 0),
     (" 1.5 ", 1_500_000), (10**9, 10**15)],
)  # fmt: skip
def test_cost_is_kept_in_micro_usd(cost: Any, micro: int) -> None:
    turn = parse_raw(TURN | {"usage": {"cost_usd": cost}})
    assert isinstance(turn, RawTurn)
    assert turn.usage.cost_usd == micro


@pytest.mark.parametrize("errors", ["boom", ["boom"], ("boom",), {"message": "boom"}, [{"message": "boom"}]], ids=repr)
def test_errors_may_be_texts_or_objects(errors: Any) -> None:
    turn = parse_raw(TURN | {"errors": errors})
    assert isinstance(turn, RawTurn)
    assert turn.errors is not None
    assert [report.message for report in turn.errors] == ["boom"]


def test_budgets_are_accepted_under_all_their_names() -> None:
    budgets = {"max_turns_per_node": 6, "recursionLimit": 55, "maxCostUsd": "1.50", "MAX-TOKENS": 9.0}
    started = parse_raw(START | {"budgets": budgets})
    assert isinstance(started, RawRunStarted)
    assert started.budgets == {"maxTurnsPerNode": 6, "maxSteps": 55, "maxCostUsd": 1_500_000, "maxTokens": 9}


@pytest.mark.parametrize("rounds", [1, 4, 16, 50])
def test_a_budget_out_of_its_range_is_refused_with_field_and_remedy(rounds: int) -> None:
    with pytest.raises(InvalidEvent, match=r"budgets\.maxRounds: expected 5 to 15 rounds, got \d+ \(declare 5 to 15"):
        parse_raw(START | {"budgets": {"maxRounds": rounds}})
    assert declared({"maxRounds": rounds}) == {}


def test_nesting_up_to_the_limit_is_accepted() -> None:
    wide = [[[n] for n in range(200)] for _ in range(200)]
    for value in (nested(DEPTH_MAX), wide):
        turn = parse_raw(TURN | {"structured_output": value})
        assert isinstance(turn, RawTurn)
        assert turn.structured_output == value


def test_from_may_be_written_as_from_underscore() -> None:
    turn = parse_raw(TURN | {"from_": "planner"})
    assert isinstance(turn, RawTurn)
    assert turn == parse_raw(TURN | {"from": "planner"})
    assert turn.from_ == "planner"


def test_a_declared_budget_counts_under_its_own_name_only() -> None:
    names = [budget.name for budget in BUDGETS if budget.declarable]
    assert declared(dict.fromkeys(names, 10)).keys() == set(names)
    assert declared({name.upper(): 10 for name in names if name.upper() != name}) == {}
    assert declared({alias: 10 for budget in BUDGETS for alias in budget.aliases if alias != budget.name}) == {}
    assert declared({budget.name: 10 for budget in BUDGETS if not budget.declarable}) == {}
