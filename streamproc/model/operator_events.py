"""Raw events by which people act on one run: stop it, resume it, acknowledge its halt, judge it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from streamproc.model.raw_fields import Amounts, RawEvent, ScopeName, Text

Verdict = Literal["false-alarm", "right"]

# Short names for what a resume grants. Every budget name is accepted as well.
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


Grant = Annotated[Amounts, BeforeValidator(_named, json_schema_input_type=dict[str, str | float])]


class RawOperatorEvent(RawEvent):
    """A command of a person to one run, with the reason."""

    by: Text = ""
    reason: Text = ""
    issuer: ScopeName = Field("", description="name of the signing key; a publisher with a key fills it in")
    signature: ScopeName = Field("", description="HMAC-SHA256 in hex; a publisher with a key fills it in")


class RawOperatorStop(RawOperatorEvent):
    """A person stops this run."""

    type: Literal["operator.stop"] = "operator.stop"


class RawOperatorResume(RawOperatorEvent):
    """A person resumes a halted run."""

    type: Literal["operator.resume"] = "operator.resume"
    halt: ScopeName = Field(
        "", description="id of the decision that it lifts, from the run's status; the resume is refused for another"
    )
    grant: Grant = Field({}, description="amounts to add, by budget name or as turns, iterations, tokens, rounds, cost")


class RawFeedback(RawOperatorEvent):
    """A person says whether the halt of a run was right. No detector reads it; `backtest` counts it."""

    type: Literal["feedback"] = "feedback"
    verdict: Verdict = Field(description="`false-alarm`: the run should not have been halted; `right`: it was stuck")
    decision: ScopeName = Field("", description="id of the halt that is judged; empty: the run's halt")


class RawHaltAcknowledged(RawEvent):
    """A person acknowledges a run's halt and takes care of it."""

    type: Literal["halt.acknowledged"] = "halt.acknowledged"
    by: Text = ""
    reason: Text = ""
