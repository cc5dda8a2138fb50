"""Shared by the tests of the adapters."""

from __future__ import annotations

import pytest

from tests.integrations import commands


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without brokers in the environment, a `Watch` is a `Monitor`. No command has run."""
    monkeypatch.delenv("STREAMPROC_BROKERS", raising=False)
    commands.ran.clear()
