"""The tree of a session: its order, the sums of its branches, and where reports show it."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, strategies as st

from streamproc.read_model.rows import LiveRun
from streamproc.report import html_of, json_of, markdown_of, report_of
from streamproc.report.tree import branches
from tests.report.runs import HOSTILE, START, call, looping, recorded, turn, written


def run(name: str, parent: str = "", cost: int = 1) -> LiveRun:
    return LiveRun(run_id=name, status="running", severity="info", parent=parent, cost_usd_micro=cost)


def test_each_run_follows_its_parent_and_a_branch_has_the_cost_of_all_runs_below_it() -> None:
    runs = [run("root"), run("a", "root", 10), run("b", "root", 100), run("a1", "a", 1_000), run("lost", "unknown", 7)]
    found = [(one.run.run_id, one.depth, one.runs, one.cost_usd_micro) for one in branches(runs)]
    assert found == [
        ("root", 0, 4, 1_111), ("a", 1, 2, 1_010), ("a1", 2, 1, 1_000), ("b", 1, 1, 100), ("lost", 0, 1, 7)
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 9)), max_size=20))
def test_no_tree_is_endless_and_no_run_is_shown_twice(pairs: list[tuple[int, int]]) -> None:
    """Whichever parents runs name, also themselves and each other."""
    names = [
        one.run.run_id for one in branches([run(str(n), str(parent) if parent >= 0 else "") for n, parent in pairs])
    ]
    assert len(names) == len(set(names)) <= len({n for n, _ in pairs})


def test_the_report_of_a_run_shows_the_tree_of_its_session_with_the_cost_of_each_branch(tmp_path: Path) -> None:
    child = {"type": "run.started", "run_id": "loop", "parent_run_id": "root", "session_id": "s", "at": START}
    other = {"type": "run.started", "run_id": HOSTILE, "parent_run_id": "loop", "session_id": "s", "at": START}
    log = written(tmp_path, [
        {"type": "run.started", "run_id": "root", "session_id": "s", "at": START}, turn(0, "root"), child, other,
        call(0, "ls", "a b", HOSTILE), {"type": "run.finished", "run_id": HOSTILE, "at": START + 1}, *looping()[1:],
        {"type": "run.started", "run_id": "alone", "at": START},
    ])  # fmt: skip
    for only in (None, "loop"):
        report = report_of(recorded(log, only=only), "loop")
        found = [(one.depth, one.state, one.turns, one.cost_usd_micro, one.runs, one.branch_cost_usd_micro)
                 for one in report.tree]  # fmt: skip
        assert found == [
            (0, "running", 1, 10_000, 3, 140_000),
            (1, "halted", 12, 120_000, 2, 130_000),
            (2, "finished", 1, 10_000, 1, 10_000),
        ]
        assert [one.why[:8] for one in report.tree] == ["TREE007 ", "LOOP003 ", ""]
    written_html, markdown = str(html_of(report)), markdown_of(report)
    assert "The tree of its session" in written_html
    assert "3 runs, 0.14 USD" in written_html
    assert HOSTILE not in written_html
    assert "3 runs, 0.14 USD" in markdown
    assert len(json.loads(json_of(report))["tree"]) == 3
    assert report_of(recorded(log), "alone").tree == ()


def test_without_a_name_of_the_session_it_is_that_of_the_parent_and_large_trees_are_cut(tmp_path: Path) -> None:
    events = [turn(0, "root")]
    events += [{"type": "run.started", "run_id": f"c{n}", "parent_run_id": "root", "at": START} for n in range(204)]
    recording = recorded(written(tmp_path, events))
    for run_id in ("root", "c7"):
        report = report_of(recording, run_id)
        assert (report.tree[0].run_id, report.tree[0].runs) == ("root", 205)
        assert (len(report.tree), report.tree_left_out) == (200, 5)
        assert "5 runs left out" in markdown_of(report)
        assert "5 runs left out" in str(html_of(report))
