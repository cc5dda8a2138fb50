"""The page about LiteLLM shows what is so."""

from __future__ import annotations

import litellm

from tests.integrations.examples import printed, run_blocks, shown


def test_the_example_prints_what_the_page_shows() -> None:
    assert printed("litellm_agent.py") == shown("litellm.md")


def test_the_blocks_of_the_page_work() -> None:
    run_blocks("litellm.md")
    litellm.callbacks.clear()
