"""The section `providers` of a policy: the limits of the breakers of providers and models (`core.providers`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from streamproc.core.providers import ProviderRules

DEFAULT: Final = ProviderRules()
Seconds = Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class ProviderSetting(BaseModel):
    """The settings of one layer; all of them optional."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool | None = Field(None, description="whether there are breakers")
    window_s: Annotated[Seconds, Field(ge=12)] | None = Field(None, description="seconds in which calls are counted")
    share: Share | None = Field(None, description="share of the calls in the window that must fail")
    min_calls: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="calls in the window below which nothing opens"
    )
    min_runs: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None, description="runs of which calls must fail; one run adds at most `min_calls / min_runs` failures"
    )
    cool_down_s: Seconds | None = Field(
        None, description="seconds that it stays open at least; doubled at each opening in a row"
    )
    cool_down_max_s: Seconds | None = Field(None, description="the longest cool-down")
    retry_after_max_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = Field(
        None, description="the longest `Retry-After` that is obeyed"
    )
    probes: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None, description="calls that are let through in a half-open episode"
    )
    probe_timeout_s: Seconds | None = Field(None, description="seconds for the outcome of a probe")
    retry_share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        None, description="budget of the fleet's retries, as a share of its calls; 0: none"
    )
    min_retries: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="retries in the window that are always allowed"
    )
    spread_s: Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)] | None = Field(
        None, description="seconds over which callers come back when it closes"
    )


_RULE_OF: Final = {
    "enabled": ("enabled", 0), "window_s": ("window_ms", 1000), "share": ("percent", 100),
    "min_calls": ("calls_min", 0), "min_runs": ("runs_min", 0), "cool_down_s": ("cool_down_ms", 1000),
    "cool_down_max_s": ("cool_down_max_ms", 1000), "retry_after_max_s": ("retry_after_max_ms", 1000),
    "probes": ("probes", 0), "probe_timeout_s": ("probe_ms", 1000), "retry_share": ("retries_percent", 100),
    "min_retries": ("retries_min", 0), "spread_s": ("spread_ms", 1000),
}  # fmt: skip
"""By setting: the rule, and the factor by which its integer is larger (0: as it is)."""


def provider_rules(layers: Iterable[ProviderSetting | None]) -> ProviderRules:
    """Return the rules of a policy's layers, of which later ones win."""
    values: dict[str, Any] = {}
    for layer in layers:
        for name, value in ({} if layer is None else layer.model_dump(exclude_none=True)).items():
            rule, factor = _RULE_OF[name]
            values[rule] = max(1, round(value * factor)) if factor and value else int(value) if factor else value
    return msgspec.convert(values, ProviderRules)


def written(rules: ProviderRules) -> dict[str, Any]:
    """Return rules as a policy file has them."""
    found = {name: getattr(rules, rule) / (factor or 1) for name, (rule, factor) in _RULE_OF.items()}
    return {
        name: rules.enabled if name == "enabled" else int(value) if value == int(value) else value
        for name, value in found.items()
    }


def provider_problems(setting: ProviderSetting | None) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the mistakes that types cannot express, as they count on top of the defaults."""
    rules = provider_rules([setting])
    if rules.cool_down_max_ms < rules.cool_down_ms:
        what = f"{rules.cool_down_max_ms / 1000:g} s are fewer than cool_down_s, {rules.cool_down_ms / 1000:g} s"
        yield ("providers", "cool_down_max_s"), what, "set it to cool_down_s or more"
