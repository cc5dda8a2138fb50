"""Checking a workflow graph: the time it takes, and how it grows with the graph."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Final

from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.timing import interleaved, piece_us
from streamproc.client.encoding import encode_event
from streamproc.core.graph import check_graph
from streamproc.errors import UnsafeCycle
from streamproc.fingerprint import fingerprint
from streamproc.model import wire
from streamproc.model.graph_limits import EDGES_MAX, NODES_MAX
from streamproc.model.raw_events import parse_raw
from streamproc.policy import load_policy

NODES: Final = 5_000
EDGES: Final = 50_000
BYTES_MAX: Final = 1_048_576  # of an event, by default


def rows(sizes: Sizes) -> Iterator[Row]:
    """Measure a large graph with nearly all nodes in one cycle, and one of a tenth of the size."""
    large, small, trap = _graph(NODES, EDGES), _graph(NODES // 10, EDGES // 10), _graph(NODES, EDGES, exit_edge=False)
    _check(large, trap)
    largest = _graph(NODES_MAX - 2, EDGES_MAX - 1)  # and one edge to the end
    raw = parse_raw({"type": "run.started", "run_id": "r", "graph": largest})
    record = encode_event(fingerprint(raw), bytes_max=BYTES_MAX)
    figures = interleaved(
        {
            "large": _timed(check_graph, large),
            "small": _timed(check_graph, small),
            "trap": _timed(_refused, trap),
            "start": _timed(_start, record.value),
        },
        max(3, sizes.rounds * 3),
    )
    ms = {name: min(found) for name, found in figures.items()}
    growth = median(whole / tenth for whole, tenth in zip(figures["large"], figures["small"], strict=True))
    what = f"checking a graph of {NODES} nodes and {EDGES} edges, nearly all in one cycle"
    yield Row("graph.check", what, ms["large"], "ms", "a tenth of it", ms["small"], ratio=growth, aim=Aim("≤", 25))
    yield Row("graph.unsafe", "the same without an exit: refused with the cycle's nodes", ms["trap"], "ms")
    note = f"record of {len(record.value) // 1024} KiB"
    what = "stepping a `run.started` with the largest graph that a worker follows"
    yield Row("graph.start", what, ms["start"], "ms", note=note)


def _graph(nodes: int, edges: int, *, exit_edge: bool = True) -> dict[str, Any]:
    """Return a graph with random edges, the same each time."""
    dice = random.Random(nodes)
    pairs = [[f"node-{dice.randrange(nodes)}", f"node-{dice.randrange(nodes)}"] for _ in range(edges)]
    return {"edges": [*pairs, ["node-0" if exit_edge else "start", "end"]]}


def _timed(work: Callable[[Any], Any], piece: Any) -> Callable[[], float]:
    return lambda: piece_us(work, piece, 1) / 1_000


def _refused(graph: dict[str, Any]) -> None:
    with contextlib.suppress(UnsafeCycle):
        check_graph(graph)


def _start(value: bytes) -> None:
    load_policy().engine().step(b"", wire.decode(value), None)


def _check(large: dict[str, Any], trap: dict[str, Any]) -> None:
    [cycle] = check_graph(large)
    try:
        check_graph(trap)
    except UnsafeCycle as refused:
        if refused.cycles != (cycle.nodes,):
            raise BenchmarkDefect("the refused cycle is not that of the graph") from None
    else:
        raise BenchmarkDefect("a cycle without an exit is not refused")
