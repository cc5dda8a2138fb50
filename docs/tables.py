"""Tables in Markdown, and their places in the pages: between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""
# ruff: noqa: INP001

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return a table with columns of equal widths; the first line holds the headings."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *rows = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
    return "\n".join([head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows])


def marks(name: str) -> tuple[str, str]:
    """Return the lines that stand before and after a table."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def write_between_marks(path: Path, name: str, text: str) -> None:
    """Replace the text between the marks of a page. Raises `ValueError` if they are missing."""
    begin, end = marks(name)
    before, opened, rest = path.read_text("utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise ValueError(f"{path} lacks the lines {begin} and {end} that enclose the table")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")
