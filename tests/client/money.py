"""What the tests of admission share: amounts to write and to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.asyncio import Redis

from streamproc.client.admission.admission import Admission
from streamproc.settings import load_settings

if TYPE_CHECKING:
    from streamproc.client.admission.admission import Payer


def open_admission(redis_url: str, prefix: str, **options: object) -> Admission:
    """An admission whose accounts are this test's own."""
    return Admission(settings=load_settings(redis=redis_url, topic_prefix=prefix), **options)


async def money(admission: Admission, payer: Payer, level: str = "run", period: str = "total") -> tuple[int, int]:
    """Micro-USD that an account has spent, and those that it holds."""
    [balance] = [one for one in await admission.balances(payer) if (one.level, one.period) == (level, period)]
    return balance.spent_usd_micro, balance.held_usd_micro


async def tokens(admission: Admission, payer: Payer, level: str = "run", period: str = "total") -> tuple[int, int]:
    """Tokens that an account has spent, and those that it holds."""
    [balance] = [one for one in await admission.balances(payer) if (one.level, one.period) == (level, period)]
    return balance.spent_tokens, balance.held_tokens


def connect(redis_url: str) -> Redis:
    """A connection beside the admission's."""
    return Redis.from_url(redis_url, decode_responses=True)
