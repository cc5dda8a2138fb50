"""Every code block in the documentation works as shown."""

from __future__ import annotations

import doctest
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry import trace
from opentelemetry.util._once import Once

from streamproc.samples import trajectory_file
from tests.docs.commands import Console, agrees, faults, lines
from tests.docs.distribution import install
from tests.docs.pages import ROOT, Block, blocks, pages, runs_elsewhere

WITH_BLOCKS = [page for page in pages() if list(blocks(page))]
LANGUAGES = {"python", "json", "yaml", "toml", "console", "sh", "text", "typescript"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that holds nothing but the sample data, in the place it has in a clone."""
    samples = tmp_path / "streamproc" / "samples"
    samples.mkdir(parents=True)
    with trajectory_file() as path:
        shutil.copy(path, samples)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def without_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Watch` that a page makes stays in this process: one on Kafka would be connected until the tests end."""
    monkeypatch.delenv("STREAMPROC_BROKERS", raising=False)


@pytest.fixture(autouse=True)
def without_tracers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracer provider that a page sets is gone after it: a process can set it only once."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_work(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": page.stem}
    console = Console()
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block}: name its language"
        if block.mark.startswith("file: "):
            (folder / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        if block.language == "python" and runs_elsewhere(page):
            compile(block.text, str(block), "exec", dont_inherit=True)
        elif block.language == "python":
            run_python(block, names)
        elif block.language == "json":
            read_json(block.text)
        elif block.language == "yaml":
            yaml.safe_load(block.text)
        elif block.language == "toml":
            install(block.text, folder)
            monkeypatch.syspath_prepend(str(folder))
        elif block.language == "console":
            hold_session(block, console)
        elif block.language == "sh":
            assert not [f"{block}: {fault}" for command in lines(block.text) for fault in faults(command)]


@pytest.mark.parametrize("page", list(filter(runs_elsewhere, WITH_BLOCKS)), ids=lambda page: page.stem)
def test_the_blocks_of_a_framework_work_where_it_is_installed(page: Path) -> None:
    tests = (ROOT / "tests" / "frameworks" / page.stem.replace("_", "-")).glob("test_*.py")
    assert any(f'run_blocks("{page.name}")' in test.read_text(encoding="utf-8") for test in tests)


def hold_session(block: Block, console: Console) -> None:
    """Check that every streamproc command prints what is shown. (Scripts of the examples have their own tests.)"""
    for command, shown in sessions(block):
        assert not [f"{block}: {fault}" for fault in faults(command)]
        if not command.startswith("python "):
            printed = console.run(command)
            assert agrees(shown, printed), f"{block}: `{command}` prints\n{printed}"


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block; one with prompts must print what it shows. Its `__name__` is not `__main__`, so nothing connects."""
    if ">>>" not in block.text:
        exec(compile(block.text, str(block), "exec", dont_inherit=True), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, str(block), str(block.page), block.line)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append, clear_globs=False)
    names.update(test.globs)
    assert not failures, "".join(failures)


def read_json(text: str) -> None:
    """Read one JSON value, or one a line."""
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


def sessions(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output that the page shows."""
    found = re.split(r"^\$ (.+)\n", block.text, flags=re.MULTILINE)
    assert not found[0], f"{block}: a console block begins with a command"
    return list(zip(found[1::2], found[2::2], strict=True))


@pytest.mark.parametrize(("command", "fault"), [
    ("streamproc fly", "no command"), ("streamproc scan --wings 2 x.jsonl", "No such option"),
    ("streamproc publish", "Missing argument"), ("streamproc policy chek", "no command `streamproc policy chek`"),
    ("my-agent | streamproc scan -", "unknown command"), ("make coffee", "no target coffee"),
    ("export STREAMPROC_BROKER=x", "no setting STREAMPROC_BROKER"),
    ("STREAMPROC_BROKER=x streamproc worker", "no setting STREAMPROC_BROKER"), ("npm run tpyes", "no script tpyes"),
    ("docker compose exec worker-9 streamproc watch", "no service worker-9"),
    ("docker compose exec worker-1 streamproc wach", "no command"), (".venv/bin/python docs/generrate.py", "no file"),
])  # fmt: skip
def test_a_command_that_does_not_exist_is_reported(command: str, fault: str) -> None:
    [reported] = faults(command)
    assert fault in reported


@pytest.mark.parametrize("command", [
    "streamproc scan a.jsonl --policy repair --format jsonl", "streamproc topics apply --partitions 48",
    "STREAMPROC_BROKERS=kafka:9092 make test ARGS=tests/worker", "docker compose up --build --detach",
    "source .venv/bin/activate && streamproc --help", ".venv/bin/python docs/generate.py",
])  # fmt: skip
def test_a_command_that_exists_has_no_fault(command: str) -> None:
    assert not list(faults(command))


def test_a_page_that_shows_other_output_does_not_agree() -> None:
    assert agrees("halt ...\n", "halt LOOP001\nand more\n")
    assert not agrees("halt LOOP002\n", "halt LOOP001\n")
    assert not agrees("halt\n", "halt\nand more\n")
