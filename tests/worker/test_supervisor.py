"""Several workers under one parent: they share the work, a crashed one is replaced, and all stop on request."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamproc.settings import Settings, load_settings
from streamproc.worker import limits, logs
from streamproc.worker.supervisor import Supervisor, own
from tests.waiting import until
from tests.worker.running import Topics, environment_of, expected_ids, interleaved, looping_run


def script(text: str) -> tuple[list[str], dict[str, str]]:
    """A program in place of a worker."""
    return [sys.executable, "-c", text], dict(os.environ)


LASTS = "import signal; signal.pause()"


def ends_with(code: int, started: Path) -> tuple[list[str], dict[str, str]]:
    """A worker that ends at once, and notes that it has been there."""
    return script(f"import sys; open({str(started)!r}, 'a').write('x'); sys.exit({code})")


async def test_unusable_settings_stop_all_workers_at_once(tmp_path: Path) -> None:
    started = tmp_path / "started"
    assert await Supervisor([script(LASTS), ends_with(2, started)]).run() == 2
    assert started.read_text() == "x"


async def test_a_worker_that_keeps_exiting_stops_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RETRY_FIRST_S", 0.001)
    started = tmp_path / "started"
    assert await Supervisor([ends_with(0, started), script(LASTS)]).run() == 1
    assert started.read_text() == "x" * limits.CRASHES_MAX


async def test_a_worker_stopped_before_it_handles_signals_exits_with_0(tmp_path: Path) -> None:
    started = tmp_path / "started"
    supervisor = Supervisor([script(f"open({str(started)!r}, 'w'); {LASTS}")])
    ending = asyncio.ensure_future(supervisor.run())
    await until(started.exists, 30, "the worker to be there")
    supervisor.stop()
    assert await ending == 0


async def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SUPERVISOR_PATIENCE_S", 0.2)
    deaf, started = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);", tmp_path / "started"
    supervisor = Supervisor([script(f"{deaf} open({str(started)!r}, 'w'); {LASTS}")])
    ending = asyncio.ensure_future(supervisor.run())
    await until(started.exists, 30, "the worker to be deaf")
    supervisor.stop()
    assert await ending == 1


def test_each_worker_has_its_own_name_and_directory_and_only_one_the_status_file() -> None:
    settings = load_settings(instance="machine-a", datadir="/data", status_file="status")
    first, second = own(settings, 1), own(settings, 2)
    assert [first["STREAMPROC_INSTANCE"], second["STREAMPROC_INSTANCE"]] == ["machine-a-1", "machine-a-2"]
    assert [first["STREAMPROC_DATADIR"], second["STREAMPROC_DATADIR"]] == ["/data/worker-1", "/data/worker-2"]
    assert [first["STREAMPROC_STATUS_FILE"], second["STREAMPROC_STATUS_FILE"]] == ["status", ""]
    assert own(load_settings(instance=""), 1)["STREAMPROC_INSTANCE"] == ""
    assert first[logs.NUMBER] == "1"


class Parent:
    """`streamproc worker --processes 2` as a process; its log, and that of its workers, in a file."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamproc", "worker", "--processes", "2"],
                env=os.environ | environment_of(settings), stdout=file, stderr=file, cwd=Path(__file__).parents[2],
            )  # fmt: skip

    @property
    def text(self) -> str:
        """All that was logged."""
        return self.log.read_text(errors="replace")

    def pids(self, number: int) -> list[int]:
        """The processes that were a worker, one after the other."""
        return [int(pid) for pid in re.findall(rf"worker {number} is process (\d+)", self.text)]

    def ready(self, number: int) -> list[str]:
        """The partitions that a worker said it has, each time that it was ready."""
        return re.findall(rf" worker {number} INFO .*ready partitions=(\S+)", self.text)

    def partitions(self, number: int) -> set[str]:
        """What a worker said last that it has."""
        return set(",".join(self.ready(number)[-1:]).split(",")) - {"-", ""}

    def shared(self) -> bool:
        """Whether all partitions are divided between the two."""
        assert self.process.poll() is None, self.text[-3000:]
        one, two = self.partitions(1), self.partitions(2)
        return bool(one and two) and one | two == set("0123") and not one & two


@pytest.fixture
def parent(settings: Settings, tmp_path: Path) -> Iterator[Parent]:
    made = Parent(settings.model_copy(update={"instance": "here"}), tmp_path / "workers.log")
    yield made
    if made.process.poll() is None:
        made.process.kill()  # its workers end with it
        made.process.wait()


def gone(pid: int) -> bool:
    """Whether a process has ended (its exit code may not have been collected yet)."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


@pytest.mark.long
async def test_two_workers_share_the_work_and_a_killed_one_is_replaced(parent: Parent, topics: Topics) -> None:
    """And what they decide together is what a scan of the log decides."""
    await until(parent.shared, 90, "two workers with two partitions each")
    log = interleaved([looping_run(f"run-{number}", 6) for number in range(40)])
    await topics.send(log[: len(log) // 2])
    before = len(parent.ready(1))
    os.kill(parent.pids(1)[0], signal.SIGKILL)
    await topics.send(log[len(log) // 2 :])
    await until(lambda: len(parent.ready(1)) > before, 60, "the killed worker to be replaced")
    await topics.done(90)
    assert {control["id"] for control in await topics.controls()} == expected_ids(log)
    assert "worker 1 exited unexpectedly with -9; restarting it" in parent.text

    parent.process.send_signal(signal.SIGTERM)
    assert parent.process.wait(90) == 0, parent.text[-3000:]
    assert all(gone(pid) for number in (1, 2) for pid in parent.pids(number))
    assert len(re.findall(r"INFO streamproc.worker: stopped ", parent.text)) == 2


async def test_workers_stop_when_their_parent_is_killed(parent: Parent) -> None:
    await until(lambda: parent.text.count(" starts brokers=") == 2, 60, "two workers to start")
    parent.process.kill()
    parent.process.wait()
    await until(lambda: all(gone(pid) for number in (1, 2) for pid in parent.pids(number)), 60, "the workers to end")
