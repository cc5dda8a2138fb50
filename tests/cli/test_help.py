"""The command line for a newcomer: help with examples, a fast start, and readable errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT

COMMANDS = (
    "scan", "demo", "worker", "publish", "replay", "watch", "notify", "otel", "topics apply", "topics check",
    "topics acls",
    "policy check", "policy show", "graph check", "stop-all", "pause-all", "clear", "kill", "resume",
    "backtest", "feedback", "explain", "schema export", "doctor", "config", "baseline", "stats", "report", "runs",
    "status", "acknowledge", "page-user",
)  # fmt: skip
# fmt: off
HEAVY = (
    "faust", "aiokafka", "networkx", "pydantic_settings", "msgspec", "redis", "confluent_kafka", "apprise", "aiohttp",
)
# fmt: on


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(run, command: str) -> None:
    result = run(*command.split(), "--help")

    assert result.exit_code == 0
    assert f"streamproc {command}" in result.stdout.partition("Example")[2]


def test_the_commands_are_all_listed(run) -> None:
    listed = run("--help").stdout

    assert all(command.split()[0] in listed for command in COMMANDS)


def test_help_imports_no_heavy_package() -> None:
    """Start-up is fast because help imports only what it needs."""
    code = f"""
import sys
from streamproc.cli import build
from typer.testing import CliRunner
assert CliRunner().invoke(build(), ["scan", "--help"]).exit_code == 0
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


def test_the_version_is_printed(run) -> None:
    assert run("--version").stdout.startswith("streamproc")


def test_an_unknown_command_is_exit_code_2(run) -> None:
    assert run("scna").exit_code == 2


def test_an_invalid_setting_is_named(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_PARTITIONS", "many")

    result = run("config")

    assert result.exit_code == 2
    assert "STREAMPROC_PARTITIONS" in result.stderr
    assert "'many'" in result.stderr
