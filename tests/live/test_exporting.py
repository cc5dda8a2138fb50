"""What `streamproc export` writes decides as `streamproc up` has decided: in files, and on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc.fingerprint import fingerprint
from streamproc.live.exporting import ExportedLog
from streamproc.live.judge import Judge
from streamproc.live.store import CONTROL, TURNS, LiveLog
from streamproc.model.raw_events import parse_raw
from streamproc.model.wire import decode, encode
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.settings import Settings, load_settings
from tests.cli.conftest import command
from tests.cli.test_on_kafka import controls, drained, options
from tests.live.conftest import Run, Up, call
from tests.waiting import until

START_MS = 1_780_000_000_000
SECRET = "s" * 40
SIGNED = {"STREAMPROC_CONTROL_KEY": f"workers:{SECRET}", "STREAMPROC_COMMAND_KEY": f"ann:{SECRET}"}
STEPS = ("stuck", "new", "text", "prompt", "resume", "stop", "silence")


def event(step: str, number: int, run_id: str, judge: Judge) -> dict[str, Any]:
    """Return a raw event of a step that a session may take."""
    if step == "stuck":
        return call("cat x", "no such file") | {"run_id": run_id}
    if step == "new":
        return call(f"cat {number}", f"words {number}") | {"run_id": run_id}
    if step == "text":
        return {"run_id": run_id, "node": "main", "output": "I will try again."}
    if step == "stop":
        return {"type": "operator.stop", "run_id": run_id, "by": "ann", "reason": "wrong branch"}
    halt = judge.halted(run_id)
    if step == "resume" and halt is not None:
        return {"type": "operator.resume", "run_id": run_id, "halt": halt.id, "by": "ann"}
    return {"type": "user.message", "run_id": run_id}


def lived(path: Path, steps: list[tuple[str, int]]) -> list[str]:
    """Let sessions take these steps, each a minute after the one before, and return the ids of the decisions."""
    stored = LiveLog(path)
    judge, at_ms = Judge(load_policy("standard"), stored), START_MS
    for number, (step, run) in enumerate(steps):
        at_ms = max(at_ms + 60_000, stored.next_due_ms() if step == "silence" else 0)
        judge.expire(at_ms)
        if step != "silence":
            raw = event(step, number, f"r{run}", judge)
            judge.feed([fingerprint(parse_raw(raw), include_content=True, local=True)], at_ms)
    ids = [json.loads(one.value)["id"] for one in stored.records() if one.role == CONTROL]
    stored.close()
    return ids


@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2)), max_size=40))
def test_whatever_sessions_do_the_exported_file_decides_the_same(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, file = Path(folder, "live.db"), Path(folder, "turns.jsonl")
        ids = lived(path, steps)
        for include_content in (False, True):
            log = ExportedLog(Settings(), path, include_content=include_content)
            file.write_bytes(b"".join(encode(one) + b"\n" for one in log.events()))
            assert (b'"content"' in file.read_bytes()) <= include_content
            assert [one.id for one in Scan([Source(file)], load_policy("standard"))] == ids


@pytest.fixture
def lived_in(up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None) -> Up:
    """Return the folder of a process whose sessions were halted, resumed, stopped and silent."""
    monkeypatch.setenv("STREAMPROC_HOME", str(up.places.folder))
    script = ["stuck", "stuck", "stuck", "stuck", "resume", "new", "stuck", "stuck", "silence", "stop", "new"]
    ids = lived(up.places.log, [(step, run) for step in script for run in (0, 1)])
    assert len(ids) == len(set(ids)) > 8
    return up


def events_in(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_a_file_is_scanned_replayed_and_read_again(lived_in: Up, run: Run, tmp_path: Path) -> None:
    file, decided = str(tmp_path / "turns.jsonl.gz"), str(tmp_path / "controls.jsonl")
    run("export", "--output", file)
    run("replay", "--all", "--json", "-o", decided)
    assert "0 missing; 0 extra" in run("replay", file, "--against", decided)
    assert "HALTED  r0" in run("scan", file, code=1)
    run("scan", file, "--html", str(tmp_path / "report.html"), code=1)
    assert "LOOP003" in (tmp_path / "report.html").read_text()
    one = events_in(run("export", "--run", "r1"))
    assert {event["run_id"] for event in one} == {"r1"}
    assert not any("content" in event for event in one)
    assert any("content" in event for event in events_in(run("export", "--include-content")))
    assert "fingerprints and no texts" in run("convert", file, code=2)


def test_a_line_that_is_no_fingerprint_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "turns.jsonl"
    file.write_text('{"type": "turn", "w": 1, "run_id": "r1", "node": "main", "calls": 7}\n')
    assert f"{file}:1: calls" in run("scan", str(file), code=2)


def test_events_of_before_the_log_had_ids_get_the_same_ones_each_time(up: Up) -> None:
    stored = LiveLog(up.places.log)
    turn = fingerprint(parse_raw(call("ls", "a")), local=True)
    with stored.transaction():
        stored.append(TURNS, "r1", START_MS, encode(turn))
        stored.append(TURNS, "r1", START_MS, encode(turn))
    stored.close()
    first, second = ([one.event_id for one in ExportedLog(Settings(), up.places.log).events()] for _ in range(2))
    assert first == second
    assert len(set(first)) == 2
    assert all(first)


def test_without_a_log_or_to_two_places_it_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPROC_HOME", str(tmp_path / "none"))
    run("export", code=2)
    run("export", "--brokers", "127.0.0.1:1", "-o", str(tmp_path / "x.jsonl"), code=2)


@pytest.fixture(params=["unsigned", "signed"])
def deployment(
    request: pytest.FixtureRequest, brokers: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    """Return topics that keep the times of records, with a worker."""
    monkeypatch.setenv("STREAMPROC_TIMESTAMP_TYPE", "CreateTime")
    signing = SIGNED if request.param == "signed" else {"STREAMPROC_COMMAND_AUTH": "channel"}
    for name, value in signing.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(brokers=brokers, topic_prefix=f"export-{uuid.uuid4().hex[:8]}")
    run("topics", "apply", *options(settings))
    worker = command(
        "worker", "--log-level", "warning", *options(settings), **signing, STREAMPROC_TIMESTAMP_TYPE="CreateTime"
    )
    yield settings
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0, worker.communicate()


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("way", ["straight", "by a file"])
def test_kafka_decides_the_same(lived_in: Up, deployment: Settings, run: Run, way: str, tmp_path: Path) -> None:
    expected = [
        json.loads(one.value)["id"] for one in LiveLog(lived_in.places.log).records() if one.role == CONTROL
    ]  # fmt: skip
    for _ in range(2):  # what is sent again changes nothing
        if way == "straight":
            assert "0 lost" in run("export", *options(deployment))
        else:
            run("export", "-o", str(tmp_path / "turns.jsonl"))
            assert "0 lost" in run("publish", str(tmp_path / "turns.jsonl"), *options(deployment))
    asyncio.run(until(lambda: drained(deployment), 90, "the worker to process all turns", every_s=0.2))
    decided = [one.id for one in controls(deployment)]
    assert sorted(decided) == sorted(expected)
    assert "0 missing; 0 extra" in run("replay", "--all", "--diff", *options(deployment))


def test_what_is_exported_is_a_record_of_the_turns_topic(lived_in: Up, run: Run) -> None:
    for line in run("export").splitlines():
        assert decode(line.encode()).at is not None
