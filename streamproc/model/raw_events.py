"""Raw turns and the other raw events that users send, validated where they enter.

A turn requires only ``run_id`` and ``node``. A missing field is "no evidence", never "no progress". Names that other
tools use are accepted (`streamproc.model.aliases`). Other unknown fields are ignored and listed
(`RawEvent.unknown_fields`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import orjson
from pydantic import BeforeValidator, Field, ValidationError

from streamproc.errors import InvalidEvent, Problem, shown
from streamproc.model.aliases import (
    COMPACTION_ALIASES,
    ERROR_ALIASES,
    STARTED_ALIASES,
    TOOL_CALL_ALIASES,
    TURN_ALIASES,
    USAGE_ALIASES,
    as_error,
    rename_tool_call,
    rename_turn,
    rename_usage,
)
from streamproc.model.board_events import (
    RawBoardEvent,
    RawCycleCompleted,
    RawDecisionRecorded,
    RawTaskCreated,
    RawTaskDelegated,
    RawTaskTransition,
    RawTaskVerdict,
)
from streamproc.model.nesting import (
    CONTAINERS_MAX,
    DEPTH_MAX,
    SCALARS,
    VALUES_MAX,
    containers_exceed,
    count_exceeds,
    depth_exceeds,
)
from streamproc.model.operator_events import RawFeedback, RawHaltAcknowledged, RawOperatorResume, RawOperatorStop
from streamproc.model.raw_fields import (
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    FIELD_REMEDY,
    FIELDS_MAX,
    Budgets,
    CostMicro,
    Files,
    Graph,
    Key,
    Metrics,
    Mistake,
    Model,
    Name,
    RawEvent,
    ScopeName,
    Text,
    TimeMs,
    Whole,
    whole_ms,
)
from streamproc.model.redaction import redact_name, redact_text
from streamproc.model.review_findings import Findings, ReviewFinding

__all__ = [
    "DEPTH_MAX", "EPOCH_MS_MAX", "EPOCH_MS_MIN", "ErrorReport", "RawContextCompacted", "RawCycleCompleted",
    "RawDecisionRecorded", "RawEvent", "RawFeedback", "RawHaltAcknowledged", "RawOperatorResume", "RawOperatorStop",
    "RawRunContinued", "RawRunFinished", "RawRunStarted", "RawTaskCreated", "RawTaskDelegated", "RawTaskTransition",
    "RawTaskVerdict", "RawTurn", "RawUserMessage", "RoutingDecision", "TestReport", "TimeMs", "ToolCall",
    "UsageReport", "parse_line", "parse_raw", "read_json",
]  # fmt: skip

CALLS_MAX: Final = 1_000  # of one turn; parallel calls are dozens
TESTS_MAX: Final = 20_000  # ids of failing tests: a full event of ordinary ids
ERRORS_MAX: Final = 1_000  # of one turn; further ones are not read
PROBLEMS_MAX: Final = 100  # of one event that are reported; the first ones show what is wrong

Retryable = Annotated[
    bool | None,
    Field(description="whether a retry is right, as after an infrastructure failure; default: the text decides"),
]


class ToolCall(Model):
    """One tool call. The calls of one turn are a multiset: parallel siblings are not repeats."""

    name: Name
    args: Any = Field(None, description="the arguments; also accepted as arguments, input or parameters")
    result: Any = Field(None, description="what the tool returned; also accepted as output or content")
    error: Any = Field(None, description="why the call failed; true if the result says why")
    id: str | None = Field(None, description="the call's id at the model's API; not interpreted")
    retryable: Retryable = None

    aliases: ClassVar = TOOL_CALL_ALIASES
    renamed: ClassVar = staticmethod(rename_tool_call)


class TestReport(Model):
    """A verifier's result: ids of the failing tests, and how many tests passed and exist."""

    failed: list[str] | None = Field(
        None, max_length=TESTS_MAX, description="ids of the failing tests; empty if none fails"
    )
    passed: Whole | None = None
    total: Whole | None = None


class ErrorReport(Model):
    """One error of a turn."""

    message: str
    class_: str = Field("", alias="class")
    retryable: Retryable = None

    aliases: ClassVar = ERROR_ALIASES


class UsageReport(Model):
    """Measured spend of one turn. The usage names of model APIs are accepted, too."""

    input_tokens: Whole = Field(0, description="tokens sent to the model, including cached ones")
    output_tokens: Whole = 0
    cached_tokens: Whole = Field(0, description="how many of the input tokens were read from a cache")
    total_tokens: Whole = 0
    cost_usd: CostMicro | None = Field(None, description="USD as decimal text or number; kept in micro-USD")
    duration_ms: Annotated[Whole, BeforeValidator(whole_ms, json_schema_input_type=float)] = 0
    cache_write_tokens: Whole = Field(0, description="how many of the input tokens were written to a cache")

    aliases: ClassVar = USAGE_ALIASES
    renamed: ClassVar = staticmethod(rename_usage)


class RoutingDecision(Model):
    """The decision of a routing node."""

    next: Name
    reason: str = ""


ROUNDING: Final = 1e-6  # of a similarity
SECONDS_MAX: Final = 1_000_000  # that a provider may ask to wait: eleven days


def _error_list(value: Any) -> Any:
    if isinstance(value, (str, Mapping)):
        value = [value]
    if not isinstance(value, (list, tuple)):
        return value
    return [as_error(item) for item in value[:ERRORS_MAX]]


def _cosine(value: Any) -> Any:
    """Return the similarity of two vectors as a share: rounding takes a cosine past 1, opposites have one below 0."""
    if type(value) is float and -1 <= value <= 1 + ROUNDING:
        return min(max(value, 0.0), 1.0)
    return value


ErrorsInput = list[ErrorReport | str] | ErrorReport | str  # a single error counts as a list of one


class RawTurn(RawEvent):
    """One turn: what one node of a workflow did."""

    type: Literal["turn"] = "turn"
    node: Key = Field(description="the graph node (agent, role) that took the turn")
    from_: Name = Field("", alias="from", description="the node whose output this turn took as input")
    output: str | None = Field(None, description="the final message of the turn; also accepted as content")
    structured_output: Any = None
    artifact: str | Files | None = Field(None, description="the patch or file content that the turn produced")
    docs: str | None = Field(None, description="Markdown that the turn produced")
    tests: TestReport | None = None
    progress: Metrics | None = Field(None, description="metrics that should improve")
    errors: Annotated[list[ErrorReport], BeforeValidator(_error_list, json_schema_input_type=ErrorsInput)] | None = None
    tool_calls: list[ToolCall] = Field([], max_length=CALLS_MAX)
    query: str | None = Field(None, description="the question of a research node")
    request: Any = Field(
        None, description="what this turn answers, such as a prompt or an item, without the conversation before it"
    )
    decision: RoutingDecision | None = None
    round: Whole | None = None
    convergence: Annotated[float, BeforeValidator(_cosine), Field(ge=0, le=1)] | None = None
    consensus: Annotated[float, Field(ge=0, le=1)] | None = None
    usage: UsageReport | None = None
    model: Name = ""
    provider: Name = ""
    stop_reason: Name = Field("", description="why the model's answer ended, in the word of its API; or empty")
    findings: Findings | None = Field(None, description="of a review: all that are open; [] says that there are none")

    aliases: ClassVar = TURN_ALIASES
    parts: ClassVar = {
        "tool_calls": ToolCall, "errors": ErrorReport, "usage": UsageReport, "tests": TestReport,
        "decision": RoutingDecision, "findings": ReviewFinding,
    }  # fmt: skip
    renamed: ClassVar = staticmethod(rename_turn)


class RawRunStarted(RawEvent):
    """A run starts, with its graph, budgets and scope. With `parent_run_id`, another run has started it."""

    type: Literal["run.started"] = "run.started"
    graph: Graph | None = None
    budgets: Budgets | None = Field(None, description="limits of this run, such as maxSteps; money in USD")
    prompt: str | None = Field(None, description="what the run is asked to do; only hashes of it are sent")

    aliases: ClassVar = STARTED_ALIASES


class RawRunFinished(RawEvent):
    """A run ended by itself."""

    type: Literal["run.finished"] = "run.finished"
    status: Text = ""


class RawUserMessage(RawEvent):
    """A person sent a message."""

    type: Literal["user.message"] = "user.message"


class RawContextCompacted(RawEvent):
    """The context of an agent was compacted: a summary stands for what it has read and said so far."""

    type: Literal["context.compacted"] = "context.compacted"
    trigger: ScopeName = Field("", description="auto or manual, or another word of the tool")
    before_tokens: Whole | None = Field(None, description="size of the context before")
    after_tokens: Whole | None = Field(None, description="size of the context after")

    aliases: ClassVar = COMPACTION_ALIASES


class RawRunContinued(RawEvent):
    """A run was about to stop and was sent on, not by a person: by a Stop hook, or a gate that it did not pass."""

    type: Literal["run.continued"] = "run.continued"
    by: ScopeName = Field("", description="what sent it on, such as Stop hook")
    reason: str | None = Field(None, description="what it was told; only hashes of it are sent")


class RawTurnStarted(RawEvent):
    """A node starts a turn. The turn's clock runs until a turn of this node (and `task_id`) ends."""

    type: Literal["turn.started"] = "turn.started"


def _seconds_ms(value: Any) -> Any:
    """Return seconds, as a number or as the text of a header, in milliseconds."""
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= SECONDS_MAX:
        raise Mistake("not a number of seconds", f"send 0 to {SECONDS_MAX}, or leave it out if the header is a date")
    return int(seconds * 1000)


class RawModelCalled(RawEvent):
    """A call of a model that is no turn, such as one that failed; or (`waits`) a caller that waits for its provider."""

    type: Literal["model.called"] = "model.called"
    model: Name = ""
    provider: Name = ""
    status: Annotated[int, Field(ge=100, le=999)] | None = Field(None, description="HTTP status of the answer")
    error: str | None = Field(None, description="why the call failed; only its class and kind leave the process")
    error_class: Name = Field("", description="name of the error, such as APITimeoutError")
    retryable: Retryable = None
    retry_after: Annotated[int, BeforeValidator(_seconds_ms, json_schema_input_type=float)] = Field(
        0, description="seconds that the provider asks to wait, from its header retry-after"
    )
    duration_ms: Annotated[Whole, BeforeValidator(whole_ms, json_schema_input_type=float)] = 0
    permit: ScopeName = Field("", description="id under which the caller waited, if it did")
    waits: bool = False


class RawDeadline(RawEvent):
    """Log time has reached a deadline and an expected event is missing. Published by workers."""

    type: Literal["deadline"] = "deadline"
    about: ScopeName = Field("", description="code of the detector that set the deadline")
    since_at: TimeMs | None = Field(None, description="start of the wait")
    due_at: TimeMs | None = Field(None, description="when the event was due")


RAW_KINDS: Final[dict[str, type[RawEvent]]] = {
    model.model_fields["type"].default: model
    for model in (
        RawTurn, RawRunStarted, RawRunFinished, RawUserMessage, RawOperatorStop, RawOperatorResume, RawHaltAcknowledged,
        RawFeedback, RawTurnStarted, RawDeadline, RawTaskCreated, RawTaskDelegated, RawTaskTransition, RawTaskVerdict,
        RawCycleCompleted, RawDecisionRecorded, RawContextCompacted, RawRunContinued, RawModelCalled,
    )
}  # fmt: skip

_REMEDIES: Final = {
    "missing": "add it",
    "string_type": "send text",
    "string_too_short": "send a name",
    "string_too_long": "send a shorter name, such as a hash of this one",
    "too_long": "send fewer, or send the rest in further events",
    "list_type": "send a list",
    "dict_type": "send an object",
    "model_type": "send an object",
    "model_attributes_type": "send an object",
    "int_type": "send a whole number",
    "int_from_float": "send a whole number",
    "finite_number": "send a finite number, or leave the field out",
}


def _place(loc: tuple[int | str, ...]) -> str:
    """Return the path of an error in an event, without pydantic's names for the branches of a union."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc if not _is_branch(part)]
    return redact_name("".join(parts).lstrip(".")) or "event"


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and (part == "str" or part.startswith(("function-", "dict[", "list[")))


def parse_raw(data: Any) -> RawEvent:
    """Validate a raw event. Raises `InvalidEvent` with a problem for every bad field."""
    if not isinstance(data, Mapping):
        what = f"expected a JSON object, got {type(data).__name__}"
        raise InvalidEvent([Problem("event", what, "send one JSON object per event")])
    kind = data.get("type")
    model = RAW_KINDS.get("turn" if kind is None else kind) if kind is None or isinstance(kind, str) else None
    if model is None:
        what, remedy = f"{shown(kind)} is not a known type", f"use one of {', '.join(RAW_KINDS)}"
        raise InvalidEvent([Problem("type", what, remedy)])
    if len(data) > FIELDS_MAX:
        what, remedy = f"{len(data)} fields, more than {FIELDS_MAX}", "send other data in labels, or leave it out"
        raise InvalidEvent([Problem("event", what, remedy)])
    if issubclass(model, RawBoardEvent) and count_exceeds(dict(data), VALUES_MAX):
        what, remedy = f"more than {VALUES_MAX} values", "send several events, and reports without their details"
        raise InvalidEvent([Problem("event", what, remedy)])
    parts = [(name, value) for name, value in data.items() if type(value) not in SCALARS]
    deep = [str(name) for name, value in parts if depth_exceeds(value, DEPTH_MAX)]
    if deep:
        what, remedy = f"nested deeper than {DEPTH_MAX} levels", "send it as text, or leave it out"
        raise InvalidEvent([Problem(name or "event", what, remedy) for name in deep])
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)[:PROBLEMS_MAX]
        raise InvalidEvent([_misspelt(item, data) or _problem(item) for item in found]) from None


def parse_line(line: bytes | str) -> RawEvent:
    """Validate one line of JSON. Raises `InvalidEvent`."""
    return parse_raw(read_json(line))


def read_json(line: bytes | str) -> Any:
    """Parse one line of JSON. Raises `InvalidEvent` if it is none, or has too many lists and objects."""
    if containers_exceed(line, CONTAINERS_MAX):
        what, remedy = f"more than {CONTAINERS_MAX} lists and objects", "send parts of it as text, or leave them out"
        raise InvalidEvent([Problem("event", what, remedy)])
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        what = f"not JSON at column {error.colno}: {error.msg}" if error.lineno == 1 else f"not JSON: {error}"
        raise InvalidEvent([Problem("event", what, "send one JSON object a line, in UTF-8")]) from None


def _misspelt(item: Any, data: Mapping[str, Any]) -> Problem | None:
    """Return the problem of a required field that is missing, and that another field looks like."""
    if item["type"] != "missing" or len(item["loc"]) != 1:
        return None
    field = str(item["loc"][0])
    other = next((name for name in data if _plain_name(name) == _plain_name(field)), None)
    if other is None:
        return None
    return Problem(field, "missing", f"the event has {redact_name(str(other))}: call it {field}")


def _plain_name(name: object) -> str:
    return str(name).lower().replace("_", "").replace("-", "")


def _problem(item: Any) -> Problem:
    mistake = item.get("ctx", {}).get("error")
    what = "missing" if item["type"] == "missing" else redact_text(item["msg"].removeprefix("Value error, "))
    if item["type"] != "missing" and ", got " not in what:
        what = f"{what}, got {shown(item['input'])}"
    if not isinstance(mistake, Mistake):
        return Problem(_place(item["loc"]), what, _REMEDIES.get(item["type"], FIELD_REMEDY))
    return Problem(_place((*item["loc"], mistake.part) if mistake.part else item["loc"]), what, mistake.remedy)
