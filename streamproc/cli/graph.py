"""``streamproc graph``: the cycles of a workflow graph, and those without an exit."""

from __future__ import annotations

import importlib
import operator
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamproc.cli.options import Json, Quiet
from streamproc.cli.terminal import clean, complain, examples, fail, json_row, say

if TYPE_CHECKING:
    from streamproc.core.graph import CycleShape

app = typer.Typer(name="graph", no_args_is_help=True, help="Check workflow graphs.")

VALUES_MAX = 2_000_000  # of a graph file in YAML: some 600 000 edges; use JSON for more
NODES_SHOWN = 12
MODULE_AND_NAME = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")
FORM = '{"nodes": ["plan", …], "edges": [["plan", "code"], …]} in JSON or YAML'


@app.callback()
def _group() -> None:
    """Check workflow graphs."""


@app.command(epilog=examples("streamproc graph check workflow.json", "streamproc graph check my_agents.flow:graph"))
def check(
    file: Annotated[
        str,
        typer.Argument(
            help=f"A file with {FORM}, or with an object that holds it as `graph`; or MODULE:NAME, "
            "a LangGraph or NetworkX graph in your code, which is imported."
        ),
    ],
    as_json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """List the cycles of a workflow graph.

    Exit 0: every cycle has an exit; 1: at least one has none (GRAPH001); 2: the graph cannot be read.
    """
    from streamproc.core.graph import check_graph
    from streamproc.errors import InvalidGraph, UnsafeCycle, plural
    from streamproc.model.printed import GraphCycle

    found = MODULE_AND_NAME.fullmatch(file)
    graph = _imported(file, found[1], found[2]) if found and not Path(file).exists() else _read(Path(file))
    try:
        cycles = check_graph(graph)
    except UnsafeCycle as error:
        for nodes in error.cycles:
            if as_json:
                json_row(GraphCycle(nodes=tuple(nodes), has_exit=False))
                continue
            say(f"GRAPH001 unsafe_cycle: {_names(nodes)}", hang=4)
        complain(
            f"{file}: {plural(len(error.cycles), 'cycle')} without an exit. "
            "From each, add an edge to a node that ends the run, or mark one of its nodes as terminal"
        )
        raise typer.Exit(1) from None
    except InvalidGraph as error:
        raise fail(f"{file}: {error}") from None
    if as_json:
        for cycle in cycles:
            json_row(GraphCycle(nodes=cycle.nodes, has_exit=True, anchor=cycle.anchor, over=cycle.over or ""))
        return
    for cycle in cycles:
        say(f"cycle {_names(cycle.nodes)}; an iteration ends {_anchor(cycle)}", hang=4)
    say(f"{file}: {plural(len(cycles), 'cycle')}, none without an exit" if cycles else f"{file}: no cycles")


def _imported(place: str, module: str, name: str) -> Any:
    """Import a graph, with the working directory on the path as for `python -m`."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return operator.attrgetter(name)(importlib.import_module(module))
    except Exception as error:  # noqa: BLE001  # the imported code can raise anything
        raise fail(
            f"{place}: cannot be imported: {type(error).__name__}: {error}. "
            "Name a module that is importable from here, and a graph in it"
        ) from None
    finally:
        sys.path.remove(str(Path.cwd()))


def _read(file: Path) -> dict[str, Any]:
    import orjson
    import yaml

    from streamproc.model.bounded_file import bounded_text
    from streamproc.model.yaml_text import read_yaml

    try:
        text = bounded_text(file)
        data = orjson.loads(text) if file.suffix == ".json" else read_yaml(text, VALUES_MAX)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise fail(f"{file}: cannot be read: {error}. Give a file with {FORM}") from None
    if isinstance(data, dict) and isinstance(data.get("graph"), dict):
        data = data["graph"]
    if not isinstance(data, dict) or not ("nodes" in data or "edges" in data):
        raise fail(f"{file}: contains no graph. Expected {FORM}")
    return data


def _names(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(map(clean, nodes[:NODES_SHOWN]))
    return shown if len(nodes) <= NODES_SHOWN else f"{shown}, … ({len(nodes)} nodes)"


def _anchor(cycle: CycleShape) -> str:
    anchor = clean(cycle.anchor) or "the node that has its first turn"
    return f"over {clean(cycle.over)} → {anchor}" if cycle.over else f"at {anchor}"
