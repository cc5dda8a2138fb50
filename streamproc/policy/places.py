"""Where the values of a policy file are, so that each mistake is reported with its line and column."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import yaml

from streamproc.errors import Problem
from streamproc.model.yaml_text import compose

DEPTH_MAX: Final = 8  # levels of a file; five have a meaning, and a YAML anchor may contain itself

Path = tuple[str | int, ...]
Lines = dict[Path, int]


class TextPosition(NamedTuple):
    """A line, and a column of it; both from 1."""

    line: int
    column: int


def position_of(mark: yaml.Mark) -> TextPosition:
    """Return PyYAML's mark in this form."""
    return TextPosition(mark.line + 1, mark.column + 1)


class Places:
    """The mark of every value of a file, by its path: that of its key, or of an item of a list. `duplicates` are the
    paths of keys that a mapping has twice."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.marks: dict[Path, TextPosition] = {}
        self.duplicates: list[Path] = []

    def record(self, node: Any, path: Path = ()) -> None:
        """Record a composed text, or a part of it at this path."""
        if node is None or len(path) > DEPTH_MAX:
            return
        self.marks.setdefault(path, position_of(node.start_mark))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                below = (*path, str(key.value))
                if below in self.marks:
                    self.duplicates.append(below)
                self.marks[below] = position_of(key.start_mark)
                self.record(value, below)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.record(value, (*path, index))

    def problem(self, path: Path, what: str, remedy: str = "") -> Problem:
        """Return a mistake of the value at this path, or of the nearest one above that is written."""
        written = path
        while written and written not in self.marks:
            written = written[:-1]
        mark = self.marks.get(written, TextPosition(1, 1))
        return self.problem_at(mark, what, remedy, field=".".join(map(str, path)) or "policy")

    def problem_at(self, mark: TextPosition, what: str, remedy: str = "", field: str = "policy") -> Problem:
        """Return a mistake at this mark."""
        return Problem(field, what, remedy, f"{self.file}:{mark.line}", mark.column)


def lines_of(text: str) -> Lines:
    """Return the line of every value of a valid policy file, by its path."""
    places = Places("")
    places.record(compose(text))
    return {path: mark.line for path, mark in places.marks.items()}
