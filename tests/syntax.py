"""The syntax tree of a source file, for tests that read code."""

from __future__ import annotations

import ast


def syntax_of(source: str) -> ast.Module:
    """Return the tree of ``source``.

    CPython 3.11 counts the depth of trees under construction once per interpreter (python/cpython#106905): when another
    thread parses at the same time, either of them can end with ``SystemError``, although its source is sound.
    """
    for _ in range(3):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)
