"""The example orchestrator as a user runs it: two processes with a real Kafka between them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamproc import Monitor

FOLDER = Path(__file__).parents[2] / "examples" / "coder_verifier"
ATTEMPTS_SAVED_MIN = 15  # it is stuck at the fifth of thirty; ten more take less than a second


@pytest.mark.kafka
def test_another_process_cancels_its_task(brokers: str, topic_prefix: str) -> None:
    environment = os.environ | {"STREAMPROC_TOPIC_PREFIX": topic_prefix, "PYTHONPATH": str(FOLDER.parents[1])}
    command = [sys.executable, str(FOLDER / "orchestrator.py"), "--brokers", brokers]
    options = ["--with-worker", "--thinking-s", "0.02"]

    ended = subprocess.run(command + options, env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 0, ended.stderr
    assert "is halted (STALL002): The same 2 tests have failed in 3 consecutive iterations." in ended.stdout
    assert "why      STALL002, stalled: seen 3 times, since turn 5, failing tests 7 → 4 → 2 → 2 → 2" in ended.stdout
    assert "at       turn 9 (verifier)" in ended.stdout
    assert re.search(r"stopped +\d+ ms after that turn was published", ended.stdout)
    saved = re.search(r"saved +(\d+) of 30 attempts", ended.stdout)
    assert int(saved[1]) >= ATTEMPTS_SAVED_MIN


@pytest.mark.parametrize(("stuck", "code", "turn"), [("tests", "STALL002", 9), ("patch", "STALL001", 10)])
async def test_its_agents_get_stuck_as_documented(
    stuck: str, code: str, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from orchestrator import GRAPH
    from roles import Coder, Verifier

    monitor = Monitor()
    coder, verifier = Coder(stuck, 0), Verifier(stuck, 0)
    controls = monitor.feed(type="run.started", run_id="r", graph=GRAPH)
    for attempt in range(1, 10):
        patch = await coder.write(attempt)
        controls += monitor.feed(run_id="r", node="coder", output=patch.says, artifact=patch.text)
        verdict = await verifier.run_tests(attempt)
        controls += monitor.feed(
            run_id="r", node="verifier", tests={"failed": verdict.failed, "passed": verdict.passed}
        )

    [halt] = [control for control in controls if control.halts][:1]
    assert halt.code == code
    assert halt.trigger.turn == turn
