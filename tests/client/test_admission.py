"""Reserving, settling, releasing and refusing on a real Redis."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from streamproc.client.admission.admission import Admission, Payer
from streamproc.client.admission.reservation import Hold
from streamproc.client.guard import Guard, GuardRegistry
from streamproc.errors import AlreadySettled, Halted, InvalidPolicy, Refused
from tests.client.money import connect, money, open_admission, tokens
from tests.waiting import until


@pytest.fixture
async def admission(redis_url: str, topic_prefix: str) -> AsyncIterator[Admission]:
    async with open_admission(redis_url, topic_prefix) as admission:
        yield admission


@pytest.fixture
def payer(admission: Admission) -> Payer:
    """A run that may spend one dollar and ten thousand tokens."""
    return admission.payer("r1", limits={"run": {"cost_usd": "1.00", "tokens": 10_000}})


async def spend(payer: Payer, cost_usd: str) -> None:
    async with payer.reserve(cost_usd=cost_usd):
        pass


async def test_a_reserved_amount_is_held_until_it_is_settled(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05", tokens=4000) as hold:
        assert hold.reserved
        assert await money(admission, payer) == (0, 50_000)
        assert await tokens(admission, payer) == (0, 4000)
        hold.settle(cost_usd="0.01", tokens=900)
    assert await money(admission, payer) == (10_000, 0)
    assert await tokens(admission, payer) == (900, 0)
    assert (admission.granted, admission.refused, admission.unasked) == (1, 0, 0)


async def test_leaving_without_settling_books_the_estimate(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05"):
        pass
    assert await money(admission, payer) == (50_000, 0)


async def test_a_released_amount_is_not_spent(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05") as hold:
        hold.release()
    assert await money(admission, payer) == (0, 0)


async def test_the_last_settle_or_release_counts(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05") as hold:
        hold.settle(cost_usd="0.01")
        hold.release()
        hold.settle(cost_usd="0.02")
    assert await money(admission, payer) == (20_000, 0)


async def test_for_a_unit_that_is_not_settled_the_estimate_is_booked(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05", tokens=4000) as hold:
        hold.settle(tokens=1000)
    assert await money(admission, payer) == (50_000, 0)
    assert await tokens(admission, payer) == (1000, 0)


async def test_a_settlement_above_the_estimate_is_booked_in_full(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.90") as hold:
        hold.settle(cost_usd="1.10", tokens=3)  # tokens without an estimate
    assert await money(admission, payer) == (1_100_000, 0)
    assert await tokens(admission, payer) == (3, 0)
    with pytest.raises(Refused) as refused:
        await spend(payer, "0.000001")
    assert (refused.value.left, refused.value.spent) == (0, 1_100_000)


async def test_a_hold_cannot_be_settled_after_its_with_block(payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05") as hold:
        pass
    with pytest.raises(RuntimeError, match="inside its `with` block"):
        hold.settle(cost_usd="0.01")


@pytest.mark.parametrize(("on_error", "spent"), [("settle", 50_000), ("release", 0)])
async def test_an_exception_books_the_estimate_unless_on_error_is_release(
    admission: Admission, payer: Payer, on_error, spent: int
) -> None:
    with pytest.raises(ConnectionResetError):
        async with payer.reserve(cost_usd="0.05", on_error=on_error):
            raise ConnectionResetError
    assert await money(admission, payer) == (spent, 0)


@pytest.mark.parametrize("on_error", ["settle", "release"])
async def test_a_cancelled_call_costs_its_estimate(admission: Admission, payer: Payer, on_error) -> None:
    started = asyncio.Event()

    async def work() -> None:
        async with payer.reserve(cost_usd="0.05", on_error=on_error):
            started.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await money(admission, payer) == (50_000, 0)


async def test_a_caller_that_is_cancelled_at_the_exit_is_still_booked(admission: Admission, payer: Payer) -> None:
    leaving = asyncio.Event()

    async def work() -> None:
        async with payer.reserve(cost_usd="0.05") as hold:
            hold.settle(cost_usd="0.02")
            leaving.set()

    task = asyncio.create_task(work())
    await leaving.wait()  # it then reaches the first await of its exit
    task.cancel()
    await asyncio.wait([task])

    async def paid() -> bool:
        return await money(admission, payer) == (20_000, 0)

    await until(paid)


# Refusing.


async def test_a_refusal_names_the_account_and_the_amount_left(payer: Payer) -> None:
    await spend(payer, "0.70")
    async with payer.reserve(cost_usd="0.20"):
        with pytest.raises(Refused) as refused:
            await spend(payer, "0.10000100")
    refusal = refused.value
    assert (refusal.level, refusal.name, refusal.period, refusal.unit) == ("run", "r1", "total", "micro_usd")
    assert (refusal.asked, refusal.limit, refusal.spent, refusal.held) == (100_001, 1_000_000, 700_000, 200_000)
    assert (refusal.left, refusal.renews_at) == (100_000, None)
    assert "run r1 has 0.1 USD left of the 1 USD limit in total" in str(refusal)


async def test_a_budget_can_be_spent_to_the_last_micro_usd(payer: Payer) -> None:
    await spend(payer, "0.999999")
    await spend(payer, "0.000001")
    with pytest.raises(Refused):
        await spend(payer, "0.000001")


async def test_a_refusal_reserves_nothing_on_any_account(admission: Admission) -> None:
    payer = admission.payer(
        "r1",
        session="s1",
        user="u1",
        tenant="t1",
        limits={"run": {"cost_usd": 9}, "user": {"day": {"cost_usd": 9}}, "tenant": {"month": {"cost_usd": "0.01"}}},
    )
    with pytest.raises(Refused, match="tenant t1"):
        await spend(payer, "0.02")
    assert all(balance[3:] == (0, 0, 0, 0) for balance in await admission.balances(payer))


async def test_run_session_user_and_tenant_are_checked_in_this_order(admission: Admission) -> None:
    nothing = {"cost_usd": 0}
    refusing = {"run": nothing, "session": nothing, "user": {"hour": nothing}, "tenant": {"hour": nothing}}
    named = []
    while refusing:
        payer = admission.payer("r", session="s", user="u", tenant="t", limits=refusing)
        with pytest.raises(Refused) as refused:
            await spend(payer, "0.01")
        named.append((refused.value.level, refused.value.name))
        del refusing[refused.value.level]
    assert named == [("run", "r"), ("session", "s"), ("user", "u"), ("tenant", "t")]
    await spend(admission.payer("r", session="s", user="u", tenant="t"), "0.01")


async def test_of_several_exceeded_limits_the_one_that_renews_last_is_named(
    admission: Admission, redis_url: str
) -> None:
    nothing = {"cost_usd": 0}
    payer = admission.payer("r", user="u", limits={"user": {"hour": nothing, "month": nothing, "day": nothing}})
    with pytest.raises(Refused) as refused:
        await spend(payer, "0.01")
    async with connect(redis_url) as redis:
        now = datetime.fromtimestamp((await redis.time())[0], UTC)
    assert refused.value.period == "month"
    assert refused.value.renews_at > now
    assert (refused.value.renews_at.day, refused.value.renews_at.hour) == (1, 0)


async def test_a_unit_without_an_estimate_is_refused_if_exhausted(payer: Payer) -> None:
    async with payer.reserve(tokens=10_000):
        with pytest.raises(Refused) as refused:
            await spend(payer, "0.01")
    assert (refused.value.unit, refused.value.asked) == ("tokens", 0)


async def test_an_estimate_of_zero_is_never_refused(payer: Payer) -> None:
    await spend(payer, "1.00")
    async with payer.reserve(cost_usd=0, tokens=5):
        pass


async def test_a_refusal_can_be_pickled(payer: Payer) -> None:
    with pytest.raises(Refused) as refused:
        await spend(payer, "1.01")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), vars(again)) == (str(refused.value), vars(refused.value))


async def test_limits_of_a_reservation_replace_those_of_the_payer(payer: Payer) -> None:
    with pytest.raises(Refused):
        await spend(payer, "2.00")
    async with payer.reserve(cost_usd="2.00", limits={"run": {"cost_usd": "2.00"}}):
        pass


async def test_limits_of_the_admission_apply_to_every_payer(redis_url: str, topic_prefix: str) -> None:
    async with open_admission(redis_url, topic_prefix, limits={"tenant": {"day": {"tokens": 100}}}) as admission:
        async with admission.payer("r1", tenant="t").reserve(tokens=60):
            with pytest.raises(Refused, match="tenant t"):
                async with admission.payer("r2", tenant="t").reserve(tokens=60):
                    pass
            async with admission.payer("r2", tenant="t2").reserve(tokens=60):
                pass
        with pytest.raises(InvalidPolicy, match=r"limits\.tenant.*no tenant is named.*pass tenant="):
            admission.payer("r3")


async def test_names_are_unique_within_a_tenant_only(admission: Admission) -> None:
    limits = {"user": {"day": {"cost_usd": "0.01"}}}
    for tenant in ("t1", "t2", "", "@", "{t1}"):
        await spend(admission.payer("r", user="u:{1}", tenant=tenant, limits=limits), "0.01")
    with pytest.raises(Refused):
        await spend(admission.payer("other", user="u:{1}", tenant="{t1}", limits=limits), "0.01")


async def test_an_amount_of_a_billion_dollars_is_exact(admission: Admission) -> None:
    payer = admission.payer("r", limits={"run": {"cost_usd": 10**9}})
    await spend(payer, "999999999.999999")
    await spend(payer, "0.000001")
    assert await money(admission, payer) == (10**15, 0)
    with pytest.raises(Refused):
        await spend(payer, "0.000001")


@pytest.mark.parametrize("estimate", [{}, {"cost_usd": -1}, {"cost_usd": "much"}, {"tokens": 1.5}, {"tokens": True}])
def test_an_invalid_estimate_is_refused_at_once(admission: Admission, estimate) -> None:
    with pytest.raises(ValueError, match=r"expected|estimate is missing"):
        admission.payer("r").reserve(**estimate)


# Repetitions.


async def test_a_repeated_reservation_reserves_once(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.60", id="step 7"), payer.reserve(cost_usd="0.60", id="step 7") as again:
        assert again.reserved
        assert await money(admission, payer) == (0, 600_000)
        again.settle(cost_usd="0.10")
    assert await money(admission, payer) == (100_000, 0)  # the first settlement counts


async def test_settled_work_cannot_be_reserved_again(payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.10", id="step 7"):
        pass
    with pytest.raises(AlreadySettled, match="step 7"):
        async with payer.reserve(cost_usd="0.10", id="step 7"):
            pass


async def test_released_work_can_be_reserved_again(admission: Admission, payer: Payer) -> None:
    for _ in range(3):
        async with payer.reserve(cost_usd="0.60", id="step 7") as hold:
            hold.release()
    assert await money(admission, payer) == (0, 0)


async def test_an_id_cannot_be_reused_with_another_estimate(payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.10", id="step 7"):
        with pytest.raises(ValueError, match="another estimate"):
            async with payer.reserve(cost_usd="0.20", id="step 7"):
                pass


async def test_a_reservation_can_be_used_only_once(payer: Payer) -> None:
    reservation = payer.reserve(cost_usd="0.10")
    async with reservation:
        pass
    with pytest.raises(RuntimeError, match="used only once"):
        async with reservation:
            pass


# With a guard.


def guard(payer: Payer | None, halted: list[str]) -> Guard:
    return Guard("r1", GuardRegistry(), lambda run_id: Halted(run_id) if run_id in halted else None, payer)


async def test_a_halted_run_reserves_nothing(admission: Admission, payer: Payer) -> None:
    halted: list[str] = []
    async with guard(payer, halted) as guarded:
        async with guarded.reserve(cost_usd="0.10") as hold:
            hold.settle(cost_usd="0.03")
        halted.append("r1")
        with pytest.raises(Halted):
            async with guarded.reserve(cost_usd="0.10"):
                pytest.fail("the body started")
    assert await money(admission, payer) == (30_000, 0)
    assert admission.granted == 1


async def test_a_halt_in_the_body_books_the_estimate(admission: Admission, payer: Payer) -> None:
    halted: list[str] = []
    holds: list[Hold] = []

    async def work(guarded: Guard) -> None:
        async with guarded, guarded.reserve(cost_usd="0.10") as hold:
            holds.append(hold)
            halted.append("r1")
            guarded.fire()
            await asyncio.get_running_loop().create_future()

    with pytest.raises(Halted):
        await work(guard(payer, halted))
    assert holds
    assert await money(admission, payer) == (100_000, 0)


async def test_reserving_without_a_payer_raises_with_a_remedy() -> None:
    with pytest.raises(RuntimeError, match=r"halts\.guard"):
        guard(None, []).reserve(cost_usd="0.10")


async def test_reserving_needs_an_open_admission(redis_url: str, topic_prefix: str) -> None:
    admission = open_admission(redis_url, topic_prefix)
    with pytest.raises(RuntimeError, match="not open"):
        await spend(admission.payer("r"), "0.01")
    async with admission:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await spend(admission.payer("r"), "0.01")


@pytest.mark.parametrize("option", [{"on_unavailable": "Open"}, {"on_error": "ignore"}, {"ttl_s": 0}])
def test_a_misspelt_option_is_refused(nowhere: str, option) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        open_admission(f"redis://{nowhere}/0", "p", **option)


def test_a_misspelt_option_of_one_reservation_is_refused(admission: Admission) -> None:
    with pytest.raises(ValueError, match="on_error"):
        admission.payer("r").reserve(cost_usd=1, on_error="ignore")
