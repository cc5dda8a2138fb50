"""A graph that a worker in another process halts, over a real Kafka."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from streamproc import Halted, Watch
from streamproc.integrations.langchain import Breaker
from streamproc.kafka import topics
from streamproc.settings import load_settings
from tests.integrations.test_langchain import PROMPT, STUCK, Played, Tools, calling, graph_of
from tests.worker.running import WorkerProcess

SECONDS_MAX = 20  # a halt takes milliseconds; a slow machine takes longer
STEP_S = 0.05  # of a tool: an agent that does nothing else would take hundreds of turns before the first decision


@pytest.mark.kafka
def test_a_worker_stops_a_stuck_graph(
    brokers: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPROC_TOPIC_PREFIX", topic_prefix)
    settings = load_settings(brokers=brokers)
    asyncio.run(topics.apply(settings))
    worker = WorkerProcess(settings, tmp_path / "worker.log").start()
    watch = Watch(brokers=brokers)

    def slow(_: int) -> str:
        time.sleep(STEP_S)
        return STUCK

    tools = Tools(slow)
    graph = graph_of(Played(messages=calling()), tools.all)
    config = {
        "configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch)],
        "recursion_limit": int(2 * SECONDS_MAX / STEP_S),
    }  # fmt: skip
    try:
        asyncio.run(worker.ready())
        with pytest.raises(Halted, match=r"run t1 is halted \(LOOP003\)"):
            graph.invoke(PROMPT, config)
        assert 3 <= tools.calls < SECONDS_MAX / STEP_S
        assert watch.faults == 0
    finally:
        watch.close()
        worker.end(signal.SIGTERM)
