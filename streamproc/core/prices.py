"""What a turn costs, where its publisher says only how many tokens it took and policy knows the model's price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from streamproc.model.wire import Usage

MILLION: Final = 1_000_000


class Price(NamedTuple):
    """Of a model, in micro-USD for a million tokens."""

    input: int
    output: int
    cached: int


def priced(usage: Usage, model: str, prices: Mapping[str, Price]) -> Usage:
    """The usage with its cost, where the model has a price; in doubt the dearer way.

    Cached tokens count as a part of the input, unless they are more than that. Where only the total is known, all of
    it costs what the dearest token does.
    """
    price = prices.get(model)
    if price is None or usage.cost_usd_micro is not None:
        return usage
    fresh, cached = usage.input_tokens, usage.cached_tokens
    if cached <= fresh:
        fresh -= cached
    cost = fresh * price.input + cached * price.cached + usage.output_tokens * price.output
    if not cost:
        cost = usage.total_tokens * max(price)
    return replace(usage, cost_usd_micro=-(-cost // MILLION))
