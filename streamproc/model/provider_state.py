"""The state of the breaker of a provider and model, as control events and heartbeats carry it."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from streamproc.model.published import Known, PublishedRecord, about

StateName = Literal["closed", "open", "half_open"]

PREFIX: Final = "provider:"  # of the key of what is published about a provider
NAME_MAX: Final = 256  # characters of its name


class ProviderState(PublishedRecord, kw_only=True, frozen=True):
    """The state of one breaker. Times are epoch milliseconds of the log's clock; a higher `number` is newer."""

    provider: Annotated[str, about("provider and model, such as anthropic/claude-sonnet-4-5")]
    state: Known[StateName]
    number: Annotated[int, about("changes of this breaker so far")] = 0
    at_ms: Annotated[int, about("log time of the latest call or change")] = 0
    since_ms: Annotated[int, about("when it became closed, open or half-open")] = 0
    until_ms: Annotated[
        int, about("open: when probes may go; half_open: when they must have brought an outcome; closed: 0")
    ] = 0
    reason: Annotated[str, about("why, as a sentence for people")] = ""
    why: Annotated[str, about("what failed last, such as 429")] = ""
    calls: Annotated[int, about("calls in the window")] = 0
    failures: Annotated[int, about("how many of them the provider did not answer: 429, 5xx, time-outs")] = 0
    runs: Annotated[int, about("how many runs these are of; more than 64 are not told apart")] = 0
    mean_ms: Annotated[int, about("mean duration of the calls, where durations are known")] = 0
    level: Annotated[int, about("openings in a row; each doubles the cool-down")] = 0
    episode: Annotated[int, about("half-open episodes so far")] = 0
    permits: Annotated[list[str], about("ids of the callers that may probe in this episode")] = []
    waiting: Annotated[int, about("callers that wait and have asked for a permit")] = 0
    retries_left: Annotated[bool, about("whether the fleet's budget of retries has something left")] = True
    spread_ms: Annotated[int, about("callers come back at random moments within this time")] = 0

    @property
    def key(self) -> str:
        """The key of control events about this provider."""
        return PREFIX + self.provider

    @property
    def version(self) -> tuple[int, int]:
        """Orders the states of one breaker, also if a worker has lost one and begun again."""
        return self.at_ms, self.number


_DATE: Final = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


def provider_name(provider: str, model: str) -> str:
    """Return the name of a breaker: ``provider/model``, or the one of them that is known; empty: none is.

    Names of models that contain their provider (``anthropic/claude-…``, as LiteLLM writes them) stay as they are. A
    date at the end of a model's name is left out: callers name an alias, and answers what it stands for.
    """
    model = _DATE.sub("", model)
    if not provider or model.startswith(provider + "/"):
        return model
    return f"{provider}/{model}" if model else provider
