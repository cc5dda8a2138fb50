"""Shared by the tests of the command line: run a command, make files with turns."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamproc.cli import build
from tests.programs import clean_environment

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _alone(nobodys_settings: None) -> None:
    """Keep the environment's settings out of every test here."""


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a command in this process: `run("scan", "-", input=...)`. A traceback fails the test."""
    app = build()

    def invoke(*arguments: object, **options: Any) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def command(*arguments: object, output: Any = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
    """Start a command as a process, with its output in pipes or in one file."""
    return subprocess.Popen(
        [sys.executable, "-m", "streamproc", *map(str, arguments)],
        env=clean_environment() | environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
        preexec_fn=_heed_ctrl_c,
    )


def _heed_ctrl_c() -> None:
    """Undo what a shell does to a suite in the background: it and its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def stuck(run_id: str = "stuck", turns: int = 4) -> list[dict[str, Any]]:
    """A run that repeats its output: it gets a warning at the second turn and a halt at the third."""
    return [{"run_id": run_id, "node": "coder", "output": "I will try again."} for _ in range(turns)]


def honest(run_id: str = "honest", turns: int = 4) -> list[dict[str, Any]]:
    """A run with a new output in each turn."""
    words = ("read the docs", "found the bug in sort.py", "wrote a test", "all tests pass", "done", "cleaned up")
    return [{"run_id": run_id, "node": "coder", "output": words[number]} for number in range(turns)]


def jsonl(events: Iterable[dict[str, Any]]) -> str:
    """Return events as JSON Lines."""
    return "".join(json.dumps(event) + "\n" for event in events)


@pytest.fixture
def turns_file(tmp_path: Path) -> Path:
    """A stuck run and an honest one, interleaved."""
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl(event for pair in zip(stuck(), honest(), strict=True) for event in pair))
    return path
