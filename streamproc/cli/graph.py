"""``streamproc graph``: the cycles of a workflow, and those that nothing can leave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamproc.cli.terminal import complain, examples, fail, line

if TYPE_CHECKING:
    from streamproc.core.graph import CycleShape

app = typer.Typer(name="graph", no_args_is_help=True, help="Check workflow graphs.")

NODES_SHOWN = 12
FORM = '{"nodes": ["plan", …], "edges": [["plan", "code"], …]}, in JSON or YAML'


@app.callback()
def _group() -> None:
    """Check workflow graphs."""


@app.command(epilog=examples("streamproc graph check workflow.json"))
def check(
    file: Annotated[Path, typer.Argument(help=f"The graph: {FORM}; or an object with a `graph` in it.")],
) -> None:
    """Name the cycles of a workflow. Exit 0: each can be left; 1: an unsafe cycle (GRAPH001); 2: unreadable."""
    from streamproc.core.graph import check_graph
    from streamproc.errors import InvalidGraph, UnsafeCycle

    data = _read(file)
    try:
        cycles = check_graph(data)
    except UnsafeCycle as error:
        for nodes in error.cycles:
            line(f"GRAPH001 unsafe_cycle: {_names(nodes)}")
        complain(
            f"{file}: nothing can leave {len(error.cycles)} cycle(s). "
            "Add an edge from each to a node that ends the run, or mark a node of it as terminal"
        )
        raise typer.Exit(1) from None
    except InvalidGraph as error:
        raise fail(f"{file}: {error}") from None
    for cycle in cycles:
        line(f"cycle {_names(cycle.nodes)}; an iteration ends {_anchor(cycle)}")
    line(f"{file}: {len(cycles)} cycle(s), each with a way out")


def _read(file: Path) -> dict[str, Any]:
    import orjson
    import yaml

    try:
        text = file.read_text(encoding="utf-8")
        data = orjson.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise fail(f"{file}: cannot be read: {error}. Give a file with {FORM}") from None
    if isinstance(data, dict) and isinstance(data.get("graph"), dict):
        data = data["graph"]
    if not isinstance(data, dict) or not ("nodes" in data or "edges" in data):
        raise fail(f"{file}: no graph in it. Expected {FORM}")
    return data


def _names(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(nodes[:NODES_SHOWN])
    return shown if len(nodes) <= NODES_SHOWN else f"{shown}, … ({len(nodes)} nodes)"


def _anchor(cycle: CycleShape) -> str:
    return f"over {cycle.over} → {cycle.anchor}" if cycle.over else f"at {cycle.anchor}"
