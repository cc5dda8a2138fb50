"""CrewAI calls home, asks for its newest version and writes databases: not from tests."""

from __future__ import annotations

import os
import socket
import tempfile
from typing import Any

import pytest

os.environ |= {  # read when CrewAI is imported
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_TESTING": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(prefix="crewai-"),
}


@pytest.fixture(autouse=True)
def nothing_leaves_this_machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fail a test in which anything connects to another machine."""
    connect, tried = socket.socket.connect, []

    def loopback(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
            tried.append(address)
            raise ConnectionRefusedError(f"no network in tests: {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", loopback)
    yield
    assert not tried
