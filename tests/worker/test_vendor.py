"""The private parts of Faust and mode that `worker/vendor.py` uses, a test for each: a release that changes one fails.

What they do for the worker is tested with real workers, in this folder and in tests/simulation.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import faust
import pytest
from faust.assignor.partition_assignor import PartitionAssignor
from faust.channels import Channel
from faust.stores.base import Store
from faust.tables.recovery import Recovery
from faust.tables.table import Table
from faust.transport.consumer import Consumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service

from streamproc.settings import load_settings
from streamproc.worker.faust_app import new_app
from streamproc.worker.vendor import SameLoopConsumer, SeekingConsumer, UnsuspendedChannel

CALLS: dict[Callable[..., Any], str] = {  # what is called or replaced: its arguments
    driver.AIOKafkaConsumerThread._ensure_consumer: "self",
    driver.AIOKafkaConsumerThread._create_worker_consumer: "self, transport",
    driver.AIOKafkaConsumerThread.call_thread: "self, fun, args, kwargs",
    driver.Consumer._new_consumer_thread: "self",
    Consumer._commit: "self, offsets",
    Consumer._commit_offsets: "self, offsets, start_new_transaction",
    Consumer._drain_messages: "self, fetcher",
    Consumer._filter_committable_offsets: "self, tps",
    Consumer._get_active_partitions: "self",
    Consumer._is_changelog_tp: "self, tp",
    Consumer._should_commit: "self, tp, offset",
    Consumer.perform_seek: "self",
    Consumer.resume_partitions: "self, tps",
    Consumer.seek_to_committed: "self",
    Consumer.wait_empty: "self",
    Consumer.verify_event_path: "self, now, tp",
    Recovery._set_recovery_ended: "self",
    PartitionAssignor._compress: "raw",
    PartitionAssignor._decompress: "compressed",
    PartitionAssignor.on_assignment: "self, assignment",
    faust.App._create_directories: "self",
    Table._new_store: "self",
    Store.persisted_offset: "self, tp",
    Store.apply_changelog_batch: "self, batch, to_key, to_value",
    Service._stop_children: "self",
    Service._stop_exit_stacks: "self",
    Service._stop_futures: "self",
    Service.crash: "self, reason",
    Service.set_shutdown: "self",
}


def made(name: str, kind: type[Any] = SeekingConsumer) -> Any:
    """An object of Faust that is not started; a consumer of this class."""
    app = new_app(load_settings(brokers="127.0.0.1:1"), 1)
    callback: Any = asyncio.Event().wait
    consumer = kind(
        driver.Transport(app.conf.broker, app), callback, on_partitions_revoked=callback,
        on_partitions_assigned=callback,
    )  # fmt: skip
    return {
        "app": app, "consumer": consumer, "thread": consumer.kafka, "channel": Channel(app),
        "recovery": app.tables.recovery, "assignor": app.assignor, "metadata": app.assignor._metadata,
    }[name]  # fmt: skip


@pytest.mark.parametrize(("call", "arguments"), CALLS.items(), ids=lambda one: getattr(one, "__qualname__", ""))
def test_a_call_takes(call: Callable[..., Any], arguments: str) -> None:
    assert ", ".join(inspect.signature(call).parameters) == arguments


@pytest.mark.parametrize(("owner", "name"), [
    ("app", "_crashed"), ("app", "crash_reason"), ("app", "consumer_generation_id"), ("consumer", "_committed_offset"),
    ("consumer", "_stopped"), ("consumer", "_thread"), ("thread", "_consumer"), ("thread", "_stopped"),
    ("channel", "_queue"), ("recovery", "active_highwaters"), ("recovery", "active_offsets"),
    ("recovery", "active_tps"), ("recovery", "signal_recovery_end"), ("assignor", "_url"), ("metadata", "url"),
])  # fmt: skip
async def test_there_is(owner: str, name: str) -> None:
    assert hasattr(made(owner), name)


def test_a_service_of_the_same_loop_stops_as_one_without_a_thread() -> None:
    """Faust's class replaces these by those of a thread; one that is added there must be added here."""
    from mode.threads import ServiceThread

    for name in vars(ServiceThread):
        if name in vars(Service) and name.startswith(
            ("_stop", "start", "stop", "maybe_start", "crash", "set_shutdown")
        ):
            assert getattr(SameLoopConsumer, name) is getattr(Service, name), name


async def test_a_channel_passes_on_what_it_gets_before_flow_begins() -> None:
    channel = UnsuspendedChannel(new_app(load_settings(brokers="127.0.0.1:1"), 1))
    await channel.queue.put("a slice")
    assert await asyncio.wait_for(channel.queue.get(), 10) == "a slice"


async def test_what_faust_commits_and_drains_is_what_the_worker_says() -> None:
    """Only what was not committed before is committed."""
    place, other = TP("turns", 0), TP("turns", 1)
    committed, drained = [], []

    class Recorded(SeekingConsumer):
        def committable(self) -> dict[TP, int]:  # type: ignore[override]
            return {place: 5, other: 7}

        async def commit_offsets(self, offsets: Mapping[TP, int]) -> bool:  # type: ignore[override]
            committed.append(offsets)
            return True

        async def drain(self, stopped: Callable[[], bool]) -> None:  # type: ignore[override]
            drained.append(stopped())

    consumer = made("consumer", Recorded)
    consumer.committed_offsets[place] = 5
    assert await consumer.commit({place, other})
    assert committed == [{other: 7}]
    await consumer._drain_messages(consumer)  # as a fetcher: a service that is not stopped
    assert drained == [False]
    assert isinstance(consumer.kafka, SameLoopConsumer)
