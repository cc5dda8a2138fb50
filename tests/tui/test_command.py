"""The option --tui where it cannot work: an error that says what to do, before anything is connected."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import pytest
from typer.testing import CliRunner

from streamproc.cli import build
from tests.cli.terminals import in_terminal


def test_without_a_terminal_it_names_the_command_for_a_pipe() -> None:
    result = CliRunner().invoke(build(), ["watch", "--tui"])
    assert result.exit_code == 2
    assert "--tui: it needs a terminal" in result.output
    assert "streamproc watch --json" in result.output


def test_a_terminal_for_the_output_alone_is_not_enough() -> None:
    terminal = in_terminal("watch", "--tui", columns=200)  # its standard input is /dev/null
    assert terminal.exit_code == 2
    assert "--tui: it needs a terminal" in terminal.written


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def hidden(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "textual" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    result = CliRunner().invoke(build(), ["watch", "--tui"])
    assert result.exit_code == 2
    assert "pip install 'streamproc[tui]'" in result.output


@pytest.mark.parametrize("options", [["--format", "jsonl"], ["--count", "1"]])
def test_options_of_the_list_do_not_go_with_it(options: list[str]) -> None:
    result = CliRunner().invoke(build(), ["watch", "--tui", *options])
    assert result.exit_code == 2
    assert "leave out --format, --json and --count" in result.output
