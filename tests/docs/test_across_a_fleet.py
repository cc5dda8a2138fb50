"""The README's example of a fleet, with the real worker on a real Kafka."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from streamproc.cli import build
from tests.docs.pages import ROOT, blocks


@pytest.fixture
def worker(brokers: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create the topics and start a worker, as the README says."""
    monkeypatch.setenv("STREAMPROC_BROKERS", brokers)
    monkeypatch.setenv("STREAMPROC_TOPIC_PREFIX", topic_prefix)
    assert CliRunner().invoke(build(), ["topics", "apply"]).exit_code == 0
    with subprocess.Popen([sys.executable, "-m", "streamproc", "worker", "--log-level", "warning"]) as process:
        yield
        process.terminate()
    assert process.returncode == 0


def test_the_example_is_halted_by_the_worker(worker: None, capsys: pytest.CaptureFixture[str]) -> None:
    [example] = [block for block in blocks(ROOT / "README.md") if "async def work" in block.text]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example.text, str(example), "exec"), names)

    asyncio.run(asyncio.wait_for(names["work"]("r1"), timeout=60))

    said = capsys.readouterr().out
    assert said.startswith("stopped: run r1 is halted (LOOP001): coder repeated the same output 3 times")
