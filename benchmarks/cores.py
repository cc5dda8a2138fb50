"""Measure with each form of the core, compiled and pure Python, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.machine import ROOT
from benchmarks.table import BenchmarkDefect
from streamproc.core.compiled import FOLDER, MANIFEST


def cores() -> tuple[str, ...]:
    """Return the cores that can be measured here."""
    return ("compiled", "python") if (FOLDER / MANIFEST).exists() else ("python",)


def kind_of(core: str) -> str:
    """Return how the table calls a core."""
    return "compiled" if core == "compiled" else "pure Python"


def with_core(core: str, module: str, *arguments: object) -> Any:
    """Return the JSON that a module prints, run with this core. Raises `BenchmarkDefect` if it fails."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = os.environ | {"STREAMPROC_CORE": core}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkDefect(f"{module} failed with the {core} core: {done.stderr[-2_000:]}")
    return json.loads(done.stdout)
