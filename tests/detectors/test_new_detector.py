"""A built-in detector that remembers something is one file and two lines, as CONTRIBUTING.md says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

PACKAGE: Final = Path(__file__).parents[2] / "streamproc"
DETECTOR: Final = '''
"""LOOP099 many_mails: a run sends one e-mail after another."""

from __future__ import annotations

from streamproc.detectors.base import Detector, Example, Finding, View, kind, level


class ManyMails(Detector):
    code, name = "LOOP099", "many_mails"
    kinds = kind.LONG
    evidence = ("count",)

    class Limits:
        """E-mails of one run."""

        warn: int = 3
        halt: int = 5

    def check(self, view: View, limits: Limits) -> Finding | None:
        memory = view.memory(self.code)
        count = memory["count"] = memory.get("count", 0) + sum(call.name == "send" for call in view.turn.calls)
        reached = level(count, limits.warn, limits.halt)
        return self.finding(reached, 0, f"The run has sent {count} e-mails.", count=count) if reached else None


DETECTOR = ManyMails()
HEALTHY: list[Example] = []
STUCK: list[Example] = []
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the package, to which the detector is added as a contributor would add it."""
    package = tmp_path / "streamproc"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("_compiled", "__pycache__"))
    (package / "detectors" / "many_mails.py").write_text(DETECTOR.lstrip())
    registry = package / "detectors" / "__init__.py"
    lines = registry.read_text().replace("    monologue,\n", "    many_mails,\n    monologue,\n", 1)
    registry.write_text(
        lines.replace("    artifact_flip, oscillation,", "    many_mails,\n    artifact_flip, oscillation,")
    )
    return tmp_path


def decided(folder: Path, turns: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Return the decisions of `streamproc scan` on turns of one run."""
    log = folder / "mails.jsonl"
    log.write_text("".join(json.dumps({"run_id": "r1", **turn}) + "\n" for turn in turns))
    environment = os.environ | {"PYTHONPATH": str(folder), "STREAMPROC_CORE": "python"}
    command = [sys.executable, "-m", "streamproc", "scan", str(log), "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert not done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [(one["code"], one["severity"], one["trigger"]["turn"]) for one in found if "code" in one]


def test_it_is_one_file_and_two_lines_and_remembers_between_turns(folder: Path) -> None:
    mails = [
        {"node": "agent", "tool_calls": [{"name": "send", "args": {"to": n}, "result": f"sent {n}"}]} for n in range(5)
    ]
    assert decided(folder, mails) == [("LOOP099", "warn", 2), ("LOOP099", "halt", 4)]
