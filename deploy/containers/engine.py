"""The Docker engine that the scenario uses: how its commands run, and that of this machine.

`deploy.containers.private_engine` makes the other one.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ANSWER_TIMEOUT_S: Final = 20
COMMAND_TIMEOUT_S: Final = 1_800  # a build that fetches everything


@dataclass(frozen=True)
class Engine:
    """An engine that runs."""

    name: str
    images: str  # where its base images come from
    prefix: tuple[str, ...] = ()  # words before each command: they lead to the checkout that the engine sees

    def run(
        self, *command: str, given: str = "", timeout_s: float = COMMAND_TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the checkout, with `given` as its input. Standard error is part of its output."""
        return subprocess.run(
            [*self.prefix, *command], input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", check=False, timeout=timeout_s, cwd=ROOT,
        )  # fmt: skip


def machine_engine() -> Engine | None:
    """Return the engine of this machine, if it runs and has compose; else None."""
    if shutil.which("docker") is None:
        return None
    try:
        engine = _answer("docker", "version", "--format", "{{.Server.Version}}")
        compose = _answer("docker", "compose", "version", "--short")
    except (subprocess.SubprocessError, OSError):
        return None
    return Engine(f"Docker {engine} of this machine, with compose {compose}", "the registries', by digest")


def _answer(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=ANSWER_TIMEOUT_S)
    return done.stdout.strip()
