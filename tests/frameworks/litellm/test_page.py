"""The page about LiteLLM says what is so."""

from __future__ import annotations

from typing import Any

import litellm

from tests.docs.pages import ROOT, blocks
from tests.integrations.examples import printed, shown


def test_the_example_prints_what_the_page_shows() -> None:
    assert printed("litellm_agent.py") == shown("litellm.md")


def test_the_blocks_of_the_page_run() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    found = [block for block in blocks(ROOT / "docs" / "integrations" / "litellm.md") if block.language == "python"]
    assert found
    for block in found:
        exec(compile(block.text, str(block), "exec", dont_inherit=True), names)
    litellm.callbacks.clear()
