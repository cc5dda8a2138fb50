"""Progress is a result better than the best so far; it restarts the streaks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.feeding import Raw, halts, reported


def report(*failed: str, passed: int | None = 5, total: int | None = 9, **more: Any) -> Raw:
    return {"node": "verifier", "tests": {"failed": list(failed), "passed": passed, "total": total}, **more}


def patched(text: str = "+a") -> Raw:
    return {"node": "coder", "artifact": text}


def worked(n: int, node: str = "verifier") -> Raw:
    return {"node": node, "tool_calls": [{"name": "edit", "args": {"line": n}, "result": f"line {n} changed"}]}


# Failing tests.


def test_the_same_failures_warn_at_the_second_and_halt_at_the_third_report() -> None:
    assert reported([report("a", "b")] * 4) == [("STALL002", "warn", 1), ("STALL002", "halt", 2)]


def test_the_order_of_failures_does_not_count() -> None:
    assert halts([report("a", "b"), report("b", "a"), report("a", "b")]) == [("STALL002", "halt", 2)]


@pytest.mark.parametrize("better", [
    report("a"), report("a", "b", passed=6), report("a", "b", progress={"coverage": 0.5}), report("c", "d", total=20),
    report("a", "b", total=20), report(),
], ids=["fewer fail", "more pass", "a metric", "others of another suite", "another suite", "none fails"])  # fmt: skip
def test_any_improvement_restarts_the_streak(better: Raw) -> None:
    first = report("a", "b", progress={"coverage": 0.4})
    again = {"node": "verifier", "tests": better["tests"]}
    assert halts([first, first, better]) == []
    if better["tests"]["failed"]:
        assert halts([first, first, better, again, again]) == [("STALL002", "halt", 4)]


def test_only_a_new_best_result_is_progress() -> None:
    """Making up part of a setback is no progress."""
    counts = [5, 3, 4, 4, 4]
    results = [
        report(*(f"t{round_}{n}" for n in range(count)), passed=9 - count) for round_, count in enumerate(counts)
    ]
    assert halts(results) == [("STALL003", "halt", 4)]


def test_work_of_a_single_agent_between_two_results_restarts_the_streak() -> None:
    assert reported([turn for n in range(6) for turn in (worked(n), report("a", "b"))]) == []
    moving = [turn for n in range(6) for turn in (worked(n), report(f"a{n}", f"b{n}"))]
    assert reported(moving) == []


def test_work_of_other_nodes_does_not_restart_the_streak_of_a_verifier_in_a_cycle() -> None:
    rounds = [turn for n in range(3) for turn in (worked(n, "coder"), report("a", "b"))]
    assert halts(rounds) == [("STALL002", "halt", 5)]


def test_a_suite_in_which_nothing_passes_is_reported_early() -> None:
    nothing = [report(f"a{n}", passed=0) for n in range(2)]
    assert reported(nothing) == [("STALL003", "warn", 1)]
    assert reported([nothing[0], report("b", passed=2), report("c", passed=0)]) == []


def test_counts_without_names_show_a_plateau_but_no_failing_set() -> None:
    counts: Raw = {"node": "verifier", "tests": {"passed": 7, "total": 9}}
    assert reported([counts] * 5) == [("STALL003", "halt", 3)]


@pytest.mark.parametrize("unknown", [{}, {"passed": 3}, {"total": 9}])
def test_a_report_without_failures_is_no_evidence(unknown: Raw) -> None:
    assert reported([{"node": "verifier", "tests": unknown}] * 9) == []


def test_fixing_the_last_failing_test_restarts_the_streak() -> None:
    assert halts([*[report("a")] * 2, report(), *[report("a")] * 2]) == []
    assert halts([*[report("a")] * 2, report(), *[report("a")] * 3]) == [("STALL002", "halt", 5)]


def test_results_of_two_verifiers_are_separate() -> None:
    other = report("x", "y") | {"node": "linter"}
    assert halts([report("a", "b"), other, report("a"), other, report(), other]) == []


# Artifacts.


def test_the_same_artifact_warns_at_the_second_and_halts_at_the_third_time() -> None:
    assert reported([patched()] * 5) == [("STALL001", "warn", 1), ("STALL001", "halt", 2)]
    assert reported([patched(), patched(), patched("+b"), patched(), patched()]) == [("STALL001", "warn", 1)]


@pytest.mark.parametrize("between", [worked(1, "coder"), report(), {"node": "coder", "progress": {"score": 2}}])
def test_progress_and_own_work_restart_the_streak_of_an_artifact(between: Raw) -> None:
    before = [{"node": "coder", "progress": {"score": 1}}, report("a"), patched(), patched()]
    assert halts([*before, between, patched()]) == []


def test_an_artifact_of_another_node_is_another_artifact() -> None:
    assert halts([patched(), patched() | {"node": "writer"}, patched()]) == []


# Errors.


def failed(*messages: str, node: str = "executor") -> Raw:
    return {"node": node, "errors": list(messages)}


@pytest.mark.parametrize(("first", "second", "futile"), [
    (["channel_not_found"], ["channel_not_found"], True), (["a", "b", "c", "d"], ["a", "b", "c", "e"], True),
    (["x" * 50 + "1"], ["x" * 50 + "2"], True), (["at 10:00:01: boom"], ["at 10:00:09: boom"], True),
    (["a", "b"], ["b", "a"], False), (["Template ${foo.bar} not found"], ["Command failed with exit code 1"], False),
    (["exit code 1"], ["exit code 2"], False), (["HTTP 429"], ["HTTP 429"], False),
])  # fmt: skip
def test_a_repair_is_futile_if_the_error_signature_stays_the_same(
    first: list[str], second: list[str], futile: bool
) -> None:
    repair: Raw = {"node": "repair", "output": "try this"}
    assert bool(halts([failed(*first), repair, failed(*second)])) is futile


def test_infrastructure_errors_neither_extend_nor_end_a_streak() -> None:
    assert halts([failed("boom"), failed("HTTP 503"), failed("boom")]) == [("ERROR001", "halt", 2)]


def test_the_same_error_of_two_nodes_is_two_errors() -> None:
    assert halts([failed("boom"), failed("boom", node="other")]) == []
