"""GRAPH001 and GRAPH002 beyond their examples: every cycle is named, events stay small, the policy decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamproc.model.controls import ControlEvent
from streamproc.monitor import Monitor

RING = {"edges": [["a", "b"], ["b", "a"]]}


def started(graph: object, policy: Path | None = None, **fields: object) -> list[ControlEvent]:
    return Monitor(policy).feed(type="run.started", run_id="r", graph=graph, **fields)


def rings(count: int) -> dict[str, object]:
    return {"edges": [pair for n in range(count) for pair in ([f"a{n}", f"b{n}"], [f"b{n}", f"a{n}"])]}


def test_a_run_with_an_unsafe_graph_is_halted_before_its_first_turn() -> None:
    [halt] = started(RING, workflow="bugfix", tenant="acme")

    assert (halt.type, halt.code, halt.severity) == ("loop.halted", "GRAPH001", "halt")
    assert (halt.halt_reason, halt.terminal_status) == ("stalled", "blocked")
    assert halt.action == "halt"
    assert halt.suggested_actions[0] == "halt"
    assert (halt.workflow, halt.tenant) == ("bugfix", "acme")
    assert "[a, b]" in halt.message


def test_every_offending_cycle_is_named() -> None:
    [halt] = started(rings(100))

    assert halt.evidence is not None
    assert halt.evidence.count == 100
    assert sorted(halt.evidence.cycles or []) == sorted([f"a{n}", f"b{n}"] for n in range(100))
    assert "and 95 more" in halt.message


def test_the_control_event_stays_small_however_large_the_graph() -> None:
    names = [f"{n}{'x' * 500}" for n in range(2_000)]
    for graph, count in ((rings(900), 900), ({"edges": [[name, name] for name in names]}, 2_000)):
        [halt] = started(graph)
        assert halt.evidence is not None
        assert halt.evidence.count == count
        assert len(halt.model_dump_json()) < 40_000


def test_the_same_graph_is_reported_once_and_another_graph_again() -> None:
    monitor = Monitor()
    reported = [
        [control.code for control in monitor.feed(type="run.started", run_id="r", graph=graph)]
        for graph in (RING, RING, {"edges": [["c", "c"]]})
    ]
    assert reported == [["GRAPH001"], [], ["GRAPH001"]]


@pytest.mark.parametrize(
    ("setting", "reported"),
    [("GRAPH001: {halt: 0}", ["warn"]), ("GRAPH001: false", []), ("GRAPH001: {halt: 2}", ["warn"])],
)
def test_a_policy_sets_the_level_of_an_unsafe_graph(tmp_path: Path, setting: str, reported: list[str]) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"detectors: {{{setting}}}\n")

    assert [control.severity for control in started(RING, policy)] == reported


def test_a_policy_may_ask_a_person_about_an_unsafe_graph(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("actions: {GRAPH001: ask_human}\n")

    [halt] = started(RING, policy)

    assert (halt.action, halt.severity) == ("ask_human", "halt")


def test_an_unreadable_graph_is_reported_and_its_cycles_are_still_detected() -> None:
    monitor = Monitor()
    [warning] = monitor.feed(type="run.started", run_id="r", graph={"edges": [["a", "b"], "c"]})
    turns = [monitor.feed(run_id="r", node="ab"[n % 2]) for n in range(5)]

    assert (warning.type, warning.code, warning.severity) == ("loop.warning", "GRAPH002", "warn")
    assert "graph.edges[1]" in warning.message
    assert turns == [[]] * 5
    status = monitor.status("r")
    assert status is not None
    assert (status.status, status.badge) == ("running", "Loop 2")


def test_a_reused_run_id_shows_the_halt_of_its_new_run() -> None:
    monitor = Monitor()
    monitor.feed(run_id="r", node="coder", output="I will try again.")
    monitor.feed(type="run.finished", run_id="r")
    monitor.feed(type="run.started", run_id="r", graph=RING)

    status = monitor.status("r")

    assert status is not None
    assert status.halt is not None
    assert status.halt.code == "GRAPH001"
