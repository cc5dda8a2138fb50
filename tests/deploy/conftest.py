"""promtool for the tests of alerts and dashboard."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local.prometheus import MISSING, find
from tests.deploy.expressions import FOLDER


@dataclass(frozen=True)
class Promtool:
    """promtool, in deploy/prometheus or another folder."""

    path: str

    def __call__(self, *words: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.path, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Skips the test where there is none."""
    path = find("promtool")
    if path is None:
        pytest.skip(MISSING)
    return Promtool(path)
