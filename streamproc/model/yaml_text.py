"""YAML files within bounds: aliases and nesting are counted while the text is read, before they cost time or memory.

Ten lines of YAML can stand for billions of values: each line lists an alias of the line before ten times.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

VALUES_MAX: Final = 50_000  # of a file with all aliases expanded; the largest preset has 200
LEVELS_MAX: Final = 50  # of nesting; no file of ours has more than eight


class UnboundedYAML(yaml.MarkedYAMLError):
    """A YAML text is nested too deeply, or has too many values: `what` its `mark` and `line`, and the `remedy`."""

    def __init__(self, what: str, remedy: str, mark: yaml.Mark) -> None:
        super().__init__(problem=what, problem_mark=mark)
        self.what, self.remedy, self.mark, self.line = what, remedy, mark, mark.line + 1


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str, values_max: int) -> None:
        super().__init__(text)
        self._values_max = values_max
        self._values = 0
        self._level = 0
        self._sizes: dict[int, int] = {}  # values in each complete node, by its identity

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node as usual, and count it; an alias counts as much as the node that it stands for."""
        alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        before = self._values
        self._level += 1
        if self._level > LEVELS_MAX:
            remedy = f"use at most {LEVELS_MAX} levels; look for brackets that are not closed"
            raise UnboundedYAML("is nested too deeply", remedy, mark)
        node = super().compose_node(parent, index)
        self._level -= 1
        if not alias:
            self._values += 1
            self._sizes[id(node)] = self._values - before
        elif id(node) in self._sizes:
            self._values += self._sizes[id(node)]
        else:
            raise UnboundedYAML("contains itself through an alias", "write the value out instead of the alias", mark)
        if self._values > self._values_max:
            what = f"has more than {self._values_max} values with its aliases expanded"
            raise UnboundedYAML(what, "remove aliases (`*name`) of parts that contain aliases, or split the file", mark)
        return node


class _Constructor(yaml.SafeLoader):
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct a value as usual. What PyYAML does not check itself becomes an error with a place."""
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, TypeError, OverflowError):
            what = f"the value is no {node.tag.rpartition(':')[2]}; correct it, or remove the tag (`!!`)"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None


def compose(text: str, values_max: int = VALUES_MAX) -> yaml.Node | None:
    """Return the tree of a YAML text, with lines. Raises `yaml.YAMLError`, of which `UnboundedYAML` is one."""
    loader = _Loader(text, values_max)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def data_of(node: yaml.Node | None) -> Any:
    """Return the data of a composed text. Merge keys (`<<`) change the tree, so read lines from it before."""
    return None if node is None else _Constructor("").construct_document(node)


def read_yaml(text: str, values_max: int = VALUES_MAX) -> Any:
    """Return the data of a YAML text. Raises `yaml.YAMLError`, or `ValueError` for an impossible date or number."""
    return data_of(compose(text, values_max))
