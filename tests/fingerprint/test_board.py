"""Board events: aliases of their fields, and the form of evidence on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.errors import InvalidEvent
from streamproc.fingerprint import fingerprint
from streamproc.fingerprint.board import approver, proof
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw
from streamproc.model.wire import Proof


def event(kind: str, **fields: Any) -> Any:
    made = fingerprint(parse_raw({"type": kind, "run_id": "r", **fields}))
    assert wire.decode(wire.encode(made)) == made
    return made


@pytest.mark.parametrize("name", ["depends_on", "dependsOn", "dependencies", "Depends On", "blocked-by", "deps"])
@pytest.mark.parametrize("value", [["T0"], "T0", [{"task_id": "T0"}], [{"id": "T0", "title": "x"}], {"ticket": "T0"}])
def test_dependencies_have_aliases(name: str, value: Any) -> None:
    assert event("task.created", task_id="T1", **{name: value}).depends_on == ("T0",)


@pytest.mark.parametrize("name", ["task_id", "taskId", "task", "ticket", "Ticket ID", "id"])
def test_a_task_id_has_aliases(name: str) -> None:
    assert event("task.verdict", **{name: "T1"}, verdict="no").task_id == "T1"
    assert event("task.transition", **{name: 17}, to="DONE").task_id == "17"


@pytest.mark.parametrize("value", [True, "yes", "Yes", "true", 1])
def test_ui_touching_accepts_words(value: Any) -> None:
    assert event("task.created", task_id="T", **{"UI Touching": value}).ui_touching is True
    assert event("task.created", task_id="T", ui="no").ui_touching is False
    assert event("task.created", task_id="T").ui_touching is None


@pytest.mark.parametrize(("word", "meant"), [
    ("APPROVED", "APPROVED"), ("approve", "APPROVED"), ("Pass", "APPROVED"), (True, "APPROVED"), ("LGTM", "APPROVED"),
    ("REJECTED", "REJECTED"), ("rejected", "REJECTED"), ("changes requested", "REJECTED"), (False, "REJECTED"),
    ("later", "LATER"),
])  # fmt: skip
def test_verdicts_have_synonyms(word: Any, meant: str) -> None:
    assert event("task.verdict", task_id="T", approved=word).verdict == meant


@pytest.mark.parametrize(("fields", "tasks", "count"), [
    ({"tasks": ["a", "b"]}, ("a", "b"), 2), ({"batch": [{"id": "a"}, {"id": 7}]}, ("a", "7"), 2),
    ({"task_id": "a"}, ("a",), 1), ({"batch_size": 4}, (), 4), ({"tasks": ["a", "a"]}, ("a", "a"), 1),
    ({"tasks": ["a"], "count": 9}, ("a",), 9), ({}, (), 0), ({"tasks": 4}, (), 4),
])  # fmt: skip
def test_a_batch_is_counted(fields: dict[str, Any], tasks: tuple[str, ...], count: int) -> None:
    made = event("task.delegated", agent="x", maxTokenBudget=900, **fields)
    assert (made.tasks, made.count, made.max_token_budget) == (tasks, count, 900)


def test_a_batch_of_thousands_is_truncated_and_counted() -> None:
    made = event("task.delegated", tasks=[f"T{n}" for n in range(5_000)])
    assert (len(made.tasks), made.count) == (256, 5_000)


@pytest.mark.parametrize(("value", "count"), [(0, 0), (3, 3), ([], 0), (["T1", {"id": "T2"}], 2), (None, None)])
def test_completed_is_read_as_a_number(value: Any, count: int | None) -> None:
    assert event("cycle.completed", tasks_completed=value).completed == count


def test_unreadable_moves_of_a_cycle_are_ignored() -> None:
    moves = [
        {"task_id": "T1", "from": "A", "to": "B"}, {"id": 2, "status": "DONE"}, {"to": "B"}, "T3", None, {"id": "T4"},
        {"id": "T5", "to": " "},
    ]  # fmt: skip
    assert event("cycle.completed", transitions=moves).moved == (("T1", "B"), ("2", "DONE"))


def test_many_completed_tasks_crowd_out_no_move() -> None:
    listed = [f"T{n}" for n in range(5_000)]
    made = event("cycle.completed", completed=listed, transitions=[{"id": "A", "to": "DONE"}])
    assert made.completed == 5_000
    assert made.moved[:2] == (("A", "DONE"), ("T0", ""))


@pytest.mark.parametrize(("value", "expected"), [
    (True, Proof(True, verdict="APPROVED")),
    (False, Proof(False)),
    ("passed", Proof(True, verdict="APPROVED")),
    ("missing", Proof(False, verdict="MISSING")),
    ("docs/dod.yaml", Proof(True, items=("docs/dod.yaml",))),
    (["mockup", "spec"], Proof(True, items=("mockup", "spec"))),
    ([], Proof(False)),
    ([{"name": "tests", "status": True}, {"name": "docs", "status": False}], Proof(False, ("docs",), ("tests",))),
    ({"verdict": "approved", "items": {"a": True}}, Proof(True, items=("a",), verdict="APPROVED")),
    ({"verdict": "PENDING"}, Proof(False, verdict="PENDING")),
    ({"approved": True, "items": ["a"]}, Proof(True, items=("a",), verdict="APPROVED")),
    ({"status": "approved"}, Proof(True, verdict="APPROVED")),
    ({"allPassed": False, "items": {"a": True}}, Proof(False, items=("a",))),
    ({"allPassed": True, "missing": ["b"]}, Proof(False, ("b",))),
    ({"path": "docs/x.yaml", "reviewer": "ann"}, Proof(False)),
    ({"lint": "ok", "ci": "failed"}, Proof(False, ("ci",), ("lint",))),
    ({"verdict": " Approved "}, Proof(True, verdict="APPROVED")),
    ({"verdict": "ok"}, Proof(True, verdict="OK")),
    ({"verdict": "changes requested"}, Proof(False, verdict="REJECTED")),
    ({"approval": "ok"}, Proof(True, verdict="APPROVED")),
    ({"items": {"a": [{"name": "b", "status": False}], "c": ["d"]}}, Proof(False, ("b",), ("c",))),
    ({"items": [{"id": "a", "ok": False, "items": {"b": False}}]}, Proof(False, ("b", "a"))),
    ({"items": {"a": []}, "reviewers": ["ann"]}, Proof(True, items=("a",))),
    ({"reviewers": ["ann"], "sections": [{"items": [{"name": "a", "status": True}]}]}, Proof(False)),
    ({"items": [{"name": "a", "status": True, "history": [{"status": False}]}]}, Proof(True, items=("a",))),
    ({"status": "DONE", "ticket": "D1", "artifacts": ["mockup"]}, Proof(True, items=("mockup",))),
])  # fmt: skip
def test_evidence_becomes_passed_or_failed(value: Any, expected: Proof) -> None:
    assert proof(value) == expected


def test_items_within_items_are_read_to_a_depth() -> None:
    def nested(levels: int) -> Any:
        value: Any = {"name": "deepest", "status": False}
        for _ in range(levels):
            value = {"name": "group", "items": [value]}
        return proof({"verdict": "APPROVED", "items": [value]})

    assert nested(3) == Proof(False, ("deepest",), verdict="APPROVED")
    assert nested(500) == Proof(True, items=("group",), verdict="APPROVED")
    many = proof({"items": {f"g{n}": [{"name": f"i{n}", "status": n < 400}] for n in range(500)}})
    assert many is not None
    assert many.failing == tuple(f"i{n}" for n in range(400, 424))


@pytest.mark.parametrize(("value", "who"), [
    ("ann", "ann"), ({"by": "ann"}, "ann"), ([{"reason": "x"}, {"approved_by": "bob"}], "bob"), (True, "recorded"),
    ({"override": True}, ""), ({"override": {"by": "ann"}}, "ann"), ({"by": "ann", "granted": False}, ""), (None, ""),
    (False, ""), ([], ""), (5, ""), ({"by": {"name": "ann"}}, "ann"),
])  # fmt: skip
def test_an_approval_needs_a_name(value: Any, who: str) -> None:
    assert approver(value) == who


@pytest.mark.parametrize("name", ["T9", "x" * 5_000, "𝄞" * 300, "T1 " * 99, " "])
@pytest.mark.parametrize("guard", ["dod", "init"])
def test_whose_report_it_is_crosses_the_wire_at_any_length(guard: str, name: str) -> None:
    """A longer name would make the worker refuse the whole event."""
    of = {"dod": "task_id", "init": "module"}[guard]
    for report in ({"allPassed": True, of: name}, {"allPassed": True, "path": f"docs/{name}-{guard}.yaml"}):
        made = event("task.transition", task_id="T1", to="DONE", **{guard: report})
        assert name.startswith(made.evidence[guard].subject) or not name.strip()


def test_evidence_in_other_fields_counts_and_its_texts_are_not_sent() -> None:
    made = event(
        "task.transition", task_id="T", to="X", dodReport={"verdict": "ok", "notes": "the password is hunter2"},
        evidence={"init_checklist": True}, reason="password=hunter2 was wrong", surprise=1,
    )  # fmt: skip
    assert set(made.evidence) == {"dod", "init"}
    assert b"hunter2" not in wire.encode(made)


@pytest.mark.parametrize("evidence", [
    ["docs/reviews/dod/T1-dod.yaml"], "dod_report", [{"guard": "dod", "verdict": "APPROVED"}], {"dod": "approved"},
    [{"name": "definition of done", "passed": True}],
])  # fmt: skip
def test_evidence_may_be_a_list(evidence: Any) -> None:
    made = event("task.transition", task_id="T", to="X", evidence=evidence)
    assert {name: one.passed for name, one in made.evidence.items()} == {"dod": True}


@pytest.mark.parametrize(
    "error", [{"class": "Timeout"}, [{"message": "slow", "class": "Timeout"}], {"type": "Timeout"}]
)
def test_the_failure_class_may_be_in_the_error(error: Any) -> None:
    assert event("task.transition", task_id="T", to="FAILED", error=error).failure_class == "Timeout"
    assert event("task.verdict", task_id="T", verdict="no", errors=error).failure_class == "Timeout"


@pytest.mark.parametrize(("fields", "count"), [
    ({"transitions": []}, 0), ({"transitions": 0}, 0), ({"transitions": 4}, None), ({"transitions": ["T1"]}, None),
    ({"transitions": [], "completed": 2}, 2), ({}, None), ({"completed": {"T1": "DONE"}}, 1),
])  # fmt: skip
def test_a_cycle_without_moves_completed_nothing(fields: dict[str, Any], count: int | None) -> None:
    assert event("cycle.completed", **fields).completed == count


def test_reports_are_truncated() -> None:
    n = 80
    made = event(
        "task.transition", task_id="T", to="X", evidence={f"g{k}": {f"i{j}": True for j in range(n)} for k in range(n)}
    )
    assert len(made.evidence) == 16
    assert all(len(one.items) == 24 for one in made.evidence.values())
    rejected = event("task.verdict", task_id="T", verdict="no", report={"why": "x" * 500})
    assert len(rejected.reason) == 100


def test_a_fields_own_name_wins_over_its_aliases() -> None:
    assert event("task.transition", task_id="T", status="OPEN", to="DONE").to == "DONE"
    assert event("task.transition", task_id="T", to="DONE", state="OPEN").to == "DONE"


@pytest.mark.parametrize(("fields", "field"), [
    ({"task_id": "x" * 129}, "task_id"), ({"task_id": "T", "to": ["DONE"]}, "to"),
    ({"task_id": "T", "to": "DONE", "evidence": 5}, "evidence"), ({"task_id": "T", "ui": "maybe"}, "ui_touching"),
])  # fmt: skip
def test_an_invalid_field_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        event("task.transition", **fields)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_an_event_without_a_task_is_not_an_error() -> None:
    assert event("task.transition", to="DONE").task_id == ""
