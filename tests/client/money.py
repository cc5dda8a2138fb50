"""Helpers of the admission tests: open an admission, read balances."""

from __future__ import annotations

from redis.asyncio import Redis

from streamproc.client.admission.admission import Admission, Payer
from streamproc.settings import load_settings


def open_admission(redis_url: str, prefix: str, **options: object) -> Admission:
    """Return an admission whose accounts belong to one test."""
    return Admission(settings=load_settings(redis=redis_url, topic_prefix=prefix), **options)


async def money(admission: Admission, payer: Payer, level: str = "run", period: str = "total") -> tuple[int, int]:
    """Return the micro-USD that an account has spent and holds."""
    [balance] = [one for one in await admission.balances(payer) if (one.level, one.period) == (level, period)]
    return balance.spent_usd_micro, balance.held_usd_micro


async def tokens(admission: Admission, payer: Payer, level: str = "run", period: str = "total") -> tuple[int, int]:
    """Return the tokens that an account has spent and holds."""
    [balance] = [one for one in await admission.balances(payer) if (one.level, one.period) == (level, period)]
    return balance.spent_tokens, balance.held_tokens


def connect(redis_url: str) -> Redis:
    """Return a connection separate from the admission's."""
    return Redis.from_url(redis_url, decode_responses=True)
