"""`streamproc graph check` lists every cycle, and rejects cycles without an exit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_cycles_are_listed_with_the_end_of_an_iteration(run, tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(
        "nodes: [plan, coder, verifier]\n"
        "edges:\n  - [plan, coder]\n  - [coder, verifier]\n  - {from: verifier, to: coder, anchor: true}\n"
        "  - [verifier, END]\n"
    )

    result = run("graph", "check", path)

    assert result.exit_code == 0
    assert "cycle coder, verifier; an iteration ends over verifier → coder" in result.stdout
    assert "1 cycle, none without an exit" in result.stdout


def test_every_unsafe_cycle_is_listed(run, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"edges": [["a", "b"], ["b", "a"], ["c", "c"], ["d", "e"], ["e", "d"], ["e", "END"]]}))

    result = run("graph", "check", path)

    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["GRAPH001 unsafe_cycle: a, b", "GRAPH001 unsafe_cycle: c"]
    assert "add an edge" in result.stderr


def test_a_graph_of_five_thousand_nodes_is_checked(run, tmp_path: Path) -> None:
    ring = [[f"n{i}", f"n{(i + 1) % 5000}"] for i in range(5000)]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"edges": [*ring, *[[f"n{i}", f"n{i * 7 % 5000}"] for i in range(5000)]]}))

    result = run("graph", "check", path)

    assert result.exit_code == 1
    assert "(5000 nodes)" in result.stdout


def test_the_graph_of_a_run_started_event_is_found(run, tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"type": "run.started", "run_id": "r", "graph": {"edges": [["a", "b"], ["b", "END"]]}}))

    assert ": no cycles" in run("graph", "check", path).stdout


@pytest.mark.parametrize(("text", "message"), [
    ("{", "cannot be read"), ("[1, 2]", "contains no graph"), ("edges: [[a]]", "graph.edges[0]"),
    ("nodes: [{}]", "graph.nodes[0]"), ("edges: 7", "edges"),
])  # fmt: skip
def test_an_invalid_graph_gets_an_error_with_file_and_place(run, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(text)

    result = run("graph", "check", path)

    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert message in result.stderr


def test_a_missing_file_is_named(run) -> None:
    result = run("graph", "check", "nope.json")

    assert result.exit_code == 2
    assert "nope.json" in result.stderr


FLOW = """
from typing import TypedDict
from langgraph.graph import StateGraph, START

class State(TypedDict):
    turns: int

def flow(*edges):
    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, lambda state: state)
    graph.add_edge(START, "a")
    for edge in edges:
        graph.add_edge(*edge)
    return graph.compile()

ring = flow(("a", "b"), ("b", "c"), ("c", "a"))
line = flow(("a", "b"), ("b", "c"))
number = 7
"""


def test_a_graph_is_imported_from_code(run, tmp_path: Path) -> None:
    (tmp_path / "my_flow_of_agents.py").write_text(FLOW)

    ring, line = run("graph", "check", "my_flow_of_agents:ring"), run("graph", "check", "my_flow_of_agents:line")

    assert (ring.exit_code, line.exit_code) == (1, 0)
    assert ring.stdout == "GRAPH001 unsafe_cycle: a, b, c\n"
    assert "my_flow_of_agents:line: no cycles" in line.stdout


@pytest.mark.parametrize(("place", "message"), [
    ("no_such_module_here:graph", "ModuleNotFoundError"), ("json:nothing", "AttributeError"),
    ("json:dumps", "expected an object of nodes and edges"),
])  # fmt: skip
def test_an_import_that_is_not_a_graph_gets_an_error(run, place: str, message: str) -> None:
    result = run("graph", "check", place)

    assert result.exit_code == 2
    assert place in result.stderr
    assert message in result.stderr
