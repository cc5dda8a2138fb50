"""The rules of the house that no linter knows: which way imports go, how long a file may be, what it is called."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

from tests.syntax import syntax_of

ROOT = Path(__file__).parents[1]
PACKAGE = "streamproc"

# Each may import from its own line and those above, never from those below.
LAYERS = (
    {"errors", "model"},  # model's types and the errors that carry them name each other
    {"settings"},
    {"fingerprint"},
    {"core"},
    {"detectors"},
    # They know which detectors there are; the engine is handed its rules.
    {"policy"},
    {"monitor", "samples", "importers"},
    {"kafka", "metrics", "tracing"},
    {"fleet"},
    # Peers: each is a program's part of its own, and none needs another.
    {"client", "worker", "replay", "notify"},
    {"otel"},  # maps spans with importers, and publishes with client
    {"report"},  # of what was replayed
    {"read_model"},  # what the topics say now, for people
    {"web", "tui"},
    {"integrations", "live"},
    {"testing"},
    {"demo"},
    {"cli"},
    {"__main__"},
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}

# No clock, no randomness, no I/O, no logging, no async: what `core` and `detectors` must not import.
# fmt: off
IMPURE = {
    "asyncio", "concurrent", "threading", "multiprocessing", "subprocess", "selectors", "signal", "time", "random",
    "secrets", "uuid", "os", "io", "pathlib", "shutil", "tempfile", "socket", "ssl", "http", "urllib", "logging",
    "warnings", "sqlite3", "aiokafka", "confluent_kafka", "faust", "mode", "redis", "uvloop", "aiohttp", "typer",
    "click", "rich",
}
# fmt: on
UNTHEMATIC = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers", "base"}
NAMED_BY_THE_ARCHITECTURE = {"detectors/base.py"}
LOADERS = {"core/compiled.py"}  # finds the compiled core before any of it is imported; no part of the engine

A_COUNTER_FOR_EACH_THREAD = ("core/packing.py", "threading")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70


def imports(source: str) -> Iterator[tuple[str, int]]:
    """(module, line) of every import of a file: at its top, inside a function, or for types only."""
    for node in ast.walk(syntax_of(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            names = (alias.name for alias in node.names if alias.name != "__version__")
            yield from ((f"{PACKAGE}.{name}", node.lineno) for name in names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno


def import_faults(path: str, source: str) -> Iterator[str]:
    """What is wrong with the imports of ``path``, relative to the package."""
    room = Path(path).parts[0].removesuffix(".py")
    if path == "__init__.py":
        return  # the public names: from everywhere
    if room not in LAYER:
        yield f"{path}: {room} has no place in LAYERS (tests/test_architecture.py)"
        return
    for module, line in imports(source):
        top, _, rest = module.partition(".")
        target = rest.partition(".")[0]
        where = f"{path}:{line}: {room} imports {module}"
        if top == PACKAGE:
            if LAYER.get(target, len(LAYERS)) > LAYER[room]:
                yield f"{where}, which is above it or has no place in LAYERS"
            if (room, target) == ("client", "worker"):
                yield f"{where}; an orchestrator must not need Faust"
        if top in {"faust", "mode"} and room != "worker":
            yield f"{where}; only worker/ may"
        if (
            room in {"core", "detectors"}
            and path not in LOADERS
            and (path, top) != A_COUNTER_FOR_EACH_THREAD
            and (top in IMPURE or (room == "core" and top == "pydantic"))
        ):
            yield f"{where}; the engine is pure"


def size_faults(path: str, source: str) -> Iterator[str]:
    lines = source.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{path}: {lines} lines, {FILE_LINES_MAX} at most"
    for node in ast.walk(syntax_of(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines, {FUNCTION_LINES_MAX} at most"


def name_faults(path: str, source: str) -> Iterator[str]:
    names = {part.removesuffix(".py") for part in Path(path).parts}
    if path in NAMED_BY_THE_ARCHITECTURE:
        return
    for name in sorted(names & UNTHEMATIC):
        yield f"{path}: {name} says nothing about what is in it"
    for name in sorted(names & sys.stdlib_module_names):
        yield f"{path}: {name} shadows the standard library"


RULES = (import_faults, size_faults, name_faults)


def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its dotted name."""
    found = {}
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = syntax_of(file.read_text())
    return found


def test_layers_name_every_room_and_no_other() -> None:
    folder = ROOT / PACKAGE
    rooms = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
    loose = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert rooms | loose == set(LAYER)
    assert loose <= {"__main__", "monitor", "errors", "settings", "testing"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """At the top of a file, inside a function, or for types only."""
    known = modules()
    graph = nx.DiGraph()
    for name, tree in known.items():
        if name == PACKAGE:
            continue  # the public names: from everywhere
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                targets = (f"{node.module}.{alias.name}" for alias in node.names)
                graph.add_edges_from((name, one if one in known else node.module) for one in targets)
    graph.remove_nodes_from([PACKAGE])
    assert not [sorted(one) for one in nx.strongly_connected_components(graph) if len(one) > 1]


def test_no_two_classes_share_a_name() -> None:
    """But `Breaker`: each adapter of a framework has its own.

    A name that begins with an underscore stays in its file.
    """
    homes: dict[str, list[str]] = {}
    for name, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    del homes["Breaker"]
    assert not {name: places for name, places in homes.items() if len(places) > 1}


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_to_the_rule(rule) -> None:
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    assert files
    faults = [fault for file in files for fault in rule(str(file.relative_to(ROOT / PACKAGE)), file.read_text())]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(("path", "source", "fault"), [
    ("core/run_state.py", "from streamproc.detectors import ALL", "above it"),
    ("core/run_state.py", "def f():\n    from streamproc import worker", "above it"),
    ("core/run_state.py", "if TYPE_CHECKING:\n    from streamproc.cli import main", "above it"),
    ("core/run_state.py", "from streamproc.policy.layers import Policy", "above it"),
    ("core/run_state.py", "import time", "the engine is pure"),
    ("core/run_state.py", "from pydantic import BaseModel", "the engine is pure"),
    ("detectors/loop.py", "import redis.asyncio", "the engine is pure"),
    ("client/guard.py", "from streamproc.worker.app import app", "must not need Faust"),
    ("replay/source.py", "import faust", "only worker/ may"), ("nowhere.py", "", "has no place in LAYERS"),
    ("monitor.py", "from streamproc.nowhere import x", "has no place in LAYERS"),
    ("core/long.py", "\n" * 401, "401 lines, 400 at most"),
    ("core/long.py", "def f():\n" + "    x = 1\n" * 70, "f has 71 lines, 70 at most"),
    ("client/base.py", "", "says nothing"), ("worker/utils/chunks.py", "", "says nothing"),
    ("core/queue.py", "", "shadows the standard library"),
])  # fmt: skip
def test_a_breach_is_seen(path: str, source: str, fault: str) -> None:
    [seen] = [seen for rule in RULES for seen in rule(path, source)]
    assert fault in seen


@pytest.mark.parametrize(("path", "source"), [
    ("policy/layers.py", "from streamproc.detectors import BY_CODE"),
    ("detectors/base.py", "from streamproc.core.run_state import RunState\nimport math"),
    ("worker/app.py", "import faust\nfrom streamproc.model import wire"),
    ("__init__.py", "from streamproc.client import guard"),
])  # fmt: skip
def test_what_is_allowed_is_not_a_breach(path: str, source: str) -> None:
    assert not [seen for rule in RULES for seen in rule(path, source)]
