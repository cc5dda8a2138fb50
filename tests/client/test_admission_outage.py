"""Admission while Redis is killed, restarted or frozen, and on a Redis cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest
from redis.asyncio import RedisCluster

from deploy.local import redis
from deploy.local.redis import Server
from streamproc.client.admission.admission import Admission, Payer
from streamproc.client.guard import Guard, GuardRegistry
from streamproc.errors import Halted, InvalidSettings, Refused, Unavailable
from tests.client.money import connect, money, open_admission
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "admission.md"
LIMITS = {"run": {"cost_usd": "1.00"}}


@pytest.fixture
def url(own_redis: Server) -> str:
    """The address of a Redis that this test may kill."""
    return redis.url(own_redis.start())


def restart(own_redis: Server, url: str) -> None:
    """Restart the same Redis on the same port, with its data."""
    own_redis.start(int(url.rpartition(":")[2].partition("/")[0]))


async def spends(payer: Payer, cost_usd: str) -> bool:
    """Return whether Redis granted the reservation."""
    try:
        async with payer.reserve(cost_usd=cost_usd) as hold:
            return hold.reserved
    except Unavailable:
        return False


async def all_booked(admission: Admission) -> None:
    await until(lambda: not admission.unbooked, what="the pending settlements")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("streamproc.client")]


async def test_closed_admission_grants_nothing_during_an_outage_and_keeps_balances(
    own_redis: Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_admission(url, "p") as admission:
        payer = admission.payer("r1", limits=LIMITS)
        assert await spends(payer, "0.70")
        own_redis.kill()
        for _ in range(3):
            with pytest.raises(Unavailable, match=r"Redis \(127.*STREAMPROC_REDIS"):
                async with payer.reserve(cost_usd="0.10"):
                    pytest.fail("the body started")
        assert admission.trouble is not None
        restart(own_redis, url)
        await until(lambda: spends(payer, "0.20"))
        assert admission.trouble is None
        with pytest.raises(Refused) as refused:
            await spends(payer, "0.20")
        assert refused.value.spent == 900_000
    assert len(warnings_of(caplog)) == 2  # at the start and the end of the outage


async def test_open_admission_proceeds_during_an_outage_and_books_later(
    own_redis: Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_admission(url, "p", on_unavailable="open") as admission:
        payer = admission.payer("r1", limits=LIMITS)
        own_redis.kill()
        for cost_usd in ("0.30", "0.40", "0.50"):
            async with payer.reserve(cost_usd="0.60") as hold:
                assert not hold.reserved
                hold.settle(cost_usd=cost_usd)
        assert (admission.unasked, admission.granted, admission.unbooked) == (3, 0, 3)
        assert len(warnings_of(caplog)) == 1

        restart(own_redis, url)
        await all_booked(admission)
        assert await money(admission, payer) == (1_200_000, 0)
        assert "3 calls proceeded without a reservation" in warnings_of(caplog)[1]
        with pytest.raises(Refused):
            await spends(payer, "0.01")
    assert admission.lost == 0


async def test_open_admission_still_stops_a_run_that_is_known_to_be_halted(own_redis: Server, url: str) -> None:
    async with open_admission(url, "p", on_unavailable="open") as admission:
        halted: list[str] = []
        own_redis.kill()

        def known(run_id: str) -> Halted | None:
            return Halted(run_id) if run_id in halted else None

        async with Guard("r1", GuardRegistry(), known, admission.payer("r1")) as guard:
            async with guard.reserve(cost_usd="0.10"):
                pass
            halted.append("r1")
            with pytest.raises(Halted):
                async with guard.reserve(cost_usd="0.10"):
                    pytest.fail("the body started")
        assert admission.unasked == 1


async def test_a_settlement_during_an_outage_is_booked_afterwards(own_redis: Server, url: str) -> None:
    async with open_admission(url, "p") as admission:
        payer = admission.payer("r1", limits=LIMITS)
        async with payer.reserve(cost_usd="0.60") as hold:
            own_redis.kill()
            hold.settle(cost_usd="0.25")
        assert admission.unbooked == 1
        restart(own_redis, url)
        await all_booked(admission)
        assert await money(admission, payer) == (250_000, 0)


async def test_settlements_that_cannot_be_booked_before_closing_are_counted(
    own_redis: Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    admission = open_admission(url, "p", close_timeout_s=0.1)
    async with admission, admission.payer("r1").reserve(cost_usd="0.60"):
        own_redis.kill()
    assert admission.lost == 1
    assert "not booked before closing" in warnings_of(caplog)[-1]


async def test_a_redis_that_comes_back_empty_gets_the_open_holds(own_redis: Server, url: str) -> None:
    async with open_admission(url, "p", ttl_s=2.0) as admission, connect(url) as redis:
        payer = admission.payer("r1", limits=LIMITS)
        async with payer.reserve(cost_usd="0.60") as hold:
            await redis.flushall()
            await redis.script_flush()

            async def known() -> bool:
                return await money(admission, payer) == (0, 600_000)

            await until(known)
            hold.settle(cost_usd="0.10")
        assert await money(admission, payer) == (100_000, 0)


async def test_a_frozen_redis_delays_a_call_by_no_more_than_the_timeout(own_redis: Server, url: str) -> None:
    async with open_admission(url, "p", timeout_s=0.5) as admission:
        payer = admission.payer("r1", limits=LIMITS)
        assert await spends(payer, "0.10")
        state = own_redis.running()
        os.kill(state.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable):  # a body that never ends would hang this test
                async with payer.reserve(cost_usd="0.60"):
                    pytest.fail("the body started")
        finally:
            os.kill(state.pid, signal.SIGCONT)

        async def nothing_is_held() -> bool:  # the reservation that Redis made after its freeze is released
            try:
                return not admission.unbooked and await money(admission, payer) == (100_000, 0)
            except Unavailable:
                return False

        await until(nothing_is_held)


async def test_a_caller_that_is_cancelled_while_reserving_leaves_no_hold(own_redis: Server, url: str) -> None:
    async with open_admission(url, "p", timeout_s=10.0) as admission:
        payer = admission.payer("r1", limits=LIMITS)
        assert await spends(payer, "0.10")
        state = own_redis.running()
        os.kill(state.pid, signal.SIGSTOP)
        try:
            task = asyncio.create_task(spends(payer, "0.60"))
            await asyncio.wait([task], timeout=0.2)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        finally:
            os.kill(state.pid, signal.SIGCONT)
        await all_booked(admission)
        assert await money(admission, payer) == (100_000, 0)


@pytest.mark.parametrize("on_unavailable", ["closed", "open"])
async def test_opening_without_redis(nowhere: str, on_unavailable: str) -> None:
    admission = open_admission(f"redis://:secret@{nowhere}/0", "p", on_unavailable=on_unavailable)
    if on_unavailable == "closed":
        with pytest.raises(Unavailable, match=nowhere) as unavailable:
            await admission.start()
        assert "secret" not in str(unavailable.value)
    else:
        async with admission:
            assert not await spends(admission.payer("r1"), "0.10")
            assert admission.unasked == 1


def test_an_invalid_address_is_refused_without_showing_its_password() -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_REDIS") as invalid:
        open_admission("http://:secret@host", "p")
    assert "secret" not in str(invalid.value)


async def test_a_user_with_the_documented_rights_can_do_everything(own_redis: Server, url: str) -> None:
    documented = re.search(r"^ACL SETUSER (.+)$", PAGE.read_text(), re.MULTILINE)
    assert documented is not None
    async with connect(url) as redis:
        await redis.execute_command("ACL", "SETUSER", *documented[1].split())
    theirs = url.replace("redis://", "redis://agents:secret@")
    async with open_admission(theirs, "streamproc") as admission:
        payer = admission.payer("r1", tenant="t", limits=LIMITS)
        async with payer.reserve(cost_usd="0.60", id="one") as hold:
            await admission._extend(hold)
            hold.settle(cost_usd="0.10")
        async with payer.reserve(cost_usd="0.60") as hold:
            hold.release()
        async with payer.reserve(cost_usd="0.60"), connect(url) as redis:
            key = payer.accounts.keys("")[2]
            [member] = await redis.zrange(key, 0, -1)
            await redis.zadd(key, {member: 1})  # it has expired: the script removes it
            assert await money(admission, payer) == (100_000, 0)
        assert admission.trouble is None


async def test_in_a_cluster_all_keys_of_a_call_are_in_one_slot(own_redis: Server) -> None:
    port = own_redis.start(0, "--cluster-enabled", "yes").port
    async with connect(f"redis://{redis.HOST}:{port}/0") as node:
        await node.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))

        async def formed() -> bool:
            return "cluster_state:ok" in str(await node.execute_command("CLUSTER", "INFO"))

        await until(formed)
    async with RedisCluster(host=redis.HOST, port=port) as cluster, Admission(client=cluster) as admission:
        for tenant in ("", "acme", "{odd} name", "@"):
            payer = admission.payer("r1", session="s1", user="u1", tenant=tenant, limits=LIMITS)
            assert await spends(payer, "0.70")
            with pytest.raises(Refused):
                await spends(payer, "0.70")
