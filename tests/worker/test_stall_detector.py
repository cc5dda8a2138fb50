"""A worker without progress exits, so that its supervisor can restart it; one that only waits does not.

The stalls are simulated: an engine that never returns, a client or an agent that hangs, a broker that is frozen.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal

import pytest

from deploy.local.kafka import Broker
from streamproc.kafka import topics as kafka_topics
from streamproc.worker import watchdog
from streamproc.worker.limits import END_TIMEOUT_S
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, expected_ids, gather_controls, honest_run, log_of_loops, looping_run, turn

# An engine that does not come back from a turn of the node "endless": once in Python, once without ever giving the
# interpreter back.
ENDLESS = """
import re
from streamproc.worker import app, watchdog
from tests.feeding import wrap_engines
app.LOOP_STUCK_SESSIONS, watchdog.INTERPRETER_STUCK_S = 0.5, 5.0
def endless(step, state, event, at_ms, position):
    while event.node == "endless":
        pass
    if event.node == "greedy":
        re.match("(a+)+$", "a" * 64 + "b")
    return step(state, event, at_ms, position)
wrap_engines(endless)
"""

SOON = """
from streamproc.worker import composition, consumer, stall_detector
composition.DRAIN_TIMEOUT_S = consumer.DRAIN_TIMEOUT_S = 3.0
stall_detector.STALL_CHECK_S, stall_detector.COMMIT_STUCK_S, stall_detector.BROKER_PROBE_S = 0.2, 2.0, 1.5
stall_detector.REBALANCE_STUCK_S = 8.0
"""

# A worker that may hold a tenth of what it may, and says whenever it holds more than before: records that are stepped
# and not stored, outgoing that are not sent, states that are not written.
SMALL = """
import sys
from streamproc.worker import consumer, partition_pipeline
partition_pipeline.BACKLOG_RECORDS_MAX, consumer.SLICE_RECORDS_MAX = 1_000, 200
stepped, most = partition_pipeline.PartitionPipeline.accept, {}
def accept(self, records):
    taken = stepped(self, records)
    held = max(self.backlog, len(self._outgoing) // 3, len(self._runs.dirty))
    if held > most.get(self.partition, 0):
        most[self.partition] = held
        print("held", held, file=sys.stderr, flush=True)
    return taken
partition_pipeline.PartitionPipeline.accept = accept
"""
HELD_MAX = 1_000 + 200

# A framework that does not stop when it is asked to, and whose agents take being cancelled for a crash.
ENDLESS_STOP = """
import asyncio
from streamproc.worker import composition, faust_app
async def agent():
    for life in range(3):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
async def never(self):
    global kept
    kept = asyncio.ensure_future(agent())
    await asyncio.Event().wait()
faust_app.App.stop, composition.DRAIN_TIMEOUT_S = never, 0.1
"""

# A client whose commits stop, without a word, after the first ones; one whose fetches never return.
MUTE_COMMITS = """
from streamproc.worker import vendor
honest, made = vendor.SameLoopConsumer._commit, []
async def mute(self, offsets):
    made.append(offsets)
    return len(made) < 3 and await honest(self, offsets)
vendor.SameLoopConsumer._commit = mute
"""
MUTE_FETCHES = """
import asyncio
from streamproc.worker import vendor
honest, made = vendor.SameLoopConsumer.fetch, []
async def mute(self, tps, **options):
    records = await honest(self, tps, **options)
    made.extend(tp for tp in records if tp.topic.endswith(".turns"))
    if len(made) > 4:
        await asyncio.Event().wait()
    return records
vendor.SameLoopConsumer.fetch = mute
"""
# An agent that takes a slice, or an event, and never comes back.
MUTE_AGENT = """
from benchmarks import stock_path
from streamproc.worker import slices
slices.Slice.apply_to = lambda self, pipelines: None
stock_path._apply = lambda app, message, pipelines: None
"""
# A member that never takes what a rebalance gives it.
MUTE_REBALANCE = """
import asyncio
from streamproc.worker.consumer import BatchConsumer
async def mute(self, assigned, generation_id=0):
    await asyncio.Event().wait()
BatchConsumer.on_partitions_assigned = mute
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("node", "said"),
    [("endless", "the event loop has been blocked for 4 s"), ("greedy", "Timeout (0:00:05)!")],
)
async def test_an_engine_that_never_returns_ends_the_process(settings, topics, start_worker, node, said) -> None:
    """Nothing is lost by it: a worker without the fault begins where the last commit was."""
    worker = start_worker(settings, before=ENDLESS)
    await worker.ready()
    records = looping_run("r")
    await topics.send([turn("s", node), *records])

    await until(lambda: not worker.running, 60)
    assert worker.end() == 1
    assert said in worker.text
    assert "in endless" in worker.text, "its stack is printed"

    start_worker(settings)
    await gather_controls(topics, expected_ids(records))


@pytest.mark.long
@pytest.mark.parametrize("hang", [MUTE_COMMITS, MUTE_FETCHES], ids=["commits", "fetches"])
async def test_a_client_that_hangs_while_the_broker_is_there_ends_the_process(
    settings, topics, start_worker, hang
) -> None:
    worker = start_worker(settings, before=SOON + hang)
    await worker.ready()

    async def it_has_ended() -> bool:
        if worker.running:
            await topics.send(honest_run("r", 1))
        return not worker.running

    await until(it_has_ended, 60, every_s=0.3)
    assert worker.end() == 1
    assert f"{settings.topic('turns')}[" in worker.text
    assert "has not moved since" in worker.text
    assert "worker stalled while the broker is reachable; exiting: " in worker.text


@pytest.mark.long
async def test_an_agent_that_hangs_ends_the_process(settings, topics, start_worker, path) -> None:
    """Also where no other record follows."""
    worker = start_worker(settings, path, before=SOON + MUTE_AGENT)
    await worker.ready()
    await topics.send(honest_run("r", 1))
    await until(lambda: not worker.running, 60)
    assert worker.end() == 1
    assert "its agent has not answered" in worker.text


@pytest.mark.long
async def test_a_rebalance_without_end_ends_the_process(settings, start_worker) -> None:
    worker = start_worker(settings, before=SOON + MUTE_REBALANCE)
    await until(lambda: not worker.running, 60)
    assert worker.end() == 1
    assert "the rebalance or recovery has not moved since" in worker.text


async def test_a_worker_whose_framework_does_not_stop_still_exits_with_0(settings, start_worker, path) -> None:
    """And says where it stood."""
    worker = start_worker(settings, path, before=ENDLESS_STOP)
    await worker.ready()
    assert worker.end(signal.SIGTERM, timeout_s=END_TIMEOUT_S) == 0
    assert "the broker did not acknowledge everything in time" in worker.text
    assert "in never" in worker.text


@pytest.mark.long
async def test_a_worker_with_a_frozen_broker_keeps_a_bounded_backlog_continues_and_can_be_stopped(
    own_broker: Broker, start_worker
) -> None:
    state = await asyncio.to_thread(own_broker.start)
    settings = settings_for(f"127.0.0.1:{state.port}", "frozen")
    await kafka_topics.apply(settings)
    topics, records = Topics(settings), log_of_loops(1_000)
    await topics.send(records)
    worker = start_worker(settings, before=SOON + SMALL)
    await until(lambda: worker.said("held "), 60)
    os.killpg(state.pid, signal.SIGSTOP)
    try:
        await until(lambda: worker.said("the broker does not answer; waiting for it"), 60)
    finally:
        os.killpg(state.pid, signal.SIGCONT)

    await gather_controls(topics, expected_ids(records), 90)
    await topics.done()

    assert max(map(int, re.findall(r"held (\d+)", worker.text))) <= HELD_MAX
    assert {control["id"] for control in await topics.controls()} == expected_ids(records)
    assert worker.text.count("starts brokers=") == 1
    os.killpg(state.pid, signal.SIGSTOP)
    try:
        worker.send(signal.SIGTERM)
        assert worker.end(signal.SIGTERM, timeout_s=END_TIMEOUT_S) == 0
    finally:
        os.killpg(state.pid, signal.SIGCONT)


def test_the_watchdog_accepts_a_running_loop_and_ends_with_it(monkeypatch) -> None:
    monkeypatch.setattr(watchdog, "WATCH_TICK_S", 0.001)
    turns = []

    async def turn_often() -> None:
        loop = asyncio.get_running_loop()
        guard.watch(loop)
        await until(lambda: turns.append(1) or len(turns) > 50, every_s=0.001)

    with watchdog.Watchdog(0.5) as guard:
        asyncio.run(turn_often())
        guard._still_s = 100.0
        ticks = guard._still_s
    assert guard._still_s == ticks, "a loop that is closed is not waited for"
    assert not guard._thread.is_alive()
