"""Who may spend what: reserving, settling, releasing and refusing, on a real Redis."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from streamproc.client.admission.admission import Admission, Payer
from streamproc.client.guard import Guard, GuardRegistry
from streamproc.errors import AlreadySettled, Halted, InvalidPolicy, Refused
from tests.client.money import connect, money, open_admission, tokens
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from streamproc.client.admission.reservation import Hold


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


async def test_what_is_reserved_is_held_until_it_is_settled(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05", tokens=4000) as hold:
        assert hold.reserved
        assert await money(admission, payer) == (0, 50_000)
        assert await tokens(admission, payer) == (0, 4000)
        hold.settle(cost_usd="0.01", tokens=900)
    assert await money(admission, payer) == (10_000, 0)
    assert await tokens(admission, payer) == (900, 0)
    assert (admission.granted, admission.refused, admission.unasked) == (1, 0, 0)


async def test_leaving_without_a_word_books_the_estimate(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05"):
        pass
    assert await money(admission, payer) == (50_000, 0)


async def test_what_is_released_was_never_spent(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05") as hold:
        hold.release()
    assert await money(admission, payer) == (0, 0)


async def test_the_last_word_counts(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05") as hold:
        hold.settle(cost_usd="0.01")
        hold.release()
        hold.settle(cost_usd="0.02")
    assert await money(admission, payer) == (20_000, 0)


async def test_of_what_a_settlement_does_not_name_the_estimate_is_booked(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05", tokens=4000) as hold:
        hold.settle(tokens=1000)
    assert await money(admission, payer) == (50_000, 0)
    assert await tokens(admission, payer) == (1000, 0)


async def test_more_than_the_estimate_is_booked_as_it_is(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.90") as hold:
        hold.settle(cost_usd="1.10", tokens=3)  # tokens that nobody had asked for
    assert await money(admission, payer) == (1_100_000, 0)
    assert await tokens(admission, payer) == (3, 0)
    with pytest.raises(Refused) as refused:
        await spend(payer, "0.000001")
    assert (refused.value.left, refused.value.spent) == (0, 1_100_000)


async def test_after_its_with_a_hold_is_over(payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.05") as hold:
        pass
    with pytest.raises(RuntimeError, match="inside of its `with`"):
        hold.settle(cost_usd="0.01")


@pytest.mark.parametrize(("on_error", "spent"), [("settle", 50_000), ("release", 0)])
async def test_an_exception_books_the_estimate_unless_it_is_said_to_cost_nothing(
    admission: Admission, payer: Payer, on_error, spent: int
) -> None:
    with pytest.raises(ConnectionResetError):
        async with payer.reserve(cost_usd="0.05", on_error=on_error):
            raise ConnectionResetError
    assert await money(admission, payer) == (spent, 0)


@pytest.mark.parametrize("on_error", ["settle", "release"])
async def test_a_cancelled_call_was_under_way_and_costs_its_estimate(
    admission: Admission, payer: Payer, on_error
) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with payer.reserve(cost_usd="0.05", on_error=on_error):
            begun.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await money(admission, payer) == (50_000, 0)


async def test_a_caller_that_is_cancelled_while_it_leaves_has_paid_all_the_same(
    admission: Admission, payer: Payer
) -> None:
    leaving = asyncio.Event()

    async def work() -> None:
        async with payer.reserve(cost_usd="0.05") as hold:
            hold.settle(cost_usd="0.02")
            leaving.set()

    task = asyncio.create_task(work())
    await leaving.wait()  # it goes on to its exit, and there into the first wait
    task.cancel()
    await asyncio.wait([task])

    async def paid() -> bool:
        return await money(admission, payer) == (20_000, 0)

    await until(paid)


# Refusing.


async def test_a_refusal_says_who_cannot_pay_and_how_much_is_left(payer: Payer) -> None:
    await spend(payer, "0.70")
    async with payer.reserve(cost_usd="0.20"):
        with pytest.raises(Refused) as refused:
            await spend(payer, "0.10000100")
    said = refused.value
    assert (said.level, said.name, said.period, said.unit) == ("run", "r1", "total", "micro_usd")
    assert (said.asked, said.limit, said.spent, said.held) == (100_001, 1_000_000, 700_000, 200_000)
    assert (said.left, said.renews_at) == (100_000, None)
    assert "run r1 has 0.1 USD left of the 1 USD" in str(said)


async def test_the_last_bit_can_be_had_and_no_more(payer: Payer) -> None:
    await spend(payer, "0.999999")
    await spend(payer, "0.000001")
    with pytest.raises(Refused):
        await spend(payer, "0.000001")


async def test_a_refusal_reserves_nothing_on_anybody(admission: Admission) -> None:
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


async def test_the_run_is_asked_first_then_session_user_and_tenant(admission: Admission) -> None:
    nothing = {"cost_usd": 0}
    refusing = {"run": nothing, "session": nothing, "user": {"hour": nothing}, "tenant": {"hour": nothing}}
    said = []
    while refusing:
        payer = admission.payer("r", session="s", user="u", tenant="t", limits=refusing)
        with pytest.raises(Refused) as refused:
            await spend(payer, "0.01")
        said.append((refused.value.level, refused.value.name))
        del refusing[refused.value.level]
    assert said == [("run", "r"), ("session", "s"), ("user", "u"), ("tenant", "t")]
    await spend(admission.payer("r", session="s", user="u", tenant="t"), "0.01")


async def test_of_one_account_the_limit_that_refuses_longest_is_named(admission: Admission, redis_url: str) -> None:
    nothing = {"cost_usd": 0}
    payer = admission.payer("r", user="u", limits={"user": {"hour": nothing, "month": nothing, "day": nothing}})
    with pytest.raises(Refused) as refused:
        await spend(payer, "0.01")
    async with connect(redis_url) as redis:
        now = datetime.fromtimestamp((await redis.time())[0], UTC)
    assert refused.value.period == "month"
    assert refused.value.renews_at is not None
    assert refused.value.renews_at > now
    assert (refused.value.renews_at.day, refused.value.renews_at.hour) == (1, 0)


async def test_what_nobody_estimates_must_not_be_exhausted(payer: Payer) -> None:
    async with payer.reserve(tokens=10_000):
        with pytest.raises(Refused) as refused:
            await spend(payer, "0.01")
    assert (refused.value.unit, refused.value.asked) == ("tokens", 0)


async def test_what_costs_nothing_is_never_refused(payer: Payer) -> None:
    await spend(payer, "1.00")
    async with payer.reserve(cost_usd=0, tokens=5):
        pass


async def test_a_refusal_can_be_sent_to_another_process(payer: Payer) -> None:
    with pytest.raises(Refused) as refused:
        await spend(payer, "1.01")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), vars(again)) == (str(refused.value), vars(refused.value))


async def test_limits_at_the_reservation_replace_those_of_the_payer_level_by_level(payer: Payer) -> None:
    with pytest.raises(Refused):
        await spend(payer, "2.00")
    async with payer.reserve(cost_usd="2.00", limits={"run": {"cost_usd": "2.00"}}):
        pass


async def test_limits_of_the_admission_hold_for_every_payer(redis_url: str, topic_prefix: str) -> None:
    async with open_admission(redis_url, topic_prefix, limits={"tenant": {"day": {"tokens": 100}}}) as admission:
        async with admission.payer("r1", tenant="t").reserve(tokens=60):
            with pytest.raises(Refused, match="tenant t"):
                async with admission.payer("r2", tenant="t").reserve(tokens=60):
                    pass
            async with admission.payer("r2", tenant="t2").reserve(tokens=60):
                pass
        with pytest.raises(InvalidPolicy, match=r"limits\.tenant.*none is named.*say tenant="):
            admission.payer("r3")


async def test_names_are_names_within_a_tenant(admission: Admission) -> None:
    limits = {"user": {"day": {"cost_usd": "0.01"}}}
    for tenant in ("t1", "t2", "", "@", "{t1}"):
        await spend(admission.payer("r", user="u:{1}", tenant=tenant, limits=limits), "0.01")
    with pytest.raises(Refused):
        await spend(admission.payer("other", user="u:{1}", tenant="{t1}", limits=limits), "0.01")


async def test_an_amount_of_a_thousand_million_dollars_is_exact(admission: Admission) -> None:
    payer = admission.payer("r", limits={"run": {"cost_usd": 10**9}})
    await spend(payer, "999999999.999999")
    await spend(payer, "0.000001")
    assert await money(admission, payer) == (10**15, 0)
    with pytest.raises(Refused):
        await spend(payer, "0.000001")


@pytest.mark.parametrize("estimate", [{}, {"cost_usd": -1}, {"cost_usd": "much"}, {"tokens": 1.5}, {"tokens": True}])
def test_what_is_no_estimate_is_refused_at_once(admission: Admission, estimate) -> None:
    with pytest.raises(ValueError, match=r"expected|say how much"):
        admission.payer("r").reserve(**estimate)


# The same again.


async def test_asking_again_for_the_same_work_reserves_once(admission: Admission, payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.60", id="step 7"), payer.reserve(cost_usd="0.60", id="step 7") as again:
        assert again.reserved
        assert await money(admission, payer) == (0, 600_000)
        again.settle(cost_usd="0.10")
    assert await money(admission, payer) == (100_000, 0)  # the first end counts


async def test_work_that_is_paid_for_cannot_be_reserved_again(payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.10", id="step 7"):
        pass
    with pytest.raises(AlreadySettled, match="step 7"):
        async with payer.reserve(cost_usd="0.10", id="step 7"):
            pass


async def test_work_that_cost_nothing_can_be_reserved_again(admission: Admission, payer: Payer) -> None:
    for _ in range(3):
        async with payer.reserve(cost_usd="0.60", id="step 7") as hold:
            hold.release()
    assert await money(admission, payer) == (0, 0)


async def test_one_name_cannot_stand_for_two_estimates(payer: Payer) -> None:
    async with payer.reserve(cost_usd="0.10", id="step 7"):
        with pytest.raises(ValueError, match="another estimate"):
            async with payer.reserve(cost_usd="0.20", id="step 7"):
                pass


async def test_a_reservation_is_used_once(payer: Payer) -> None:
    reservation = payer.reserve(cost_usd="0.10")
    async with reservation:
        pass
    with pytest.raises(RuntimeError, match="used once"):
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
                pytest.fail("the body began")
    assert await money(admission, payer) == (30_000, 0)
    assert admission.granted == 1


async def test_a_halt_in_the_body_books_the_estimate(admission: Admission, payer: Payer) -> None:
    halted: list[str] = []
    taken: list[Hold] = []

    async def work(guarded: Guard) -> None:
        async with guarded, guarded.reserve(cost_usd="0.10") as hold:
            taken.append(hold)
            halted.append("r1")
            guarded.fire()
            await asyncio.get_running_loop().create_future()

    with pytest.raises(Halted):
        await work(guard(payer, halted))
    assert taken
    assert await money(admission, payer) == (100_000, 0)


async def test_a_guard_without_a_payer_says_how_to_get_one() -> None:
    with pytest.raises(RuntimeError, match=r"halts\.guard"):
        guard(None, []).reserve(cost_usd="0.10")


async def test_only_an_open_admission_can_be_asked(redis_url: str, topic_prefix: str) -> None:
    admission = open_admission(redis_url, topic_prefix)
    with pytest.raises(RuntimeError, match="not open"):
        await spend(admission.payer("r"), "0.01")
    async with admission:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await spend(admission.payer("r"), "0.01")


@pytest.mark.parametrize("option", [{"on_unavailable": "Open"}, {"on_error": "ignore"}, {"ttl_s": 0}])
def test_an_option_that_is_misspelt_is_refused(nowhere: str, option) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        open_admission(f"redis://{nowhere}/0", "p", **option)


def test_a_misspelt_option_of_one_reservation_is_refused(admission: Admission) -> None:
    with pytest.raises(ValueError, match="on_error"):
        admission.payer("r").reserve(cost_usd=1, on_error="ignore")
