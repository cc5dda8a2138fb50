"""The examples of adapters: each runs as it stands, without keys, and shows what stopped it."""

from __future__ import annotations

import pytest

from tests.integrations.examples import printed

STUCK = (
    "run_tests returned the same result for the same arguments at turns 0, 1 and 2, with no new information in between."
)


@pytest.mark.long
@pytest.mark.parametrize(("name", "begin"), [
    ("anthropic_loop", "run r1 is halted (LOOP003): "), ("langchain_agent", "Stopped (LOOP003): "),
    ("langgraph_agent", "run t1 is halted (LOOP003): "), ("openai_loop", "run r1 is halted (LOOP003): "),
])  # fmt: skip
def test_an_example_is_stopped(name: str, begin: str) -> None:
    assert printed(f"{name}.py") == f"{begin}{STUCK}\n"
