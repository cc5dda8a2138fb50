"""Values whose shape a log does not guarantee."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.importers.content import text_of


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return {"odd": value}


@pytest.mark.parametrize("block", [{"odd": "\ud800"}, nested(300), nested(5_000)], ids=["surrogate", "300", "5000"])
def test_a_block_that_is_no_text_is_shown_whatever_it_has(block: Any) -> None:
    assert text_of([block]) != ""
    assert text_of(["before", block]).startswith("before\n")
