"""The sync wrapper of admission."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from streamproc.client.admission.blocking import BlockingAdmission, BlockingPayer
from streamproc.client.blocking import BlockingHaltListener
from streamproc.client.halt_records import Halt
from streamproc.errors import Halted, Refused, Unavailable
from streamproc.settings import Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = {"run": {"cost_usd": "1.00"}}


@pytest.fixture
def settings(redis_url: str, topic_prefix: str) -> Settings:
    return load_settings(redis=redis_url, topic_prefix=topic_prefix)


@pytest.fixture
def admission(settings: Settings) -> Iterator[BlockingAdmission]:
    with BlockingAdmission(settings=settings) as admission:
        yield admission


def money(admission: BlockingAdmission, payer: BlockingPayer) -> tuple[int, int]:
    [balance] = admission.balances(payer)
    return balance.spent_usd_micro, balance.held_usd_micro


def test_it_reserves_settles_releases_and_refuses(admission: BlockingAdmission) -> None:
    payer = admission.payer("r1", limits=LIMITS)
    with payer.reserve(cost_usd="0.80", tokens=10) as hold:
        assert money(admission, payer) == (0, 800_000)
        with pytest.raises(Refused), payer.reserve(cost_usd="0.21"):
            pytest.fail("the body started")
        hold.settle(cost_usd="0.30")
    with payer.reserve(cost_usd="0.70") as hold:
        hold.release()
    with pytest.raises(ZeroDivisionError), payer.reserve(cost_usd="0.05"):
        raise ZeroDivisionError
    assert money(admission, payer) == (350_000, 0)
    assert (admission.granted, admission.refused, admission.unasked, admission.unbooked) == (3, 1, 0, 0)


def test_many_threads_together_never_overshoot(admission: BlockingAdmission) -> None:
    payer = admission.payer("r1", limits=LIMITS)
    together = threading.Barrier(16)

    def spend(_: int) -> int:
        together.wait()
        count = 0
        while True:
            try:
                with payer.reserve(cost_usd="0.03"):
                    count += 1
            except Refused:
                return count

    with ThreadPoolExecutor(16) as threads:
        granted = sum(threads.map(spend, range(16)))
    assert granted == 33
    assert money(admission, payer) == (990_000, 0)


def test_a_guard_of_a_halted_run_reserves_nothing(admission: BlockingAdmission, settings: Settings) -> None:
    halts = BlockingHaltListener(settings=settings)
    with halts.guard("r1", admission, limits=LIMITS) as guard:
        with guard.reserve(cost_usd="0.10"):
            pass
        halts._runs["r1"] = Halt(b"", "LOOP001", 1)  # as if the listener had received it
        with pytest.raises(Halted), guard.reserve(cost_usd="0.10"):
            pytest.fail("the body started")
        halts._runs.clear()
    assert money(admission, admission.payer("r1")) == (100_000, 0)


def test_reserving_without_an_admission_raises_with_a_remedy(settings: Settings) -> None:
    with pytest.raises(RuntimeError, match="has no payer"):
        BlockingHaltListener(settings=settings).guard("r1").reserve(cost_usd=1)


def test_reserving_needs_an_open_admission(settings: Settings) -> None:
    admission = BlockingAdmission(settings=settings)
    payer = admission.payer("r1")
    with pytest.raises(RuntimeError, match="not open"), payer.reserve(cost_usd=1):
        pytest.fail("the body started")
    with admission:
        pass
    with pytest.raises(RuntimeError, match="closed"), payer.reserve(cost_usd=1):
        pytest.fail("the body started")


def test_opening_without_redis_raises_with_its_address(nowhere: str) -> None:
    with pytest.raises(Unavailable, match=nowhere), BlockingAdmission(f"redis://{nowhere}/0"):
        pytest.fail("it opened")
