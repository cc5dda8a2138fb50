"""What the command line's tests share: running a command, files with turns, a deployment with a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from streamproc.cli import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typer.testing import Result

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _alone(nobodys_settings: None) -> None:
    """All tests here."""


@pytest.fixture
def run() -> Callable[..., Result]:
    """Runs a command in this process: `run("scan", "-", input=...)`. A traceback fails the test."""
    app = build()

    def invoke(*arguments: object, **options: Any) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def command(*arguments: object, output: Any = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
    """A command as a process of its own; what it says goes to pipes, or all into one file."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAMPROC_")}
    return subprocess.Popen(
        [sys.executable, "-m", "streamproc", *map(str, arguments)],
        env=clean | {"PYTHONPATH": str(ROOT)} | environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
    )


def stuck(run_id: str = "stuck", turns: int = 4) -> list[dict[str, Any]]:
    """A run that says the same over and over: warned of at the second turn, halted at the third."""
    return [{"run_id": run_id, "node": "coder", "output": "I will try again."} for _ in range(turns)]


def honest(run_id: str = "honest", turns: int = 4) -> list[dict[str, Any]]:
    """A run that says something new each time."""
    words = ("read the docs", "found the bug in sort.py", "wrote a test", "all tests pass", "done", "cleaned up")
    return [{"run_id": run_id, "node": "coder", "output": words[number]} for number in range(turns)]


def jsonl(events: Iterable[dict[str, Any]]) -> str:
    """Events as the text of a file."""
    return "".join(json.dumps(event) + "\n" for event in events)


@pytest.fixture
def turns_file(tmp_path: Path) -> Path:
    """A stuck run and an honest one, interleaved."""
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl(event for pair in zip(stuck(), honest(), strict=True) for event in pair))
    return path
