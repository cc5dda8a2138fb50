"""The tree of a session on the page: its order, the sums of its branches, and how many runs a command would hit."""

from __future__ import annotations

from hypothesis import given, strategies as st

from streamproc.model import wire
from streamproc.read_model.model import ReadModel
from streamproc.read_model.rows import LiveRun
from streamproc.web.views.tree import branches
from tests.read_model.deployment import Deployment, spend, turn
from tests.read_model.test_model import filled, start


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


def test_the_model_knows_the_runs_of_a_session_and_how_many_a_command_would_hit() -> None:
    made = Deployment()
    start(made, "root")
    for n in range(3):
        start(made, f"c{n}", session_id="root", parent_run_id="root")
        made.send(turn(f"c{n}", 0, usage=spend(10, 1_000)))
    start(made, "other", session_id="s")
    made.send(wire.RunFinished(w=1, run_id="c2", event_id="f", status="done"))
    model = filled(ReadModel(), made)

    found = model.session_runs("root", 9)
    assert sorted((one.run_id, one.parent) for one in found) == [
        ("c0", "root"),
        ("c1", "root"),
        ("c2", "root"),
        ("root", ""),
    ]
    assert (model.runs_in_scope("session:root"), model.runs_in_scope("session:s")) == (3, 1)
    assert model.runs_in_scope("session:unknown") == 0
    assert {row.scope for row in model.accounts(now_ms=made.now_ms)} == {"session:root", "session:s"}
