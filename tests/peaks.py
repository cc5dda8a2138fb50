"""Peak memory of a process of its own, in MB: what a container's limit counts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

CHART_LIMIT_MB: Final = 512  # of a pod of the Helm chart


def peak_mb(pid: int | str = "self") -> int:
    """Return the peak of a process since it was started; of another than this one only on Linux, elsewhere 0."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) >> 10
    if pid != "self":
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20  # macOS counts in bytes


def run_python(code: str, *arguments: str, timeout_s: float = 300.0) -> str:
    """Run Python code in a process of its own, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, timeout=timeout_s, check=False, env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout
