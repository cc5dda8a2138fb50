"""A broker that is unavailable at the start, comes up, is killed with turns in flight, and comes back."""

from __future__ import annotations

import asyncio

import pytest

from deploy.local.kafka import Broker, free_port
from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import Halted
from streamproc.kafka import topics
from streamproc.settings import load_settings
from tests.client.records import distinct, guarded, halt_event, open_worker, turns_on
from tests.waiting import until


@pytest.mark.long
@pytest.mark.kafka
async def test_outages_lose_no_turn_and_no_halt(own_broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    settings = load_settings(brokers=f"127.0.0.1:{port}", topic_prefix="outage", partitions=2)
    sent = 0

    async def publish(turns: TurnPublisher, count: int) -> None:
        nonlocal sent
        for seq in range(sent, sent + count):
            await turns.turn(run_id=f"run-{seq % 5}", node="coder", seq=seq)
        sent += count

    async def halt(run_id: str) -> None:
        async with open_worker(settings) as worker:
            await worker.control(halt_event(run_id))

    async with (
        TurnPublisher(settings=settings, block_ms_max=0) as turns,
        HaltListener(settings=settings, wait=False) as halts,
    ):
        await publish(turns, 50)
        await until(lambda: turns.trouble and halts.trouble, what="the missing broker to be noticed")
        later = await guarded(halts, "later")  # fails open

        await asyncio.to_thread(own_broker.start, port)
        await topics.apply(settings)
        assert await turns.flush(60)
        assert turns.delivered == 50
        await asyncio.wait_for(halts.caught_up.wait(), 60)
        await halt("before")
        await until(lambda: halts.halted("before"))

        await publish(turns, 25)
        own_broker.kill()
        await publish(turns, 25)
        await until(lambda: turns.trouble and halts.trouble, what="the lost broker to be noticed")
        assert not halts.connected
        assert halts.halted("before")
        assert not later.done()

        await asyncio.to_thread(own_broker.start, port)
        await publish(turns, 50)
        assert await turns.flush(60)
        assert (turns.delivered, turns.dropped) == (150, 0)
        await halt("later")
        with pytest.raises(Halted):
            await later
        assert halts.connected
        assert halts.halted("before")

    assert distinct(await turns_on(settings)) == {f"run-{n}": list(range(n, 150, 5)) for n in range(5)}
    logged = [record.message for record in caplog.records if record.name.startswith("streamproc.client")]
    assert len([message for message in logged if "turns are not being delivered" in message]) == 2
    assert len([message for message in logged if "receiving no halts" in message]) == 2
