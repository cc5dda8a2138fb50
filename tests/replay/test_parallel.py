"""A scan by several processes decides as one process does, byte for byte, whatever its logs share."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from streamproc.errors import InvalidEvent, StreamprocError
from streamproc.importers import Import
from streamproc.model.unknown_fields import UnknownFields
from streamproc.policy import Policy, load_policy
from streamproc.replay import parallel
from streamproc.replay.parallel import ParallelScan
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source, open_logs
from streamproc.replay.turn_log import TurnLog
from streamproc.samples import trajectory_file
from tests.catalogue.examples import lines, policy, stuck
from tests.feeding import STANDARD, stored_run
from tests.replay.toy_format import TOY
from tests.waiting import wait_until

FORMATS = (TOY,)


def outcome(scan: Scan) -> tuple[list[Any], dict[str, Any]]:
    """Return the decisions with their places, and the turns, logs and state of each run."""
    decisions = [(msgspec.json.encode(one), scan.place) for one in scan]
    runs = {}
    for run_id in scan.runs:
        logs = list(scan._sources_of[run_id])
        runs[run_id] = (stored_run(scan.runs, run_id), scan.turn_log.turns(run_id, 0, 10**9), logs)
    return decisions, runs


def both(paths: list[Path], rules: Policy = STANDARD, **options: Any) -> tuple[Scan, Scan, Import, Import]:
    """Scan logs by one process and by three, and require the same outcome."""
    names = [str(path) for path in paths]
    sources, reading = open_logs(names, formats=FORMATS, **options)
    one = Scan(sources, rules, turn_log=TurnLog())
    again, reading_again = open_logs(names, formats=FORMATS, **options)
    several = ParallelScan(again, rules, reading=reading_again, secret="", jobs=3, turn_log=TurnLog())
    assert outcome(one) == outcome(several)
    assert (one.turns, one.events) == (several.turns, several.events)
    assert reading_again.sentences() == reading.sentences()
    assert reading_again.seen == reading.seen
    assert reading_again.agents == reading.agents
    return one, several, reading, reading_again


@pytest.fixture(autouse=True)
def _every_log_by_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small first logs are read by the scan itself; here they are not."""
    monkeypatch.setattr(parallel, "FIRST_BYTES_MAX", -1)


def split(raw: bytes, folder: Path, parts: int) -> list[Path]:
    """Write the lines to several logs, one after the other, so that runs continue in the next log."""
    every = raw.splitlines(keepends=True)
    size = -(-len(every) // parts)
    paths = [folder / f"{number}.jsonl" for number in range(parts)]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(every[number * size : (number + 1) * size]))
    return paths


def test_real_runs_that_continue_in_other_logs(tmp_path: Path) -> None:
    with trajectory_file() as path:
        raw = b"".join(line for _, line in Source(path).numbered())
    one, *_ = both(split(raw, tmp_path, 5), load_policy())
    assert len(one.decisions) == 11


def test_every_detector_and_budgets_that_runs_share(tmp_path: Path) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_bytes(orjson.dumps(policy()))
    one, *_ = both(split(b"\n".join(lines(stuck())), tmp_path, 4), load_policy(str(rules)))
    codes = {decision.code for own in one.decisions.values() for decision in own}
    assert {"BUDGET009", "BUDGET010", "LOOP003", "TASK003", "GRAPH001"} <= codes


def toy(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"toy": path.stem} | row) + "\n" for row in rows))
    return path


def test_a_resumed_session_that_copies_records_is_read_as_in_order(tmp_path: Path) -> None:
    """More records than a chunk has: the copy is met after events of the same log were stepped."""
    first = toy(tmp_path / "a.jsonl", *({"id": f"r{n}", "call": f"make {n}"} for n in range(300)))
    own = [{"id": f"own{n}", "call": f"ls {n}"} for n in range(200)]
    copied = [{"id": f"r{n}", "call": f"make {n}"} for n in range(100)]
    second = toy(tmp_path / "b.jsonl", *own, *copied, *({"id": f"x{n}", "call": "git status"} for n in range(9)))
    third = toy(tmp_path / "c.jsonl", *({"id": f"x{n}", "call": f"pwd {n}"} for n in range(20)))

    one, _, reading, _ = both([first, second, third])

    assert one.turns_of() == {"a": 300, "b": 209, "c": 11}
    assert reading.tallies["toy"].repeated == 109


def test_names_that_one_log_gives_to_agents_of_another(tmp_path: Path) -> None:
    paths = [
        toy(tmp_path / "a.jsonl", {"agent": "7", "name": "reviewer"}, {"call": "ls", "by": "7"}),
        toy(tmp_path / "b.jsonl", *({"call": "ls", "by": "7"} for _ in range(4))),
        toy(tmp_path / "c.jsonl", {"agent": "7", "name": "coder"}, {"call": "ls", "by": "7"}),
    ]

    one, *_ = both(paths)

    assert one.decisions["b"][0].node == "reviewer"


@pytest.mark.parametrize("options", [{}, {"lenient": True}])
def test_an_invalid_line_ends_the_scan_after_the_decisions_before_it(tmp_path: Path, options: dict[str, Any]) -> None:
    turn = {"run_id": "r", "node": "n", "output": "again"}
    good, bad = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    good.write_text(f"{json.dumps(turn)}\n" * 2)
    bad.write_text(f"{json.dumps(turn)}\n{{}}\n" + f"{json.dumps(turn | {'mood': 'grim'})}\n" * 2)
    unknown = UnknownFields()
    sources, reading = open_logs([str(good), str(bad)], unknown_fields=unknown, **options)
    scan = ParallelScan(sources, STANDARD, reading=reading, secret="key", jobs=2)
    found = []

    def read() -> None:
        found.extend(decision.severity for decision in scan)

    if options:
        read()
        assert (sources[1].bad, sources[1].lines) == (1, 4)
        assert unknown.counts == {"mood": 2}
    else:
        with pytest.raises(InvalidEvent, match=rf"{bad}:2: run_id"):
            read()
    assert found[:2] == ["warn", "halt"]


def test_a_log_that_is_gone_is_named(tmp_path: Path) -> None:
    paths = split(b'{"run_id":"r","node":"n"}\n' * 6, tmp_path, 3)
    sources, reading = open_logs(list(map(str, paths)))
    paths[2].unlink()
    with pytest.raises(FileNotFoundError, match=str(paths[2])):
        list(ParallelScan(sources, STANDARD, reading=reading, secret="", jobs=2))


def test_a_process_that_dies_is_an_error_and_leaves_none_behind(tmp_path: Path) -> None:
    paths = split(b"".join(b'{"run_id":"r%d","node":"n"}\n' % n for n in range(40_000)), tmp_path, 4)
    sources, reading = open_logs(list(map(str, paths)))
    scan = ParallelScan(sources, STANDARD, reading=reading, secret="", jobs=2)
    killed: list[int] = []

    def kill_one() -> None:
        process = wait_until(parallel.multiprocessing.active_children, 20, "a reading process", 0.01)[0]
        os.kill(process.pid, signal.SIGKILL)
        killed.append(process.pid)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    with pytest.raises(StreamprocError, match="a reading process ended early"):
        list(scan)
    thread.join(10)
    assert killed
    assert not parallel.multiprocessing.active_children()
