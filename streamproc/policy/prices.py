"""Prices of models in a policy: USD per million tokens, kept in integer micro-USD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from streamproc.core.prices import Price
from streamproc.model.budgets import USD_MICRO, usd_micro

INPUT: Final = "input_per_million_usd"
OUTPUT: Final = "output_per_million_usd"
CACHED: Final = "cached_per_million_usd"
PRICE_FIELDS: Final = (INPUT, OUTPUT, CACHED)
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
    """Return the price of a checked setting. Without a price of their own, cached tokens cost what others do."""
    fresh = usd_micro(setting[INPUT])
    return Price(fresh, usd_micro(setting[OUTPUT]), usd_micro(setting[CACHED]) if CACHED in setting else fresh)


def written(price: Price) -> dict[str, float]:
    """Return a price in the form of a policy file."""
    return {
        name: micro / USD_MICRO
        for name, micro in ((INPUT, price.input), (OUTPUT, price.output), (CACHED, price.cached))
    }
