"""What people tell a run, as types: stop, go on, and that a halt is taken care of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from streamproc.model.raw_fields import Budgets, RawEvent, ScopeName, Text

# Short names of what is granted; every budget's own name is taken, too.
GRANTED: Final = {
    "turns": "maxSteps",
    "iterations": "maxCycleIterations",
    "cost": "maxCostUsd",
    "tokens": "maxTaskTokens",
    "rounds": "maxRounds",
}


def _named(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {GRANTED.get(str(name), str(name)): amount for name, amount in value.items()}


Grant = Annotated[Budgets, BeforeValidator(_named, json_schema_input_type=dict[str, str | float])]


class RawOperatorEvent(RawEvent):
    """What a person orders, and why."""

    by: Text = ""
    reason: Text = ""
    issuer: ScopeName = Field("", description="the name of the key that signed it; a publisher with a key fills it in")
    signature: ScopeName = Field("", description="HMAC-SHA256 in hex; a publisher with a key fills it in")


class RawOperatorStop(RawOperatorEvent):
    """A person orders this run to stop."""

    type: Literal["operator.stop"] = "operator.stop"


class RawOperatorResume(RawOperatorEvent):
    """A person lets a halted run go on."""

    type: Literal["operator.resume"] = "operator.resume"
    grant: Grant = Field(
        {}, description="how much is added to budgets, by their names, or turns, iterations, tokens, rounds, cost"
    )


class RawHaltAcknowledged(RawEvent):
    """Somebody has taken note of a run's halt, and takes care of it."""

    type: Literal["halt.acknowledged"] = "halt.acknowledged"
    by: Text = ""
    reason: Text = ""
