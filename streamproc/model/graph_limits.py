"""The sizes up to which a worker follows a declared graph, told before anything is done with its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# Of a graph in an event: a workflow of a hundred nodes of which each may lead to every other one still fits. At these
# sizes a worker takes up to 20 ms, during which its other runs wait.
NODES_MAX: Final = 2_000
EDGES_MAX: Final = 10_000
# Of the names of a graph that is not fingerprinted: a worker looks for secrets in them, for up to 2 µs a character.
CHARACTERS_MAX: Final = 32_768
FIELDS: Final = ("nodes", "edges", "terminals", "leads_to", "anchors")
"""The lists of a graph. Everything else in it is ignored."""
LIMITS: Final = {
    "nodes": NODES_MAX, "terminals": NODES_MAX, "edges": EDGES_MAX, "anchors": EDGES_MAX,
    "lists of positions": NODES_MAX, "characters in names": CHARACTERS_MAX,
}  # fmt: skip
SIZES: Final = "sizes"
"""The field of what stands for a graph that is too large: these sizes, by the names in `LIMITS`."""


def sizes_of(graph: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of a graph by the lengths of its lists; of what stands for one, those that it tells."""
    lengths = {name: len(found) for name in FIELDS if isinstance(found := graph.get(name), (list, tuple))}
    listed = lengths.pop("leads_to", 0)
    links = 0
    if listed:
        lengths["lists of positions"] = listed
        leads_to = graph["leads_to"][: NODES_MAX + 1]
        links = sum(len(targets) for targets in leads_to if isinstance(targets, (list, tuple)))
    lengths["edges"] = lengths.get("edges", 0) + links
    told = graph.get(SIZES)
    if isinstance(told, Mapping):
        lengths |= {name: told[name] for name in LIMITS if type(told.get(name)) is int}
    return lengths


def over_limit(sizes: Mapping[str, int]) -> str:
    """Return which size is too large, in words; an empty text if none is."""
    for name, limit in LIMITS.items():
        if sizes.get(name, 0) > limit:
            return f"{sizes[name]} {name}, more than {limit}"
    return ""


def bounded_graph(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lists of a graph, or its sizes in their place if a worker would not follow it."""
    sizes = sizes_of(graph)
    if not over_limit(sizes):
        kept = {name: graph[name] for name in FIELDS if name in graph}
        sizes["characters in names"] = _characters(kept)
        if not over_limit(sizes):
            return kept
    return {SIZES: sizes}


def _characters(value: Any) -> int:
    """Return how many characters all texts in a value have, each text counted once."""
    texts: set[str] = set()
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            texts.add(item)
        elif isinstance(item, Mapping):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            left += item
    return sum(map(len, texts))
