"""Files that cannot be read, or that must not be written: one of many is skipped, and a log is never replaced."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import command, jsonl, stuck
from tests.importers.reading import SAMPLES

FULL = Path("/dev/full")


@pytest.mark.parametrize("damage", ["link to nothing", "link to itself", "binary", "text", "cut document"])
@pytest.mark.parametrize("name", ["scan", "backtest", "report"])
def test_one_unusable_file_of_a_directory_is_skipped_with_a_note(run, tmp_path: Path, name: str, damage: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    bad = logs / "bad.jsonl"
    (logs / "good.jsonl").write_text(jsonl(stuck()))
    if damage.startswith("link"):
        bad.symlink_to("nowhere" if damage == "link to nothing" else bad.name)
    else:
        contents = {"binary": bytes(range(256)) * 9, "text": b"a note\nof mine\n", "cut document": b'[\n  {"a": 1},\n'}
        bad.write_bytes(contents[damage])

    output = tmp_path / "out.html"
    result = run(
        *{"scan": ["scan", logs], "backtest": ["backtest", logs]}.get(name, ["report", "--log", logs, "-o", output])
    )

    assert result.exit_code == (1 if name == "scan" else 0)
    assert f"{bad}" in result.stderr
    assert "skipped 1 file " in result.stderr


@pytest.mark.parametrize("name", ["scan", "backtest"])
def test_an_unusable_file_that_is_named_is_an_error(run, tmp_path: Path, name: str) -> None:
    (tmp_path / "cut.json").write_text('[\n  {"role": "user",\n')
    (tmp_path / "link.jsonl").symlink_to("nowhere")

    cut, link = (run(name, tmp_path / file) for file in ("cut.json", "link.jsonl"))

    assert (cut.exit_code, link.exit_code) == (2, 2)
    assert "it is a JSON document that is cut off or damaged (copy the file again" in cut.stderr
    assert "No such file or directory" in link.stderr


CLAUDE = (SAMPLES / "claude-code/sidechain_integrated.jsonl").read_bytes()
CODEX = next((SAMPLES / "codex").glob("*-11111111-*.jsonl")).read_bytes()


def test_a_log_of_two_tools_is_read_as_one_and_the_other_is_named(run, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.jsonl"
    for content, jobs in ((CLAUDE + CODEX, 1), (CODEX + CLAUDE, 1), (CODEX + CLAUDE, 2)):
        mixed.write_bytes(content)
        (tmp_path / "other.jsonl").write_bytes(CODEX)
        result = run("scan", tmp_path, "-j", jobs)
        assert result.exit_code == 0
        assert f"{mixed}: read as codex; it also has records of claude-code, which were left out" in result.stderr


def test_a_directory_of_everything_says_what_was_skipped_and_why(run, tmp_path: Path) -> None:
    contents = {
        "good.jsonl": CLAUDE, "marked.jsonl": b"\xef\xbb\xbf" + CODEX, "empty.jsonl": b"",
        "cut.jsonl.gz": gzip.compress(CLAUDE)[:-30], "wide.jsonl": CLAUDE.decode().encode("utf-16"),
        "package.json": b'{"name": "left-pad"}', "cut.json": b'[\n  {"role": "user",\n',
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    result = run("scan", tmp_path)
    assert result.exit_code == 0
    assert "3 runs, 7 turns" in result.stdout
    assert f"skipped 1 file of no known format: {tmp_path / 'package.json'}\n" in result.stderr
    assert "skipped 3 files that cannot be read: " in result.stderr
    for name, why in (
        ("wide.jsonl", "its text is UTF-16"),
        ("cut.json", "it is a JSON document that is cut off or damaged"),
        ("cut.jsonl.gz", "damaged gzip: Compressed file ended"),
    ):
        assert f"{tmp_path / name} ({why}" in result.stderr


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[]", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_events(run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.json").write_bytes(content)
    for name in ("scan", "convert"):
        result = run(name, tmp_path / "empty.json")
        assert result.exit_code == 2
        assert "no events in these logs: they are empty, or hold no turns" in result.stderr


def test_a_pipe_in_a_directory_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text(jsonl(stuck()))
    os.mkfifo(tmp_path / "pipe.jsonl")

    process = command("scan", tmp_path)
    try:
        assert process.wait(30) == 1
    finally:
        process.kill()


def writing(log: Path, output: Path) -> dict[str, list[object]]:
    """Commands that read a log, and write a file."""
    return {
        "scan -o": ["scan", log, "-o", output],
        "scan --html": ["scan", log, "--html", output],
        "report": ["report", "--log", log, "-o", output],
        "convert": ["convert", log, "-o", output],
        "replay": ["replay", log, "--json", "-o", output],
        "backtest -o": ["backtest", log, "-o", output],
        "backtest --html": ["backtest", log, "--html", output],
    }


@pytest.mark.parametrize("name", list(writing(Path(), Path())))
def test_no_command_replaces_the_log_that_it_reads(run, tmp_path: Path, name: str) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(jsonl(stuck()))
    new = tmp_path / "new.jsonl"

    for arguments in (
        writing(log, log),
        writing(tmp_path, log),
        writing(tmp_path, new),
        writing(tmp_path / "*.jsonl", new),
    ):
        result = run(*arguments[name])
        assert result.exit_code == 2
        assert "is one of the logs that are read" in result.stderr
        assert log.read_text() == jsonl(stuck())
    assert not new.exists()


@pytest.mark.parametrize("name", list(writing(Path(), Path())))
def test_nor_by_another_name_of_it(run, tmp_path: Path, name: str) -> None:
    log, loop = tmp_path / "a.jsonl", tmp_path / "loop.jsonl"
    log.write_text(jsonl(stuck()))
    (tmp_path / "soft").symlink_to(log)
    (tmp_path / "hard").hardlink_to(log)
    loop.symlink_to(loop)
    for one, output, said in (
        (log, tmp_path / "soft", "is one of the logs that are read"),
        (log, tmp_path / "hard", "is one of the logs that are read"),
        (tmp_path / "hard", log, "is one of the logs that are read"),
        (loop, tmp_path / "new", str(loop)), (log, loop, str(loop)),
    ):  # fmt: skip
        result = run(*writing(one, output)[name])
        assert result.exit_code == 2
        assert said in result.stderr
        assert log.read_text() == jsonl(stuck())


@pytest.mark.parametrize("name", list(writing(Path(), Path())))
def test_a_file_that_cannot_be_written_is_an_error_that_names_it(run, tmp_path: Path, name: str) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(jsonl(stuck()))

    for output in [tmp_path / "missing" / "out.html", *([FULL] if FULL.exists() else [])]:
        result = run(*writing(log, output)[name])
        assert result.exit_code == 2
        assert f"error: {output}: " in result.stderr


def test_a_replay_without_events_is_unusable(run, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()

    for name in ("replay", "backtest"):
        result = run(name, tmp_path / "empty.jsonl")
        assert result.exit_code == 2
        assert "no events in " in result.stderr


@pytest.mark.parametrize("arguments", [
    ("policy", "check"), ("graph", "check"), ("notify", "--test", "--file"),
    ("plan", "--runs", 1, "--turns-per-second", 1, "--figures"), ("backtest", "turns.jsonl", "--outcomes"),
], ids=lambda arguments: arguments[0])  # fmt: skip
def test_a_device_in_place_of_a_file_does_not_fill_the_memory(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streamproc.replay.outcomes.OUTCOMES_BYTES_MAX", 1 << 20)
    (tmp_path / "turns.jsonl").write_text(jsonl(stuck()))
    result = run(*arguments, "/dev/zero")
    assert result.exit_code == 2
    assert "it has more than" in result.stderr
    assert "/dev/zero" in result.stderr


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_end_is_refused_with_its_place(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr("streamproc.importers.log_bytes.LINE_BYTES_MAX", 1 << 20)
    log = tmp_path / f"log.jsonl{'.gz' if packed else ''}"
    content = jsonl(stuck()).encode() + b" " * (2 << 20)
    log.write_bytes(gzip.compress(content) if packed else content)
    result = run("scan", log)
    assert result.exit_code == 2
    assert f"{log}:{len(stuck()) + 1}: line: a line of more than 1048576 bytes" in result.stderr


@pytest.mark.parametrize("name", ["", "loop"])
def test_an_output_that_cannot_be_written_is_named(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("turns.jsonl").write_text(jsonl(stuck()))
    for arguments in (("convert", "turns.jsonl", "-o"), ("scan", "turns.jsonl", "-o")):
        result = run(*arguments, name)
        assert result.exit_code == 2
        assert "Name a file that can be written" in result.stderr


@pytest.mark.parametrize("arguments", [("explain",), ("policy", "show"), ("explain", "LOOP003")])
def test_results_that_cannot_be_written_are_an_error_and_a_closed_output_is_none(arguments: tuple[str, ...]) -> None:
    words = [sys.executable, "-m", "streamproc", *arguments]
    with FULL.open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "error: standard output: No space left on device. Free space, or write the results elsewhere\n",
    )
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, "")


SAID = [{"type": "text", "text": "Hi."}]
NOT_READ = {
    "a failure of the Who&When data set": {"history": [{"role": "a", "content": "b"}], "mistake_step": "2"},
    "results of tau2-bench": {"info": {}, "tasks": [], "simulations": [{"messages": []}]},
    "the state of an AutoGen team": {"type": "TeamState", "agent_states": {}},
    "a log of Magentic-One": {"type": "OrchestrationEvent", "source": "Orchestrator", "message": "x"},
    "spans as OpenTelemetry prints them": {
        "name": "chat",
        "context": {"trace_id": "0x5b8a"},
        "kind": "SpanKind.CLIENT",
    },
    "a transcript of Cursor": {"role": "user", "message": {"content": SAID}},
    "a demonstration of SWE-agent": {"history": [{"role": "user", "content": "x"}], "environment": "main"},
}


@pytest.mark.parametrize("what", list(NOT_READ))
def test_a_log_that_is_known_and_not_read_is_named(run, tmp_path: Path, what: str) -> None:
    (tmp_path / "good.jsonl").write_text(jsonl(stuck()))
    (tmp_path / "other.json").write_text(jsonl([NOT_READ[what]]))

    result = run("scan", tmp_path)

    assert result.exit_code == 1
    assert f"other.json (it is {what}" in " ".join(result.stderr.split()) or f"it is {what}" in result.stderr


def test_messages_of_magentic_one_are_named(run, tmp_path: Path) -> None:
    messages = [{"content": "When?", "role": "human"}, {"content": "Ask.", "role": "Orchestrator (-> WebSurfer)"}]
    (tmp_path / "a.json").write_text(jsonl([messages]))

    assert "it is a log of Magentic-One" in run("scan", tmp_path / "a.json").stderr


def test_a_log_of_chatdev_is_named(run, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("[2023-05-10 INFO] **[Preprocessing]**\n\n**ChatDev Starts** (20231005)\n")

    assert "it is a log of ChatDev" in run("scan", tmp_path / "a.log").stderr
