"""`streamproc policy check` for machines: several files, JSON, and annotations of GitHub Actions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streamproc.cli.policy import annotation
from streamproc.errors import Problem

MISTAKEN = """\
presets: [standard,
          nope]
budgets:
  maxRounds: 20
"""
SYNTAX = "name: ours\nbudgets: [\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a valid policy and two with mistakes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text("name: ours\nversion: 7\n")
    (tmp_path / "bad.yaml").write_text(MISTAKEN)
    (tmp_path / "syntax.yaml").write_text(SYNTAX)
    return tmp_path


def read_command(line: str) -> tuple[dict[str, str], str]:
    """Return the properties and the message of a workflow command, as GitHub's runner reads them."""
    found = re.fullmatch(r"::error (.*?)::(.*)", line)
    assert found is not None, line
    properties = dict(part.split("=", 1) for part in found[1].split(","))
    return {name: read_escapes(value) for name, value in properties.items()}, read_escapes(found[2])


def read_escapes(text: str) -> str:
    for code, sign in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, sign)
    return text


def test_mistakes_of_several_files_are_annotations_of_their_lines(run, folder: Path) -> None:
    result = run("policy", "check", "--format", "github", "bad.yaml", "good.yaml", "syntax.yaml", "none.yaml")

    *commands, missing = [line for line in result.stdout.splitlines() if line.startswith("::")]
    found = [(of["file"], of["line"], of["col"], of["title"]) for of, _ in map(read_command, commands)]
    assert found == [
        ("bad.yaml", "2", "11", "streamproc: presets.1"),
        ("bad.yaml", "4", "3", "streamproc: budgets.maxRounds"),
        ("syntax.yaml", "3", "1", "streamproc: policy"),
    ]
    assert read_command(commands[1])[1].startswith("20 is above the ceiling 15 (use at most 15; ")
    assert read_command(missing)[0] == {"file": "none.yaml", "title": "streamproc: policy"}
    assert re.search(r"^policy ours, version 7, hash \w{16}: valid \(good.yaml\)$", result.stdout, re.MULTILINE)
    assert result.exit_code == 2
    assert not result.stderr


def test_a_path_is_written_from_the_root_of_the_repository(run, folder: Path) -> None:
    result = run("policy", "check", "--format", "github", folder / "bad.yaml")

    assert read_command(result.stdout.splitlines()[0])[0]["file"] == "bad.yaml"


@pytest.mark.parametrize("option", [["--json"], ["--format", "json"]])
def test_json_has_an_object_for_each_policy(run, folder: Path, option: list[str]) -> None:
    result = run("policy", "check", *option, "bad.yaml", "good.yaml", "none.yaml")

    bad, good, missing = map(json.loads, result.stdout.splitlines())
    assert (bad["source"], bad["valid"]) == ("bad.yaml", False)
    assert [(one["line"], one["column"], one["field"]) for one in bad["problems"]] == [
        (2, 11, "presets.1"), (4, 3, "budgets.maxRounds"),
    ]  # fmt: skip
    assert bad["problems"][1]["message"] == "20 is above the ceiling 15"
    assert bad["problems"][1]["remedy"].startswith("use at most 15; ")
    assert {**good, "hash": ""} == {
        "source": "good.yaml", "valid": True, "name": "ours", "version": "7", "hash": "", "problems": [],
    }  # fmt: skip
    assert (missing["problems"][0]["line"], missing["problems"][0]["column"]) == (None, None)
    assert result.exit_code == 2


def test_valid_files_exit_with_zero_and_are_told_apart(run, folder: Path) -> None:
    result = run("policy", "check", "good.yaml", "repair")

    first, second = result.stdout.splitlines()
    assert first.endswith(": valid (good.yaml)")
    assert second.endswith(": valid (repair)")
    assert result.exit_code == 0


@pytest.mark.parametrize(("file", "what"), [
    ("a:b,c%3A=.yaml", "100% wrong: a, b"), ("policy.yaml", "two\nlines\r::stop-commands::x"),
    ("x\n::set-output name=a::b.yaml", "expected ::warning::"),
])  # fmt: skip
def test_no_name_and_no_value_ends_an_annotation(file: str, what: str) -> None:
    line = annotation(file, Problem("budgets.a,b=c:d", what, place=f"{file}:3", column=5))

    properties, message = read_command(line)
    assert "\n" not in line
    assert "\r" not in line
    assert properties["file"] == file.replace("\n", "\\n")
    assert (properties["line"], properties["col"]) == ("3", "5")
    assert properties["title"] == "streamproc: budgets.a,b=c:d"
    assert message == what.replace("\n", "\\n").replace("\r", "\\r")


def test_no_name_of_a_valid_policy_becomes_a_command(run, folder: Path) -> None:
    name = "::error::x\n::stop-commands::y"
    (folder / "hostile.yaml").write_text(f"name: {json.dumps(name)}\n")

    result = run("policy", "check", "--format", "github", "hostile.yaml", "good.yaml")

    assert result.exit_code == 0
    assert all(line.startswith("policy ") for line in result.stdout.splitlines())
