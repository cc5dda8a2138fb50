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


def run(environment: dict[str, str], *options: str) -> str:
    command = [sys.executable, str(FOLDER / "orchestrator.py"), "--agents", str(AGENTS), *options]
    environment = environment | {"PYTHONPATH": str(FOLDER.parents[1])}

    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    [(stopped, born)] = re.findall(r"(\d+) of (\d+) agents have stopped by their own report", ended.stdout)
    assert int(stopped) == int(born) >= AGENTS
    return ended.stdout


@pytest.mark.long
@pytest.mark.kafka
def test_every_agent_stops_by_its_own_report(brokers: str, topic_prefix: str) -> None:
    environment = os.environ | {"STREAMPROC_BROKERS": brokers, "STREAMPROC_TOPIC_PREFIX": topic_prefix}

    output = run(environment, "--with-worker")

    assert re.search(r"stopped \d+ of \d+; (none|\d+) born later", output)
    assert output.count("is stopped by ada: it starts agents without end") >= AGENTS


@pytest.mark.long
def test_every_agent_stops_by_its_own_report_without_a_broker() -> None:
    output = run({name: value for name, value in os.environ.items() if not name.startswith("STREAMPROC_")}, "--with-up")

    assert re.search(r"stopped \d+ runs: agent-", output)
    assert output.count("is killed: it starts agents without end") >= AGENTS
