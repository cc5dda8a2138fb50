"""Prices of models in a policy: USD per million tokens, kept in integer micro-USD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from streamproc.core.prices import Price
from streamproc.model.budgets import USD_MICRO, usd_micro

INPUT: Final = "input_per_million_usd"
OUTPUT: Final = "output_per_million_usd"
CACHED: Final = "cached_per_million_usd"
CACHE_WRITE: Final = "cache_write_per_million_usd"
PRICE_FIELDS: Final = (INPUT, OUTPUT, CACHED, CACHE_WRITE)
PRICE_REMEDY: Final = f"set {', '.join(PRICE_FIELDS)} to USD, as decimal text or a number"


def price_problems(prices: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every mistake in the prices of models, with its place."""
    for model, setting in prices.items():
        for name in (INPUT, OUTPUT):
            if name not in setting:
                yield (model,), f"{name} is missing"
        for name, value in setting.items():
            if name not in PRICE_FIELDS:
                yield (model, name), "unknown field of a price"
                continue
            try:
                usd_micro(value)
            except ValueError as error:
                yield (model, name), str(error)


def price_of(setting: Mapping[str, Any]) -> Price:
    """Return the price of a checked setting. Without a price of their own, tokens that are read from a cache or written
    to one cost what others do."""
    fresh = setting[INPUT]
    return Price(*(usd_micro(setting.get(name, fresh)) for name in PRICE_FIELDS))


def written(price: Price) -> dict[str, float]:
    """Return a price in the form of a policy file."""
    return {name: micro / USD_MICRO for name, micro in zip(PRICE_FIELDS, price, strict=True)}
