"""A Griffe extension: docstrings as Markdown, with doctests as code blocks."""
# ruff: noqa: INP001

from __future__ import annotations

import re
from typing import Any, Final

import griffe

_DOCTEST: Final = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


class MarkdownDocstrings(griffe.Extension):
    """Fences doctests, and ends the sentence before an indented block with one colon."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            text = _DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
