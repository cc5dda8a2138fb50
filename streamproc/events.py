"""What a user hands us, as types: raw turns and the other run-scoped inputs, checked at the edge.

Only ``run_id`` and ``node`` are required of a turn; a missing field is "no evidence", never "no progress". Unknown
fields are ignored and counted (`RawEvent.unknown`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Literal

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from streamproc.budgets import budget_value, find_budget, usd_micro
from streamproc.errors import InvalidEvent, Problem

EPOCH_MS_MIN: Final = 946_684_800_000  # the year 2000: smaller numbers are seconds, or not times at all
EPOCH_MS_MAX: Final = 4_102_444_800_000  # the year 2100


def _bytes_max(limit: int) -> AfterValidator:
    def check(value: str) -> str:
        if len(value) * 4 > limit and len(value.encode("utf-8", "surrogatepass")) > limit:
            raise ValueError(f"longer than {limit} bytes")
        return value

    return AfterValidator(check)


def _utf8(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("not valid Unicode text") from None
    return value


def _time_ms(value: Any) -> int:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("expected RFC 3339, such as 2026-01-31T12:00:00Z, or epoch milliseconds") from None
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("expected RFC 3339 text or epoch milliseconds")
    if not EPOCH_MS_MIN <= value <= EPOCH_MS_MAX:
        raise ValueError("outside the years 2000 to 2100; are these milliseconds since 1970?")
    return int(value)


def _budgets(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise ValueError("expected an object of budget names and numbers")
    found = {}
    for name, amount in value.items():
        if amount is None:
            continue
        try:
            budget = find_budget(str(name))
            number = budget_value(budget, amount)
            found[budget.name] = number if budget.ceiling is None else min(number, budget.ceiling)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{name}: {error.args[0]}") from None
    return found


Key = Annotated[str, Field(min_length=1), AfterValidator(_utf8), _bytes_max(256)]
ScopeName = Annotated[str, AfterValidator(_utf8), Field(max_length=128)]
TimeMs = Annotated[int, BeforeValidator(_time_ms, json_schema_input_type=str | int)]
CostMicro = Annotated[int, BeforeValidator(usd_micro, json_schema_input_type=str | float)]
Whole = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Budgets = Annotated[dict[str, int], BeforeValidator(_budgets, json_schema_input_type=dict[str, str | float])]


class _Model(BaseModel):
    """A null is a missing field."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and None in data.values():
            return {name: value for name, value in data.items() if value is not None}
        return data


class ToolCall(_Model):
    """One tool call. All calls of one turn are one multiset: siblings in parallel are not repeats."""

    name: Annotated[str, _bytes_max(256)]
    args: Any = None
    result: Any = None
    error: Any = None
    id: str | None = None
    retryable: bool = Field(False, description="the error is infrastructure trouble: trying again is right")


class TestReport(_Model):
    """A verifier's result: the ids of the failing tests, and how many passed and exist."""

    failed: list[str] = []
    passed: Whole | None = None
    total: Whole | None = None


class ErrorReport(_Model):
    """One thing that failed."""

    message: str
    class_: str = Field("", alias="class")
    retryable: bool = False


class UsageReport(_Model):
    """Measured spend of one turn."""

    input_tokens: Whole = 0
    output_tokens: Whole = 0
    cached_tokens: Whole = 0
    total_tokens: Whole = 0
    cost_usd: CostMicro | None = Field(None, description="USD as decimal text or number; kept in micro-USD")
    duration_ms: Annotated[int, BeforeValidator(lambda v: int(v) if isinstance(v, float) and v == v else v)] = Field(
        0, ge=0, le=2**53
    )


class RoutingDecision(_Model):
    """What a routing node chose."""

    next: str
    reason: str = ""


def _error_list(value: Any) -> Any:
    if isinstance(value, (str, Mapping)):
        value = [value]
    if not isinstance(value, list):
        return value
    return [{"message": item} if isinstance(item, str) else item for item in value]


class RawEvent(_Model):
    """Fields that every run-scoped input may carry. Scope is normally sent once, on ``run.started``."""

    type: str
    run_id: Key = Field(description="one execution of a workflow; the Kafka key")
    node: Annotated[str, _bytes_max(256)] = ""
    event_id: Annotated[str, AfterValidator(_utf8), _bytes_max(256)] = Field(
        "", description="the same id twice is one event"
    )
    at: TimeMs | None = Field(None, description="when it happened: RFC 3339, or epoch milliseconds")
    seq: Whole | None = Field(None, description="the publisher's own ordinal, for evidence only")
    workflow: ScopeName = ""
    tenant: ScopeName = ""
    user: ScopeName = ""
    tier: ScopeName = ""
    agent: ScopeName = ""
    task_id: ScopeName = ""
    session_id: ScopeName = ""
    parent_run_id: Annotated[str, _bytes_max(256)] = ""
    labels: dict[str, str] | None = Field(None, description="carried to the control event, never interpreted")

    @property
    def unknown(self) -> int:
        """How many fields nobody knows."""
        return len(self.model_extra or ())


class RawTurn(RawEvent):
    """What one node of a workflow did."""

    type: Literal["turn"] = "turn"
    node: Key = Field(description="the graph node (agent, role) that took the turn")
    from_: Annotated[str, _bytes_max(256)] = Field("", alias="from", description="whose output this turn took as input")
    output: str | None = Field(None, description="the final message of the turn")
    structured_output: Any = None
    artifact: str | dict[str, str] | None = Field(None, description="patch or file content left behind")
    docs: str | None = Field(None, description="Markdown left behind")
    tests: TestReport | None = None
    progress: dict[str, Number] | None = Field(None, description="any metric that should improve")
    errors: Annotated[list[ErrorReport], BeforeValidator(_error_list)] | None = None
    tool_calls: list[ToolCall] = []
    query: str | None = Field(None, description="what a research node was asked")
    decision: RoutingDecision | None = None
    round: Whole | None = None
    convergence: Annotated[float, Field(ge=0, le=1)] | None = None
    consensus: Annotated[float, Field(ge=0, le=1)] | None = None
    usage: UsageReport | None = None
    model: str = ""
    provider: str = ""


class RawRunStarted(RawEvent):
    """A run begins: its graph, its budgets, its scope."""

    type: Literal["run.started"] = "run.started"
    graph: dict[str, Any] | None = None
    budgets: Budgets | None = Field(None, description="limits of this run, such as maxSteps; money in USD")


class RawRunFinished(RawEvent):
    """A run ended by itself."""

    type: Literal["run.finished"] = "run.finished"
    status: str = ""


class RawUserMessage(RawEvent):
    """A person spoke."""

    type: Literal["user.message"] = "user.message"


class RawOperatorStop(RawEvent):
    """A person orders this run to stop."""

    type: Literal["operator.stop"] = "operator.stop"
    by: str = ""
    reason: str = ""


class RawNoted(RawEvent):
    """An event whose rules are not active in this version: accepted, kept in the log, and counted."""

    type: Literal[
        "turn.started", "task.created", "task.delegated", "task.transition", "task.verdict", "cycle.completed",
        "halt.acknowledged", "operator.resume", "deadline",
    ]  # fmt: skip


_KINDS: Final[dict[str, type[RawEvent]]] = {
    "turn": RawTurn,
    "run.started": RawRunStarted,
    "run.finished": RawRunFinished,
    "user.message": RawUserMessage,
    "operator.stop": RawOperatorStop,
} | dict.fromkeys(RawNoted.model_fields["type"].annotation.__args__, RawNoted)  # type: ignore[union-attr]

_REMEDIES: Final = {
    "missing": "add it",
    "string_type": "send text",
    "json_invalid": "send one JSON object a line",
}


class _Place:
    """How the parts of an error's location are joined."""

    SKIPPED: ClassVar[frozenset[str]] = frozenset({"str", "dict[str,str]", "list[ErrorReport]"})

    @classmethod
    def of(cls, loc: tuple[int | str, ...]) -> str:
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc if part not in cls.SKIPPED]
        return "".join(parts).lstrip(".") or "event"


def parse_raw(data: Any) -> RawEvent:
    """Check a raw input. Raises `InvalidEvent` that names every field at fault."""
    if not isinstance(data, Mapping):
        raise InvalidEvent(
            [Problem("event", f"expected a JSON object, got {type(data).__name__}", "send one object a line")]
        )
    kind = data.get("type") or "turn"
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        known = ", ".join(_KINDS)
        raise InvalidEvent([Problem("type", f"{kind!r} is not a known type", f"use one of {known}")])
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidEvent([_problem(item) for item in error.errors(include_url=False)]) from None


def parse_line(line: bytes | str) -> RawEvent:
    """Check one line of JSON. Raises `InvalidEvent`."""
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidEvent([Problem("event", f"not JSON: {error}", "send one JSON object a line, in UTF-8")]) from None
    return parse_raw(data)


def _problem(item: Any) -> Problem:
    got = item["input"]
    shown = "" if item["type"] == "missing" else f", got {_shorten(got)}"
    return Problem(
        _Place.of(item["loc"]), f"{item['msg'].removeprefix('Value error, ')}{shown}", _REMEDIES.get(item["type"], "")
    )


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}… ({type(value).__name__}, {len(text)} characters)"
