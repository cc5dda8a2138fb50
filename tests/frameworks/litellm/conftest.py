"""What all tests of LiteLLM need, before it is imported."""

from __future__ import annotations

import os

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices
os.environ["LITELLM_LOG"] = "ERROR"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without brokers in the environment, a `Watch` is a `Monitor`."""
    monkeypatch.delenv("STREAMPROC_BROKERS", raising=False)
