"""`streamproc up` notifies people as `streamproc notify` does: a real web server gets what it sends."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamproc.errors import InvalidSettings
from streamproc.live.notifying import LogNotifier
from streamproc.live.places import LivePlaces
from streamproc.live.process import CONCERNING, settings_of
from streamproc.notify.notification_config import load_notification_config
from streamproc.notify.notifier import NoticeLinks
from tests.live.conftest import Up, call, kill_started
from tests.notify.receiver import Receiver
from tests.waiting import until, wait_until

HALT = [call("cat x", "no such file")] * 3


@pytest.fixture
def notified(up: Up, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None) -> Up:
    """Return a process that notifies the receiver, and tries again soon."""
    file = up.places.folder / "notify.yaml"
    file.write_text(f"retry_first_s: 0.05\ndestinations: [{{url: '{receiver.json_url}'}}]\n")
    monkeypatch.setenv("STREAMPROC_NOTIFY_FILE", str(file))
    return up


def runs(receiver: Receiver) -> list[str]:
    """Return the runs that the receiver was told of."""
    return [json.loads(post["message"])["run_id"] for _, post in receiver.posts]


def halted(run_id: str) -> list[dict[str, Any]]:
    return [turn | {"run_id": run_id} for turn in HALT]


def test_a_halt_is_told_once(notified: Up, receiver: Receiver) -> None:
    notified.start()
    for run_id in ("r1", "r1", "r2"):
        notified.ask("POST", "/v1/turns", halted(run_id))
    wait_until(lambda: len(receiver.posts) == 2, what="both halts are told")
    assert runs(receiver) == ["r1", "r2"]
    message = json.loads(receiver.posts[0][1]["message"])
    assert (message["notification"]["type"], message["notification"]["urgency"]) == ("LOOP_DETECTED", "HIGH")
    assert notified.stop() == 0
    assert "sent=2" in notified.output()


def test_what_was_not_sent_when_it_was_killed_is_sent_by_the_next(notified: Up, receiver: Receiver) -> None:
    receiver.stop()
    notified.start()
    notified.ask("POST", "/v1/turns", halted("r1"))
    wait_until(lambda: "rejects notifications" in notified.output(), what="it cannot send")
    notified.kill()
    receiver.start()
    notified.start()
    wait_until(lambda: runs(receiver) == ["r1"], what="the halt is told")
    mark = notified.places.notified
    wait_until(lambda: int(mark.read_text()) == 5, what="that is noted")
    notified.kill()
    notified.start()
    notified.ask("POST", "/v1/turns", halted("r2"))
    wait_until(lambda: runs(receiver) == ["r1", "r2"], what="the next halt is told, and the first not again")


async def test_a_fault_of_the_log_only_delays_them(
    opened: Any, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamproc.live.notifying.RETRY_S", 0.01)
    judge, stored = opened()
    config = load_notification_config("", [receiver.json_url])
    notifier = LogNotifier(stored, config, NoticeLinks("", ""), tmp_path / "mark", lambda: False)
    faults, read = [sqlite3.OperationalError("disk I/O error")] * 2, stored.records_after

    def failing(*given: Any) -> Any:
        if faults:
            raise faults.pop()
        return read(*given)

    monkeypatch.setattr(stored, "records_after", failing)
    running = asyncio.create_task(notifier.run())
    judge.feed([judge.read(raw) for raw in halted("r1")], 1_780_000_000_000)
    await until(lambda: receiver.posts, what="the halt is told")
    running.cancel()
    await asyncio.wait([running])
    assert runs(receiver) == ["r1"]


def test_nobody_is_told_of_what_is_only_observed(notified: Up, receiver: Receiver) -> None:
    notified.places.observing.touch()
    notified.start()
    notified.ask("POST", "/v1/turns", halted("r1"))
    mark = notified.places.notified
    wait_until(lambda: int(mark.read_text()) == 5, what="the halt is passed over")
    notified.places.observing.unlink()
    notified.ask("POST", "/v1/turns", halted("r2"))
    wait_until(lambda: receiver.posts, what="the next one is told")
    assert runs(receiver) == ["r2"]


def test_a_mistake_in_the_notify_file_is_named(up: Up, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None) -> None:
    (up.places.folder / "notify.yaml").write_text("minimum_urgency: SOON\n")
    monkeypatch.setenv("STREAMPROC_NOTIFY_FILE", str(up.places.folder / "notify.yaml"))
    command = [sys.executable, "-m", "streamproc", "up", "--data", str(up.places.folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "minimum_urgency" in found.stderr


def test_what_a_hook_starts_reads_its_folder_and_not_the_environment(
    up: Up, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    """A project chooses the environment of a CLI."""
    other = Receiver().start()
    monkeypatch.setenv("STREAMPROC_NOTIFY", other.json_url)
    (up.places.folder / "settings.env").write_text(f"STREAMPROC_NOTIFY={receiver.json_url}\n")
    output = up.places.output.open("ab")
    command = [sys.executable, "-P", "-m", "streamproc.live", str(up.places.folder)]
    up.process = subprocess.Popen(command, stdout=output, stderr=output)
    wait_until(up.listens, what="streamproc up listens")
    up.ask("POST", "/v1/turns", HALT)
    wait_until(lambda: receiver.posts, what="the halt is told")
    other.stop()
    assert not other.posts
    kill_started(up.places.folder)


def test_settings_are_read_only_where_some_concern_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nobodys_settings: None
) -> None:
    monkeypatch.setenv("STREAMPROC_ENV_FILE", "")
    places = LivePlaces(tmp_path)
    assert settings_of(places, {"STREAMPROC_POLICY": "standard"}) is None
    for name in CONCERNING[1:]:
        assert settings_of(places, {name: "x"}) is not None
    (places.folder / "settings.env").write_text("STREAMPROC_LAG_WARN_S=x\n")
    with pytest.raises(InvalidSettings, match="LAG_WARN_S"):
        settings_of(places, {})


def test_what_is_not_used_is_not_imported() -> None:
    """An idle process holds no more than it needs."""
    code = "import sys; sys.argv[1:] = ['/nowhere']; import streamproc.live.process as _; print(*sys.modules)"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAMPROC_")}
    found = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
    assert not {"apprise", "pydantic_settings", "aiokafka", "faust", "typer", "streamproc.client"} & set(
        found.stdout.split()
    )
