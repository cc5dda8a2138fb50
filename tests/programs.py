"""Programs that tests start, without the settings of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def clean_environment() -> dict[str, str]:
    """Return the environment for a process: it imports this checkout, runs the core that the test runs, and has no
    other setting of ours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("STREAMPROC_") or name == "STREAMPROC_CORE"
    }
    return kept | {"PYTHONPATH": str(ROOT)}


def output_of(script: Path) -> str:
    """Return the output of a Python script, which must exit with 0."""
    ended = subprocess.run(
        [sys.executable, str(script)], env=clean_environment() | {"PYTHONIOENCODING": "utf-8"}, capture_output=True,
        encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
