"""A turn that never ends, on a real Kafka, is found without another event; nothing else is mistaken for one."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Any

import pytest

from streamproc.fingerprint import read_event
from streamproc.fleet.issuing import issue_command
from streamproc.kafka import topics as kafka_topics
from streamproc.model import wire
from streamproc.policy import load_policy
from streamproc.replay.log import LogReplay
from tests.feeding import Feed
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import Topics, event_record, looping_run, said

TIMEOUT_MS = 1_500

SOON = """
from streamproc.worker import limits
limits.DEADLINE_TICK_S, limits.DEADLINE_GRACE_S = 0.1, 0.3
"""
# Every event takes 3 ms, slices are small, and deadlines are checked at once.
HASTY = (
    SOON
    + """
import time
from streamproc.worker import consumer
from tests.feeding import wrap_engines
limits.DEADLINE_TICK_S, limits.DEADLINE_GRACE_S, consumer.SLICE_RECORDS_MAX = 0.02, 0.0, 10
def slow(step, state, event, at_ms, position):
    time.sleep(0.003)
    return step(state, event, at_ms, position)
wrap_engines(slow)
"""
)


def begun(run_id: str, timeout_ms: int = TIMEOUT_MS, **budgets: int) -> list[tuple[bytes, bytes]]:
    """A run whose turn has been started."""
    budgets = {"turnTimeoutMs": timeout_ms, **budgets}
    return [
        event_record(wire.RunStarted(w=1, run_id=run_id, event_id=f"{run_id}/0", budgets=budgets)),
        event_record(wire.TurnStarted(w=1, run_id=run_id, event_id=f"{run_id}/1", node="coder")),
    ]


def ended(run_id: str) -> tuple[bytes, bytes]:
    return event_record(wire.Turn(w=1, run_id=run_id, event_id=f"{run_id}/2", node="coder", output=said("done")))


async def deadlines(topics: Topics) -> list[wire.Deadline]:
    """The deadlines in the log."""
    events = [read_event(record.value) for record in await topics.read("turns")]
    return [event for event in events if isinstance(event, wire.Deadline)]


async def halted(topics: Topics, run_ids: Iterable[str]) -> list[dict[str, Any]]:
    """All decisions, once these runs are halted."""
    wanted, controls = set(run_ids), list[dict[str, Any]]()

    async def all_there() -> bool:
        controls[:] = await topics.controls()
        return wanted <= {control["run_id"] for control in controls if control["severity"] == "halt"}

    await until(all_there, 60, f"halts of {sorted(wanted)}", every_s=0.2)
    return controls


async def replayed(topics: Topics) -> list[str]:
    """Ids of the decisions that a replay of the log makes."""
    replay = LogReplay(load_policy().engine(), event_bytes_max=1_000_000)
    return [decision.id for decision in replay.decide(await topics.read("turns"))]


async def test_a_turn_that_never_ends_is_halted_without_another_event(settings, topics, start_worker, path) -> None:
    worker = start_worker(settings, path, before=SOON)
    await worker.ready()
    await topics.send([*begun("hangs"), *begun("ends"), ended("ends")])

    controls = await halted(topics, ["hangs"])

    await topics.done()
    [halt] = [control for control in controls if control["run_id"] == "hangs"]
    assert (halt["code"], halt["terminal_status"], halt["type"]) == ("BUDGET001", "timed_out", "loop.halted")
    assert halt["evidence"]["used"] >= TIMEOUT_MS
    [deadline] = await deadlines(topics)
    assert (deadline.run_id, deadline.about, deadline.node) == ("hangs", "BUDGET001", "coder")
    assert halt["trigger"]["event_id"] == deadline.event_id
    assert sorted(await replayed(topics)) == sorted(control["id"] for control in await topics.controls())


@pytest.mark.long
async def test_a_new_owner_reads_the_deadlines_from_the_table(settings, topics, start_worker, path) -> None:
    first = start_worker(settings, path)  # it would wait for its grace first, longer than it lives
    await first.ready()
    await topics.send(begun("hangs"))
    await topics.done()
    first.end(signal.SIGKILL)
    assert await deadlines(topics) == []

    start_worker(settings, path, before=SOON)

    [halt] = await halted(topics, ["hangs"])
    assert halt["code"] == "BUDGET001"


@pytest.mark.long
async def test_a_backlog_after_downtime_causes_no_false_deadlines(settings, topics, start_worker) -> None:
    """While the beginning of the log is stepped, every turn in it looks like one that has not ended for long."""
    names, timeout_ms = [f"run-{number}" for number in range(300)], 2 * TIMEOUT_MS
    await topics.send(looping_run("topics are there", 1))
    started_s = time.monotonic()
    await topics.send(
        [record for name in names for record in begun(name, timeout_ms)] + [ended(name) for name in names]
    )
    assert time.monotonic() - started_s < timeout_ms / 1000, "the machine is too slow: the turns really took too long"
    await until(lambda: time.monotonic() - started_s > timeout_ms / 1000)

    worker = start_worker(settings, before=HASTY)
    await worker.ready()
    await topics.send(begun("hangs"))
    await halted(topics, ["hangs"])

    assert [deadline.run_id for deadline in await deadlines(topics)] == ["hangs"]
    assert {control["run_id"] for control in await topics.controls()} == {"hangs"}


async def test_events_that_a_publisher_buffered_come_before_any_deadline(settings, topics, start_worker) -> None:
    """All workers are back after downtime, and the turn that is overdue comes a moment later."""
    first = start_worker(settings)
    await first.ready()
    await topics.send(begun("r"))
    await topics.done()
    first.end()
    gone_s = time.monotonic()
    await until(lambda: time.monotonic() - gone_s > TIMEOUT_MS / 1000)
    second = start_worker(settings, before="from streamproc.worker import limits\nlimits.DEADLINE_TICK_S = 0.05")
    await second.ready()

    await topics.send([ended("r")])
    [halt] = await halted(topics, ["r"])

    assert halt["trigger"]["event_id"] == "r/2", "it took too long, and it did end"
    assert await deadlines(topics) == []


async def test_two_workers_append_one_deadline_as_one_event(settings, topics, start_worker) -> None:
    """As when one was thought dead: the same deadline stands in the log twice, and counts once."""
    worker = start_worker(settings, before=SOON)
    await worker.ready()
    await topics.send(begun("hangs"))
    await halted(topics, ["hangs"])
    [deadline] = await deadlines(topics)

    await topics.send([event_record(deadline)] * 2)
    await topics.done()

    assert len(await topics.controls()) == 1
    feed = Feed()
    for record in await topics.read("turns"):
        feed.event(read_event(record.value), record.timestamp)
    assert feed.state.duplicates == 2


async def test_a_run_past_its_time_limit_is_halted_and_keeps_its_state(settings, topics, start_worker) -> None:
    worker = start_worker(settings, before=SOON)
    await worker.ready()
    run = [
        event_record(wire.RunStarted(w=1, run_id="slow", event_id="slow/0", budgets={"maxRuntimeMs": TIMEOUT_MS})),
        event_record(
            wire.Turn(
                w=1,
                run_id="slow",
                event_id="slow/1",
                node="writer",
                output=said("draft"),
                round=2,
                usage=wire.Usage(total_tokens=70, cost_usd_micro=20_000),
            )
        ),
    ]
    await topics.send(run)

    [halt] = await halted(topics, ["slow"])

    assert (halt["type"], halt["code"], halt["terminal_status"]) == ("run.timed_out", "BUDGET006", "timed_out")
    snapshot = halt["evidence"]["snapshot"]
    assert (snapshot["turns"], snapshot["round"], snapshot["total_tokens"]) == (1, 2, 70)
    assert snapshot["cost_usd_micro"] == 20_000


async def test_an_imported_log_gets_no_deadlines(brokers, topic_prefix, start_worker) -> None:
    """Its times are those of other days, and now is not in it."""
    settings = settings_for(brokers, topic_prefix, timestamp_type="CreateTime")
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    worker = start_worker(settings, before=SOON)  # it has to find out whose times these are
    await worker.ready()
    await topics.send([*begun("old"), *looping_run("r", 3)])
    await halted(topics, ["r"])
    marker_s = time.monotonic()
    await until(lambda: time.monotonic() - marker_s > 2 * TIMEOUT_MS / 1000)
    assert await deadlines(topics) == []


@pytest.mark.long
async def test_a_paused_fleet_is_not_silent(settings, topics, start_worker) -> None:
    worker = start_worker(settings, before=SOON)
    await worker.ready()
    await issue_command(settings, "PAUSE", "fleet", "ann", "a release")

    async def paused() -> bool:
        return any(control["type"] == "fleet.state" for control in await topics.controls())

    await until(paused, 30, "the worker to hear of the pause")
    await topics.send(begun("hangs"))
    await topics.done()
    sent_s = time.monotonic()
    await until(lambda: time.monotonic() - sent_s > 2 * TIMEOUT_MS / 1000)
    assert await deadlines(topics) == []

    await issue_command(settings, "CLEAR", "fleet", "ann", "done")
    await halted(topics, ["hangs"])
