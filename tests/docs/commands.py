"""Shell commands in the documentation: check that the names in them exist, and run those of streamproc."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import typer
import yaml
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.settings import Settings
from tests.deploy import expressions
from tests.docs.pages import ROOT

ELSEWHERE = {
    "cd",
    "cat",
    "curl",
    "echo",
    "source",
    "git",
    "kafka-console-consumer.sh",
}  # of the shell and of other projects
STARTS_PYTHON = {"python", "python3", ".venv/bin/python"}


def lines(text: str) -> Iterator[str]:
    """Yield the commands of a block: one a line, with continued lines joined and comments removed."""
    for line in text.replace("\\\n", " ").splitlines():
        if command := re.sub(r"(^|\s)#\s.*$", "", line).strip():
            yield command


def faults(command: str) -> Iterator[str]:
    """Yield the names in a command that do not exist."""
    for part in re.split(r"\s(?:\||&&)\s", command):
        words = shlex.split(part)
        while words and (assigned := re.fullmatch(r"(\w+)=.*", words[0])):
            yield from _faults_of_variable(assigned[1])
            words.pop(0)
        if words:
            yield from _faults_of_words(words)


def _faults_of_words(words: list[str]) -> Iterator[str]:
    name, *rest = words
    if name in _COMMANDS:
        yield from _COMMANDS[name](rest)
    elif name in STARTS_PYTHON:
        yield from (f"no file {word}" for word in rest if word.endswith(".py") and not (ROOT / word).exists())
    elif name not in ELSEWHERE:
        yield f"unknown command `{name}`: add it to tests/docs/commands.py"


def _faults_of_streamproc(words: list[str]) -> Iterator[str]:
    command: Any = typer.main.get_command(build())
    path = "streamproc"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        path = f"{path} {words[0]}"
        if words[0] not in command.commands:
            yield f"no command `{path}`"
            return
        command, words = command.commands[words[0]], words[1:]
    try:
        command.make_context(path, list(words))
    except typer.Exit:
        return  # --help and --version
    except Exception as error:  # noqa: BLE001 (typer carries a click of its own, with errors of its own)
        yield f"`{path} {' '.join(words)}`: {getattr(error, 'format_message', error.__str__)()}"


def _faults_of_make(words: list[str]) -> Iterator[str]:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for word in words:
        if "=" not in word and word not in targets:
            yield f"no target {word} in the Makefile"


def _faults_of_export(words: list[str]) -> Iterator[str]:
    for word in words:
        yield from _faults_of_variable(word.partition("=")[0])


def _faults_of_variable(name: str) -> Iterator[str]:
    field = name.removeprefix("STREAMPROC_").lower()
    if name.startswith("STREAMPROC_") and field not in Settings.model_fields:
        yield f"no setting {name}"


def _faults_of_helm(words: list[str]) -> Iterator[str]:
    yield from (f"no chart {word}" for word in words if word.startswith("deploy/") and not (ROOT / word).is_dir())
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "streamproc" / "values.yaml").read_text(encoding="utf-8"))
    for option, value in pairwise(words):
        part, _, name = value.partition("=")[0].partition(".")
        if option in ("--set", "--set-file") and name.partition(".")[0] not in values.get(part, {}):
            yield f"no value {part}.{name}"


def _faults_of_kubectl(words: list[str]) -> Iterator[str]:
    if "--" in words:
        yield from _faults_of_words(words[words.index("--") + 1 :])


def _faults_of_docker(words: list[str]) -> Iterator[str]:
    if words[:1] != ["compose"]:
        yield from () if (ROOT / "deploy" / "Dockerfile").exists() else ("no Dockerfile",)
        return
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    if words[1:3] == ["--profile", "observe"]:
        words = [words[0], *words[3:]]
    if words[1:3] == ["run", "--rm"]:
        words = [words[0], "exec", words[3], "streamproc", *words[4:]]
    if words[1:2] == ["exec"]:
        _, _, service, *inner = words
        if service not in services:
            yield f"no service {service} in docker-compose.yml"
        yield from _faults_of_words(inner)


def _faults_of_promtool(words: list[str]) -> Iterator[str]:
    if words[:2] == ["query", "instant"]:
        yield from expressions.faults(words[3])


def _faults_of_npm(words: list[str]) -> Iterator[str]:
    scripts = json.loads((ROOT / "examples" / "typescript" / "package.json").read_text(encoding="utf-8"))["scripts"]
    named = words[1:] if words[:1] == ["run"] else [word for word in words[:1] if word not in ("ci", "install")]
    yield from (f"no script {name} in package.json" for name in named if name not in scripts)


def _faults_of_pip(words: list[str]) -> Iterator[str]:
    for extra in re.findall(r"\[([\w,]+)\]", " ".join(words)):
        if f"{extra} = [" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8"):
            yield f"no extra {extra}"


_COMMANDS: dict[str, Callable[[list[str]], Iterator[str]]] = {
    "streamproc": _faults_of_streamproc, "make": _faults_of_make, "export": _faults_of_export,
    "docker": _faults_of_docker, "promtool": _faults_of_promtool, "helm": _faults_of_helm,
    "kubectl": _faults_of_kubectl, "npm": _faults_of_npm, "pip": _faults_of_pip,
}  # fmt: skip


class Console:
    """Runs streamproc commands in this process and in the working directory."""

    def __init__(self) -> None:
        self.exit_code = 0

    def run(self, command: str) -> str:
        """Return the output of a command on both streams."""
        if command == "echo $?":
            return f"{self.exit_code}\n"
        words = shlex.split(command)
        if words[0] == "cat":
            return "".join(path.read_text(encoding="utf-8") for path in map(_here, words[1:]))
        assert words[0] == "streamproc", f"`{command}` cannot be run in a test"
        result = CliRunner().invoke(build(), words[1:])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.exit_code = result.exit_code
        return result.output


def _here(name: str) -> Any:
    from pathlib import Path

    return Path(name)


def agrees(shown: str, printed: str) -> bool:
    """Whether a page shows the printed text: `...` stands for anything, as in doctests."""
    pattern = ".*?".join(map(re.escape, shown.split("...")))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None
