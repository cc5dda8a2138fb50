"""Tables in Markdown are aligned, and written between the marks of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.tables import aligned, marks, write_between_marks


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert aligned([("name", "n"), ("a", "1"), ("b", "1000")]).splitlines() == [
        "| name | n    |",
        "|------|------|",
        "| a    | 1    |",
        "| b    | 1000 |",
    ]


def test_only_the_text_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page, (begin, end) = tmp_path / "page.md", marks("bench")
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")

    write_between_marks(page, "bench", "new")

    assert page.read_text() == f"before\n{begin}\nnew\n{end}\nafter\n"
    with pytest.raises(ValueError, match="quality:begin"):
        write_between_marks(page, "quality", "new")
