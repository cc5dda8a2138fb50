"""The cost of a turn whose publisher reports tokens only, from the prices of models in the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from streamproc.model.wire import Usage

MILLION: Final = 1_000_000


class Price(NamedTuple):
    """The price of a model, in micro-USD for a million tokens."""

    input: int
    output: int
    cached: int


def priced(usage: Usage, model: str, prices: Mapping[str, Price]) -> Usage:
    """Return the usage with its cost if the model has a price; when in doubt, the higher cost.

    Cached tokens count as part of the input unless there are more of them. If only the total is known, every token
    costs as much as the most expensive kind.
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
