"""The examples of adapters: each runs as it stands, without keys, and shows what stopped it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUCK = (
    "run_tests returned the same result for the same arguments at turns 0, 1 and 2, with no new information in between."
)


@pytest.mark.long
@pytest.mark.parametrize(("name", "printed"), [
    ("anthropic_loop", "run r1 is halted (LOOP003): "), ("langchain_agent", "Stopped (LOOP003): "),
    ("langgraph_agent", "run t1 is halted (LOOP003): "), ("openai_loop", "run r1 is halted (LOOP003): "),
])  # fmt: skip
def test_an_example_is_stopped(name: str, printed: str) -> None:
    environment = {
        key: os.environ[key] for key in os.environ if not key.startswith("STREAMPROC_") or key == "STREAMPROC_CORE"
    }
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "integrations" / f"{name}.py")],
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == (f"{printed}{STUCK}\n", 0), ended.stderr
