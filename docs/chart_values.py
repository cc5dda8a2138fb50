"""The values of the Helm chart as rows of a table, from the comments of its values.yaml."""
# ruff: noqa: INP001

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml
from yaml.nodes import MappingNode, Node

VALUES: Final = Path(__file__).parents[1] / "deploy" / "helm" / "streamproc" / "values.yaml"


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield each value: its name with dots, its default, and the comment of its line.

    Raises `ValueError` for a line without a comment.
    """
    text = VALUES.read_text(encoding="utf-8")
    lines = text.splitlines()
    for name, node in _leaves(yaml.compose(text), ""):
        line = lines[node.start_mark.line]
        default, _, comment = line.partition("  # ")
        if not comment:
            raise ValueError(f"{VALUES.name}, line {node.start_mark.line + 1}: say in a comment what {name} is for")
        shown = default.partition(": ")[2].strip()
        yield f"`{name}`", f"`{shown}`" if shown not in ('""', "[]", "{}") else "", comment


def _leaves(node: Node | None, above: str) -> Iterator[tuple[str, Node]]:
    """Yield the values of a block; one in braces is a single value."""
    assert isinstance(node, MappingNode)
    for key, value in node.value:
        name = f"{above}.{key.value}" if above else str(key.value)
        if isinstance(value, MappingNode) and not value.flow_style:
            yield from _leaves(value, name)
        else:
            yield name, value
