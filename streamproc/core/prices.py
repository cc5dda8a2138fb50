"""The cost of a turn whose publisher reports tokens only, from the prices of models in the policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from streamproc.model.wire import Usage

MILLION: Final = 1_000_000
DEFAULT: Final = "default"  # the name of the price for models that have none, also for turns without a model
NAMES_MAX: Final = 1_000  # names of models whose price is remembered; publishers choose them

# `gpt-4o-2024-08-06`, `claude-sonnet-4-5-20250929`, `claude-3-5-haiku@20241022`, `…-latest`: a version of a model.
_VERSION: Final = re.compile(r"(?:[-@](?:20\d\d-?\d\d-?\d\d|latest))(?:-v\d+(?::\d+)?)?\Z")


class Price(NamedTuple):
    """The price of a model, in micro-USD for a million tokens."""

    input: int
    output: int
    cached: int  # read from a cache
    cache_write: int


class Prices(dict[str, Price]):
    """The prices of models, by name. Providers report names in longer forms than people write them in a policy."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        super().__init__(prices)
        self._known: dict[str, Price | None] = {}

    def of(self, model: str) -> Price | None:
        """Return the price of a model: by its name, without its provider (``openai/``), without its version
        (``-2024-08-06``), else the default one; None if there is none."""
        if model in self._known:
            return self._known[model]
        plain = model.rpartition("/")[2]
        names = (model, plain, _VERSION.sub("", model), _VERSION.sub("", plain), DEFAULT)
        price = next((self[name] for name in names if name in self), None)
        if len(self._known) < NAMES_MAX:
            self._known[model] = price
        return price


def priced(usage: Usage, model: str, prices: Prices) -> Usage:
    """Return the usage with its cost if the model has a price; when in doubt, the higher cost.

    Tokens read from a cache or written to one count as part of the input unless there are more of them. If only the
    total is known, every token costs as much as the most expensive kind.
    """
    price = None if usage.cost_usd_micro is not None else prices.of(model)
    if price is None:
        return usage
    fresh, cached, written = usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens
    if cached + written <= fresh:
        fresh -= cached + written
    cost = fresh * price.input + cached * price.cached + written * price.cache_write
    cost += usage.output_tokens * price.output
    if not cost:
        cost = usage.total_tokens * max(price)
    return replace(usage, cost_usd_micro=-(-cost // MILLION))
