"""White space in artifacts: only what indents a line counts, in a file and in a diff."""

from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from streamproc.fingerprint.hash import patch

LINES = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["return t", "x = 1", "if a:", "- item"])), min_size=1)


def text_of(lines: list[tuple[int, str]], is_diff: bool, end: str = "\n") -> str:
    body = [f"{'+' * is_diff}{' ' * indent}{words}" for indent, words in lines]
    return end.join(["--- a/f.py", "+++ b/f.py", "@@ -1 +1 @@", *body] if is_diff else body)


@given(lines=LINES, data=st.data(), is_diff=st.booleans())
def test_a_line_that_is_indented_otherwise_makes_another_artifact(lines: Any, data: Any, is_diff: bool) -> None:
    number = data.draw(st.integers(0, len(lines) - 1))
    indent = data.draw(st.integers(0, 12).filter(lambda n: n != lines[number][0]))
    moved = [*lines[:number], (indent, lines[number][1]), *lines[number + 1 :]]
    assert patch(text_of(lines, is_diff)).norm != patch(text_of(moved, is_diff)).norm


@given(lines=LINES, is_diff=st.booleans(), end=st.sampled_from([" \n", "\r\n", "\t \n", "\n\n"]))
def test_white_space_at_the_end_of_lines_and_empty_lines_make_none(lines: Any, is_diff: bool, end: str) -> None:
    assert patch(text_of(lines, is_diff)).norm == patch(text_of(lines, is_diff, end) + end).norm
