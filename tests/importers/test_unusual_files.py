"""What a log may be: a regular file of its own folder. Devices, pipes, links, and archives that expand without end."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from streamproc.errors import InvalidEvent
from streamproc.importers import log_bytes
from streamproc.importers.content import utc, utc_ms
from streamproc.importers.raw_turns import time_ms
from streamproc.model.raw_events import parse_line, parse_raw
from streamproc.replay.source import open_logs
from tests.peaks import run_python

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

SECRET = "the-content-of-another-folder"
TURN = {"run_id": "r", "node": "coder", "output": "I will try again."}
LINES = "".join(json.dumps(TURN) + "\n" for _ in range(3))
CLAUDE_ID = "0a6d2c9e-5d1e-4c1a-9a56-0a6d2c9e5d1e"
PEAK_MB = 1_300
COMMANDS = (["scan"], ["stats"], ["convert", "--output", "out.jsonl"], ["report", "--log"], ["backtest"])


def command(*arguments: object, folder: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command of ours. It must end: a pipe without a writer would hold it for ever."""
    return subprocess.run(
        [sys.executable, "-m", "streamproc", *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def good(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "good.jsonl").write_text(LINES)
    return folder


def conversation(folder: Path) -> Path:
    """A folder of an OpenHands conversation."""
    events = folder / "talk" / "events"
    events.mkdir(parents=True)
    event = {"id": "1", "kind": "MessageEvent", "source": "agent", "llm_message": {"role": "assistant", "content": "x"}}
    (events / "event-00001-a.json").write_text(json.dumps(event))
    return events


def session(folder: Path) -> Path:
    """A log of a sub-agent of Claude Code."""
    log = good(folder) / CLAUDE_ID / "subagents" / "agent-abc.jsonl"
    log.parent.mkdir(parents=True)
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    row = {"type": "assistant", "uuid": "u", "sessionId": CLAUDE_ID, "agentId": "abc", "message": message}
    log.write_text(json.dumps(row) + "\n")
    return log


def linked(folder: Path, target: str) -> None:
    (good(folder) / "link.jsonl").symlink_to(target)


PLANTED: dict[str, Callable[[Path], object]] = {
    "a link to a device": lambda folder: linked(folder, "/dev/zero"),
    "a link to a terminal": lambda folder: linked(folder, "/dev/tty"),
    "a link to itself": lambda folder: linked(folder, "link.jsonl"),
    "a broken link": lambda folder: linked(folder, "nowhere.jsonl"),
    "a pipe": lambda folder: os.mkfifo(good(folder) / "pipe.jsonl"),
    "a link to a pipe": lambda folder: (os.mkfifo(folder.parent / "pipe"), linked(folder, "../pipe")),
    "an event that is a device": lambda folder: (conversation(good(folder)) / "event-2.json").symlink_to("/dev/zero"),
    "an event that is a pipe": lambda folder: os.mkfifo(conversation(good(folder)) / "event-2.json"),
    "an event that is a folder": lambda folder: (conversation(good(folder)) / "event-2.json").mkdir(),
    "a state that is a device": lambda folder: (conversation(good(folder)).parent / "base_state.json").symlink_to(
        "/dev/zero"
    ),
    "a state that is a pipe": lambda folder: os.mkfifo(conversation(good(folder)).parent / "base_state.json"),
    "facts that are a device": lambda folder: session(folder).with_name("agent-abc.meta.json").symlink_to("/dev/zero"),
    "facts that are a pipe": lambda folder: os.mkfifo(session(folder).with_name("agent-abc.meta.json")),
    "events that are a device": lambda folder: (good(folder) / "events").symlink_to("/dev"),
}


@pytest.mark.long
@pytest.mark.parametrize("planted", PLANTED)
def test_a_folder_is_scanned_to_its_end_whatever_is_planted_in_it(planted: str, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    PLANTED[planted](folder)
    done = command("scan", folder, folder=tmp_path)
    assert done.returncode == 1, done.stderr  # the stuck run of the good log
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_no_command_reads_a_link_that_leads_out_of_the_folder_and_each_says_so(
    arguments: list[str], tmp_path: Path
) -> None:
    folder = good(tmp_path / "logs")
    (tmp_path / "other.jsonl").write_text(json.dumps(TURN | {"run_id": SECRET}) + "\n")
    (folder / "away.jsonl").symlink_to(tmp_path / "other.jsonl")
    (folder / "up").symlink_to(tmp_path)
    done = command(*arguments, folder, folder=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "skipped 2 links out of the directory:" in done.stderr
    assert str(folder / "away.jsonl") in done.stderr


def test_a_link_that_stays_in_the_folder_and_one_that_is_named_are_read(tmp_path: Path) -> None:
    folder = good(tmp_path / "logs")
    (folder / "again.jsonl").symlink_to("good.jsonl")
    (tmp_path / "named.jsonl").symlink_to(folder / "good.jsonl")
    sources, reading = open_logs([str(folder), str(tmp_path / "named.jsonl")])
    assert [Path(source.path).name for source in sources] == ["again.jsonl", "good.jsonl", "named.jsonl"]
    assert not any("link" in note for note in reading.sentences())
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "away.jsonl").symlink_to(folder / "good.jsonl")
    with pytest.raises(InvalidEvent, match="only links that lead out of it"):
        open_logs([str(tmp_path / "empty")])


@pytest.mark.parametrize("arguments", [["scan"], ["stats"], ["convert", "--output", "out"]])
@pytest.mark.parametrize("target", ["/dev/zero", "/dev/random"])
def test_a_device_that_is_named_is_refused_at_once(arguments: list[str], target: str, tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(target)
    done = command(*arguments, "link.jsonl", folder=tmp_path)
    assert done.returncode == 2
    assert "it is a device, and not a file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pattern_reads_no_pipe(tmp_path: Path) -> None:
    folder = good(tmp_path / "logs")
    os.mkfifo(folder / "pipe.jsonl")
    assert command("scan", f"{folder}/*.jsonl", folder=tmp_path).returncode == 1


# Archives that expand.

BOMBS: dict[str, Callable[[int], bytes]] = {
    "numbers": lambda size: b"[" + b"0," * (size // 2) + b"0]",
    "objects": lambda size: b"[" + b'{"a":0},' * (size // 8) + b"{}]",
    "objects up to the limit": lambda _size: b"[" + b'{"a":0},' * 3_300_000 + b"{}]",
    "numbers of a turn": lambda size: b'{"run_id":"r","node":"n","structured_output":[' + b"0," * (size // 2) + b"0]}",
    "a document of several lines": lambda size: b"[\n" + b"{},\n" * (size // 4) + b"{}\n]",
    "one text": lambda size: b'["' + b"x" * size + b'"]',
    "one text of events": lambda size: b'{"run_id":"r","node":"n","output":"' + b"x" * size + b'"}',
    "spaces": lambda size: b" " * size,
}
SCANNED = """
import sys
from streamproc.errors import InvalidEvent
from streamproc.replay.source import open_logs
from tests.peaks import peak_mb
said = "read"
try:
    for source in open_logs(sys.argv[1:], lenient=True)[0]:
        for _ in source.read():
            pass
except InvalidEvent as problem:
    said = str(problem)
print(peak_mb(), "MB", said[-300:].replace("\\n", " "))
"""
SIZE = 200_000_000


@pytest.mark.long
@pytest.mark.parametrize("name", BOMBS)
def test_no_small_archive_fills_the_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / ("log.json.zst" if name == "numbers of a turn" else "log.json.gz")
    content = BOMBS[name](SIZE)
    path.write_bytes(zstandard.compress(content) if path.suffix == ".zst" else gzip.compress(content, 1))
    assert path.stat().st_size < 2_000_000
    said = run_python(SCANNED, str(path), timeout_s=600)
    assert int(said.partition(" MB")[0]) < PEAK_MB, said
    refused = name in ("numbers", "objects", "numbers of a turn", "a document of several lines")
    assert refused == ("may take more than 1280 MB" in said), said


def test_a_conversations_events_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = conversation(tmp_path)
    (events / "event-2.json").write_bytes(b"[" + b"0," * 100_000 + b"0]")
    (events / "event-3.json").write_bytes(b" " * 2_000_000)
    monkeypatch.setattr(log_bytes, "EXPANDED_BYTES_MAX", 5_000_000)
    monkeypatch.setattr(log_bytes, "BESIDE_BYTES_MAX", 1_000_000)
    [source], reading = open_logs([str(tmp_path)])
    assert len(list(source)) == 1
    assert any("2 lines skipped" in note for note in reading.sentences())


@pytest.mark.parametrize("piped", [b"[\n" + b"{},\n" * 300_000, b"x" * 2_000_000, b'{"a":[' + b"0," * 400_000])
def test_standard_input_without_end_is_refused(piped: bytes) -> None:
    code = (
        "from streamproc.importers import log_bytes, log_file; import sys\n"
        "for one in (log_bytes, log_file): one.DOCUMENT_BYTES_MAX = 1_000_000\n"
        "log_bytes.LINE_BYTES_MAX = 1_000_000; log_bytes.EXPANDED_BYTES_MAX = 20_000_000\n"
        "from streamproc.__main__ import main; sys.argv = ['streamproc', 'scan', '-']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], input=piped, capture_output=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert b"more than" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_ordinary_document_of_many_megabytes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_bytes(
        orjson.dumps([TURN | {"output": f"{n} " + "a line of an answer, and more of it " * 30} for n in range(9_000)])
    )
    assert path.stat().st_size > 9_000_000
    [source] = open_logs([str(path)])[0]
    assert sum(1 for _ in source) == 9_000


# Times.

EDGES = (
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0001-01-01", "9999-12-31T23:59:59.999999+00:00",
    "0001-01-01T00:00:00-23:59", "1969-12-31T23:59:59Z", "2026-01-01T00:00:00+24:00", "2026-W01-1",
)  # fmt: skip
TIMES = st.one_of(
    st.sampled_from(EDGES),
    st.builds(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}{:02}:{:02}".format,
        st.sampled_from([0, 1, 2, 1970, 2026, 9998, 9999]), st.integers(0, 13), st.integers(0, 32), st.integers(0, 24),
        st.integers(0, 60), st.integers(0, 60), st.sampled_from("+-Z"), st.integers(0, 24), st.integers(0, 60),
    ),
    st.text(max_size=30), st.integers(), st.floats(), st.none(), st.booleans(),
)  # fmt: skip


@given(TIMES)
@settings(max_examples=500, deadline=None)
def test_any_time_is_read_or_refused(at: object) -> None:
    assert utc(at) is None or isinstance(utc(at), str)
    assert isinstance(utc_ms(at), int)
    assert time_ms(at) is None or isinstance(time_ms(at), int)
    with contextlib.suppress(InvalidEvent):
        parse_raw(TURN | {"at": at})
    with contextlib.suppress(InvalidEvent):
        parse_line(json.dumps(TURN | {"at": at}))


@pytest.mark.long
@pytest.mark.parametrize("at", EDGES)
@pytest.mark.parametrize("lenient", [False, True])
def test_a_log_with_any_time_is_scanned_without_a_traceback(at: str, lenient: bool, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(json.dumps(TURN | {"at": at}) + "\n")
    done = command("scan", *["--lenient"] * lenient, "log.jsonl", folder=tmp_path)
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
