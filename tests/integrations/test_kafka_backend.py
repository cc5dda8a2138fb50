"""Many watches of one process on Kafka: one connection and one thread, until the last one closes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamproc import BlockingTurnPublisher, Watch
from streamproc.integrations import kafka_backend
from streamproc.kafka import topics
from streamproc.settings import load_settings
from tests.client.test_content_stays import records_of
from tests.waiting import until
from tests.worker.running import WorkerProcess

CALL: dict[str, Any] = {"name": "grep", "args": {"q": "x"}, "result": "no match"}


@pytest.fixture
def nowhere(nowhere: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address where no broker listens. What a test leaves open is closed: other tests count threads, too."""
    monkeypatch.setattr(kafka_backend, "CLOSE_TIMEOUT_S", 0.1)
    quick = partial(BlockingTurnPublisher, close_timeout_s=0.1)
    monkeypatch.setattr(kafka_backend, "BlockingTurnPublisher", quick)
    yield nowhere
    while kafka_backend._connections:
        kafka_backend._connections.pop().close()


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("streamproc")]


def again(watch: Watch, run_id: str, times: int = 1) -> None:
    for _ in range(times):
        watch.turn(run_id, "coder", tool_calls=[CALL])


def connection_of(watch: Watch) -> Any:
    backend = watch._backend
    assert isinstance(backend, kafka_backend.KafkaBackend)
    return backend._connection


def test_many_watches_are_one_thread_and_connect_at_their_first_turn(nowhere: str) -> None:
    watches = [Watch(brokers=nowhere) for _ in range(8)]
    for watch in watches:
        watch.check("r1")
    assert ours() == []
    for watch in watches:
        again(watch, "r1")
    assert ours() == ["streamproc watch"]
    assert len({id(connection_of(watch)) for watch in watches}) == 1
    assert connection_of(watches[0]).turns.waiting == 8
    assert [watch.faults for watch in watches] == [0] * 8


def test_the_last_one_that_closes_disconnects(nowhere: str) -> None:
    watches = [Watch(brokers=nowhere) for _ in range(3)]
    for watch in watches:
        again(watch, "r1")
    for watch in watches[:2]:
        watch.close()
        watch.close()
        assert ours() == ["streamproc watch"]
    watches[2].close()
    assert ours() == []
    watches[2].check("r1")
    newer = Watch(brokers=nowhere)
    again(newer, "r1")
    assert ours() == ["streamproc watch"]
    assert connection_of(newer) is not connection_of(watches[2])


def test_a_watch_that_was_never_closed_keeps_no_connection_open(nowhere: str) -> None:
    """An adapter that is made for each call of a framework is forgotten, not closed; the next one takes its place."""
    for _ in range(8):
        again(Watch(brokers=nowhere), "r1")
    gc.collect()
    assert ours() == ["streamproc watch"]
    last = Watch(brokers=nowhere)
    again(last, "r1")
    assert connection_of(last).turns.waiting == 9
    last.close()
    assert ours() == []


def test_other_settings_are_another_connection(nowhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again(Watch(brokers=nowhere), "r1")
    again(Watch(brokers="127.0.0.1:1"), "r1")
    monkeypatch.setenv("STREAMPROC_TOPIC_PREFIX", "other")
    again(Watch(brokers=nowhere), "r1")
    assert ours() == ["streamproc watch"] * 3


def test_a_turn_after_closing_is_a_fault_that_the_agent_is_spared(nowhere: str) -> None:
    watch, other = Watch(brokers=nowhere), Watch(brokers=nowhere)
    again(watch, "r1")
    again(other, "r1")
    watch.close()
    again(watch, "r1")
    assert (watch.faults, str(watch.last_fault)) == (1, "a turn came after Watch.close(): create a new Watch")
    assert connection_of(other).turns.waiting == 2


def test_threads_that_open_and_close_watches_share_whole_connections(nowhere: str) -> None:
    most, failures = [0], []
    start = threading.Barrier(8)

    def use() -> None:
        start.wait()
        for _ in range(20):
            watch = Watch(brokers=nowhere)
            again(watch, "r1")
            if connection_of(watch) not in kafka_backend._connections or watch.faults:
                failures.append(watch.last_fault)
            most[0] = max(most[0], len(kafka_backend._connections))
            watch.close()

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, failures, kafka_backend._connections, ours()) == ([1], [], [], [])


FORKED = """
import os, sys, threading
from streamproc import Watch
watch, other = Watch(brokers=sys.argv[1]), Watch(brokers=sys.argv[1])
watch.turn("r1", "coder", output="Hello.")
other.turn("r1", "coder", output="Hello.")
parents = watch._backend._connection
child = os.fork()
if child == 0:
    watch.check("r1")
    before = [one.name for one in threading.enumerate()]
    assert watch.flush(0.1)
    watch.turn("r1", "coder", output="Hello.")
    other.turn("r1", "coder", output="Hello.")
    found = watch._backend._connection
    assert found is not parents and found is other._backend._connection
    assert found.turns.waiting == 2, found.turns.waiting
    print(before, [one.name for one in threading.enumerate()], watch.faults, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
watch.turn("r1", "coder", output="Hello.")
print(watch._backend._connection is parents, parents.turns.waiting, watch.faults, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_connects_by_itself(nowhere: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, nowhere], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["['MainThread'] ['MainThread', 'streamproc watch'] 0", "True 3 0"], done.stderr
    assert "Traceback" not in done.stderr


def connections_to(brokers: str) -> int:
    """Return how many TCP connections this process has to a broker."""
    port = int(brokers.rpartition(":")[2])
    found = psutil.Process().net_connections("tcp")
    return sum(bool(one.raddr) and one.raddr.port == port and one.status == "ESTABLISHED" for one in found)


@pytest.mark.kafka
async def test_watches_share_what_one_has_and_each_hears_of_its_run(
    brokers: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPROC_TOPIC_PREFIX", topic_prefix)
    settings = load_settings(brokers=brokers)
    await topics.apply(settings)
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    watches = [Watch(brokers=brokers) for _ in range(8)]
    try:
        await worker.ready()
        before = connections_to(brokers)
        again(watches[0], "r0", 3)
        await until(lambda: watches[0].halted("r0"), 60, "the first halt")
        await until(lambda: connection_of(watches[0]).halts.state.name == "watching", 60, "the worker to be heard")
        alone = connections_to(brokers) - before
        for number, watch in enumerate(watches[1:], 1):
            again(watch, f"r{number}", 3)
        for number, watch in enumerate(watches):
            assert await asyncio.to_thread(watch.flush)
            halt = await until(lambda watch=watch, number=number: watch.halted(f"r{number}"), 60, "the halts")  # type: ignore[misc]
            assert halt.code == "LOOP003"
        assert connections_to(brokers) - before == alone > 0
        assert ours() == ["streamproc watch"]
        for watch in watches[:-1]:
            await asyncio.to_thread(watch.close)
        assert connections_to(brokers) - before == alone
        again(watches[-1], "late")
        await asyncio.to_thread(watches[-1].close)
        await until(lambda: connections_to(brokers) == before, 20, "the end of the connections")
        assert ours() == []
        published = [one.value for one in (await records_of(settings))[settings.topic("turns")]]
        assert sum(b'"type":"turn"' in value for value in published) == 8 * 3 + 1  # beside reports of guards
        assert [watch.faults for watch in watches] == [0] * 8
    finally:
        for watch in watches:
            await asyncio.to_thread(watch.close)
        worker.end(signal.SIGTERM)
