"""The runaway tree as a user runs it: real processes that start each other, stopped by one command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "runaway_tree"
AGENTS = 3


@pytest.mark.kafka
def test_every_agent_stops_by_its_own_report(brokers: str, topic_prefix: str) -> None:
    environment = os.environ | {
        "STREAMPROC_BROKERS": brokers, "STREAMPROC_TOPIC_PREFIX": topic_prefix, "PYTHONPATH": str(FOLDER.parents[1])
    }  # fmt: skip
    command = [sys.executable, str(FOLDER / "orchestrator.py"), "--with-worker", "--agents", str(AGENTS)]

    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    [(stopped, born)] = re.findall(r"(\d+) of (\d+) agents have stopped by their own report", ended.stdout)
    assert int(stopped) == int(born) >= AGENTS
    assert re.search(r"stopped \d+ of \d+; (none|\d+) born later", ended.stdout)
    assert ended.stdout.count("is stopped by ada: it starts agents without end") >= AGENTS
