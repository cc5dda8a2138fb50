"""The command line for a newcomer: help with examples, a fast start, and readable errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from streamproc.cli import build
from streamproc.cli.command_group import GROUPS
from tests.cli.conftest import ROOT

COMMANDS = (
    "scan", "demo", "worker", "publish", "replay", "watch", "notify", "otel", "topics apply", "topics check",
    "topics acls",
    "policy check", "policy show", "graph check", "stop-all", "pause-all", "clear", "kill", "resume",
    "backtest", "feedback", "explain", "schema export", "doctor", "config", "baseline", "stats", "report", "runs",
    "status", "acknowledge", "page-user", "plan", "up", "export",
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


SILENT = {
    "demo", "worker", "notify", "otel", "page", "page-user", "keys new", "schema export", "convert", "export", "up",
    "protect claude", "protect codex", "protect gemini", "protect all", "protect run",
}  # fmt: skip


def leaves() -> dict[str, typer.core.TyperCommand]:
    """Return every command by its name, those of groups, too."""
    found = {}
    for name, command in typer.main.get_command(build()).commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {one}": leaf for one, leaf in inner.items()} if inner else {name: command}
    return found


def test_every_command_that_prints_data_has_json_and_quiet() -> None:
    """The others run until they are stopped, write files, or print secrets; `convert` prints JSON anyway."""
    for name, command in leaves().items():
        options = {option for param in command.params for option in param.opts}
        if name not in SILENT:
            assert {"--json", "--quiet"} <= options, name


def test_every_command_stands_in_one_group(run) -> None:
    listed = run("--help").stdout
    commands = typer.main.get_command(build()).commands

    assert sorted(commands) == sorted(name for group in GROUPS.values() for name in group)
    places = [listed.index(f"─ {group} ─") for group in GROUPS]
    assert places == sorted(places)
    assert "─ Commands ─" not in listed


def test_help_says_what_an_option_takes_and_names_extras_in_full(run) -> None:
    worker = run("worker", "--help", env={"COLUMNS": "200"}).stdout
    watch = run("watch", "--help", env={"COLUMNS": "200"}).stdout
    kill = run("kill", "--help", env={"COLUMNS": "200"}).stdout

    assert "streamproc[otel]" in worker
    assert "streamproc[tui]" in watch
    assert "HOST:PORT,…" in worker
    assert "FILE|PRESET" in worker
    assert "INTEGER [1<=x<=256]" in worker
    assert "[RUN]" in kill
    assert not [page for page in (worker, watch, kill) if "<str>" in page or "<bool>" in page]
    assert "--run " not in kill  # of earlier versions: it is taken, and not shown
