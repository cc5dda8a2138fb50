"""What a user hands us, as types: raw turns and the other run-scoped inputs, checked at the edge.

Only ``run_id`` and ``node`` are required of a turn; a missing field is "no evidence", never "no progress". Unknown
fields are ignored and counted (`RawEvent.unknown`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from streamproc.budgets import budget_value, find_budget, usd_micro
from streamproc.errors import InvalidEvent, Problem, shown

EPOCH_MS_MIN: Final = 946_684_800_000  # the year 2000: smaller numbers are seconds, or not times at all
EPOCH_MS_MAX: Final = 4_102_444_800_000  # the year 2100
DEPTH_MAX: Final = 100  # levels of nesting; the JSON libraries give up at 250 to 1 000, each at its own
FIELD_REMEDY: Final = "send what is expected, or leave the field out"


class _Mistake(ValueError):
    """What is wrong with a value (or with one `part` of it), and what to do."""

    def __init__(self, what: str, remedy: str = FIELD_REMEDY, part: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy
        self.part = part


def _bytes_max(limit: int) -> AfterValidator:
    def check(value: str) -> str:
        if len(value) * 4 > limit and len(value.encode("utf-8", "surrogatepass")) > limit:
            raise _Mistake(f"longer than {limit} bytes", "send a shorter name, such as a hash of this one")
        return value

    return AfterValidator(check)


def _utf8(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Mistake("not valid Unicode text", "send text that can be written in UTF-8") from None
    return value


TIME_REMEDY: Final = "send RFC 3339, such as 2026-01-31T12:00:00Z, or epoch milliseconds"


def _time_ms(value: Any) -> int:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise _Mistake("not a time", TIME_REMEDY) from None
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Mistake("not a time", TIME_REMEDY)
    if not EPOCH_MS_MIN <= value <= EPOCH_MS_MAX:
        raise _Mistake("outside the years 2000 to 2100", "send milliseconds since 1970, not seconds; or RFC 3339")
    return int(value)


def _budgets(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise _Mistake("expected an object of budget names and numbers")
    found = {}
    for name, amount in value.items():
        if amount is None:
            continue
        try:
            budget = find_budget(str(name))
            number = budget_value(budget, amount)
        except KeyError as error:
            what, _, remedy = str(error.args[0]).partition("; ")
            raise _Mistake(what, remedy, str(name)) from None
        except ValueError as error:
            raise _Mistake(str(error), part=str(name)) from None
        found[budget.name] = number if budget.ceiling is None else min(number, budget.ceiling)
    return found


GRANTED: Final = {"turns": "maxSteps", "iterations": "maxCycleIterations", "cost": "maxCostUsd", "rounds": "maxRounds"}


def _grant(value: Any) -> dict[str, int]:
    if isinstance(value, Mapping):
        value = {GRANTED.get(str(name), str(name)): amount for name, amount in value.items()}
    return _budgets(value)


def _whole_ms(value: Any) -> Any:
    return int(value) if isinstance(value, float) and isfinite(value) else value


def _sendable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise _Mistake(f"not JSON: {error}", "send JSON values only") from None
    return value


def _without_nulls(data: Any) -> Any:
    if isinstance(data, Mapping) and any(value is None for value in data.values()):
        return {name: value for name, value in data.items() if value is not None}
    return data


Name = Annotated[str, AfterValidator(_utf8), _bytes_max(256)]
Key = Annotated[Name, Field(min_length=1)]
ScopeName = Annotated[str, AfterValidator(_utf8), Field(max_length=128)]
Text = Annotated[str, AfterValidator(_utf8)]
TimeMs = Annotated[int, BeforeValidator(_time_ms, json_schema_input_type=str | int)]
CostMicro = Annotated[int, BeforeValidator(usd_micro, json_schema_input_type=str | float)]
Whole = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Metrics = Annotated[dict[ScopeName, Number], BeforeValidator(_without_nulls, json_schema_input_type=dict[str, float])]
Labels = Annotated[dict[Text, Text], BeforeValidator(_without_nulls, json_schema_input_type=dict[str, str])]
Files = Annotated[dict[str, str], BeforeValidator(_without_nulls, json_schema_input_type=dict[str, str])]
Object = Annotated[dict[str, Any], AfterValidator(_sendable)]
Budgets = Annotated[dict[str, int], BeforeValidator(_budgets, json_schema_input_type=dict[str, str | float])]
Grant = Annotated[dict[str, int], BeforeValidator(_grant, json_schema_input_type=dict[str, str | float])]


class _Model(BaseModel):
    """A null is a missing field."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_missing(cls, data: Any) -> Any:
        return _without_nulls(data)


class ToolCall(_Model):
    """One tool call. All calls of one turn are one multiset: siblings in parallel are not repeats."""

    name: Name
    args: Any = None
    result: Any = None
    error: Any = None
    id: str | None = None
    retryable: bool = Field(False, description="the error is infrastructure trouble: trying again is right")


class TestReport(_Model):
    """A verifier's result: the ids of the failing tests, and how many passed and exist."""

    failed: list[str] | None = Field(None, description="ids of the failing tests; an empty list: none fails")
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
    duration_ms: Annotated[Whole, BeforeValidator(_whole_ms, json_schema_input_type=float)] = 0


class RoutingDecision(_Model):
    """What a routing node chose."""

    next: Name
    reason: str = ""


def _error_list(value: Any) -> Any:
    if isinstance(value, (str, Mapping)):
        value = [value]
    if not isinstance(value, (list, tuple)):
        return value
    return [{"message": item} if isinstance(item, str) else item for item in value]


Failed = list[ErrorReport | str] | ErrorReport | str  # what `errors` may be; one alone is a list of one


class RawEvent(_Model):
    """Fields that every run-scoped input may carry. Scope is normally sent once, on ``run.started``."""

    type: str
    run_id: Key = Field(description="one execution of a workflow; the Kafka key")
    node: Name = ""
    event_id: Name = Field("", description="the same id twice is one event")
    at: TimeMs | None = Field(None, description="when it happened: RFC 3339, or epoch milliseconds")
    seq: Whole | None = Field(None, description="the publisher's own ordinal, for evidence only")
    workflow: ScopeName = ""
    tenant: ScopeName = ""
    user: ScopeName = ""
    tier: ScopeName = ""
    agent: ScopeName = ""
    task_id: ScopeName = ""
    session_id: ScopeName = ""
    parent_run_id: Name = ""
    labels: Labels | None = Field(None, description="carried to the control event, never interpreted")

    @property
    def unknown(self) -> int:
        """How many fields nobody knows."""
        return len(self.model_extra or ())


class RawTurn(RawEvent):
    """What one node of a workflow did."""

    type: Literal["turn"] = "turn"
    node: Key = Field(description="the graph node (agent, role) that took the turn")
    from_: Name = Field("", alias="from", description="whose output this turn took as input")
    output: str | None = Field(None, description="the final message of the turn")
    structured_output: Any = None
    artifact: str | Files | None = Field(None, description="patch or file content left behind")
    docs: str | None = Field(None, description="Markdown left behind")
    tests: TestReport | None = None
    progress: Metrics | None = Field(None, description="any metric that should improve")
    errors: Annotated[list[ErrorReport], BeforeValidator(_error_list, json_schema_input_type=Failed)] | None = None
    tool_calls: list[ToolCall] = []
    query: str | None = Field(None, description="what a research node was asked")
    decision: RoutingDecision | None = None
    round: Whole | None = None
    convergence: Annotated[float, Field(ge=0, le=1)] | None = None
    consensus: Annotated[float, Field(ge=0, le=1)] | None = None
    usage: UsageReport | None = None
    model: Name = ""
    provider: Name = ""


class RawRunStarted(RawEvent):
    """A run begins: its graph, its budgets, its scope."""

    type: Literal["run.started"] = "run.started"
    graph: Object | None = None
    budgets: Budgets | None = Field(None, description="limits of this run, such as maxSteps; money in USD")


class RawRunFinished(RawEvent):
    """A run ended by itself."""

    type: Literal["run.finished"] = "run.finished"
    status: Text = ""


class RawUserMessage(RawEvent):
    """A person spoke."""

    type: Literal["user.message"] = "user.message"


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
    grant: Grant = Field({}, description="how much is added to budgets, by their names, or turns, iterations, cost")


class RawHaltAcknowledged(RawEvent):
    """Somebody has taken note of a run's halt, and takes care of it."""

    type: Literal["halt.acknowledged"] = "halt.acknowledged"
    by: Text = ""
    reason: Text = ""


class RawNoted(RawEvent):
    """An event whose rules are not active in this version: accepted, kept in the log, and counted."""

    type: Literal[
        "turn.started", "task.created", "task.delegated", "task.transition", "task.verdict", "cycle.completed",
        "deadline",
    ]  # fmt: skip

    @model_validator(mode="after")
    def _extra_is_json(self) -> RawNoted:
        _sendable(self.model_extra or {})
        return self


_KINDS: Final[dict[str, type[RawEvent]]] = {
    "turn": RawTurn,
    "run.started": RawRunStarted,
    "run.finished": RawRunFinished,
    "user.message": RawUserMessage,
    "operator.stop": RawOperatorStop,
    "operator.resume": RawOperatorResume,
    "halt.acknowledged": RawHaltAcknowledged,
} | dict.fromkeys(RawNoted.model_fields["type"].annotation.__args__, RawNoted)  # type: ignore[union-attr]

_REMEDIES: Final = {
    "missing": "add it",
    "string_type": "send text",
    "string_too_short": "give it a name",
    "string_too_long": "send a shorter name, such as a hash of this one",
    "list_type": "send a list",
    "dict_type": "send an object",
    "model_type": "send an object",
    "model_attributes_type": "send an object",
    "int_type": "send a whole number",
    "int_from_float": "send a whole number",
    "finite_number": "send a finite number, or leave the field out",
}


def _place(loc: tuple[int | str, ...]) -> str:
    """Where in an event an error stands, without pydantic's own words for the branches of a union."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc if not _is_branch(part)]
    return "".join(parts).lstrip(".") or "event"


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and (part == "str" or part.startswith(("function-", "dict[", "list[")))


def parse_raw(data: Any) -> RawEvent:
    """Check a raw input. Raises `InvalidEvent` that names every field at fault."""
    if not isinstance(data, Mapping):
        what = f"expected a JSON object, got {type(data).__name__}"
        raise InvalidEvent([Problem("event", what, "send one object a line")])
    kind = data.get("type")
    model = _KINDS.get("turn" if kind is None else kind) if kind is None or isinstance(kind, str) else None
    if model is None:
        raise InvalidEvent([Problem("type", f"{shown(kind)} is not a known type", f"use one of {', '.join(_KINDS)}")])
    deep = [str(name) for name, value in data.items() if _depth_exceeds(value, DEPTH_MAX)]
    if deep:
        what, remedy = f"nested deeper than {DEPTH_MAX} levels", "send it as text, or leave it out"
        raise InvalidEvent([Problem(name, what, remedy) for name in deep])
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


def _depth_exceeds(value: Any, levels: int) -> bool:
    """Level by level and without recursion; each container of a level once, so that cycles end, too."""
    level = [value] if isinstance(value, (dict, list, tuple)) else []
    for _ in range(levels):
        if not level:
            return False
        inner = {
            id(child): child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list, tuple))
        }
        level = list(inner.values())
    return bool(level)


def _problem(item: Any) -> Problem:
    mistake = item.get("ctx", {}).get("error")
    what = item["msg"].removeprefix("Value error, ")
    if item["type"] != "missing" and ", got " not in what:
        what = f"{what}, got {shown(item['input'])}"
    if not isinstance(mistake, _Mistake):
        return Problem(_place(item["loc"]), what, _REMEDIES.get(item["type"], FIELD_REMEDY))
    return Problem(_place((*item["loc"], mistake.part) if mistake.part else item["loc"]), what, mistake.remedy)
