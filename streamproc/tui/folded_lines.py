"""Lines of a section: long ones are folded between words, and their continuation is indented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

WIDTH_MIN = 16  # columns for the text after the indent; a narrower terminal has no indent


class HangingLine(NamedTuple):
    """A line, and the columns by which its continuation is indented."""

    text: Content
    hang: int = 0


class HangingLines(Visual):
    """Lines one below the other."""

    def __init__(self, lines: Sequence[HangingLine]) -> None:
        self.lines = tuple(lines)

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def plain(self) -> str:
        """The text, unfolded."""
        return "\n".join(line.text.plain for line in self.lines)

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        """Return the folded lines."""
        strips: list[Strip] = []
        for line in self._folded(width):
            strips += line.render_strips(width, 1, style, options)
        return strips if height is None else strips[:height]

    def _folded(self, width: int) -> list[Content]:
        found: list[Content] = []
        for text, hang in self.lines:
            if text.cell_length <= width:
                found.append(text)
                continue
            indent = hang if width - hang >= WIDTH_MIN else 0
            first, *_ = text.wrap(width)
            rest = text[len(first.plain.rstrip()) :]
            rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
            found.append(first)
            if rest.plain:
                found += [part.pad_left(indent) for part in rest.wrap(width - indent)]
        return found

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:  # noqa: ARG002  # the interface of a visual
        """Return the width of the longest line."""
        return max((line.text.cell_length for line in self.lines), default=0)

    def get_minimal_width(self, rules: RulesMap) -> int:  # noqa: ARG002
        """Return the width below which words are cut."""
        return 1

    def get_height(self, rules: RulesMap, width: int) -> int:  # noqa: ARG002
        """Return the number of lines once folded."""
        return len(self._folded(width))
