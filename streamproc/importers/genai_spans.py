"""Spans of OpenTelemetry as steps of a trace: which span is what, in each generation of the GenAI conventions, in
OpenInference, OpenLLMetry, Vercel's AI SDK and pydantic-ai.

Takes spans that are decoded already, from a file or from a request: it knows neither files nor encodings.
`trace_turns.turns_of` makes raw events of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from streamproc.importers import genai_names as names
from streamproc.importers.content import count, items, mapping, string
from streamproc.importers.genai_messages import (
    ModelAnswer,
    ModelInput,
    arguments,
    as_id,
    model_answer,
    model_input,
    unflattened,
)
from streamproc.importers.trace_steps import AGENT, CONTROL_FLOW, MODEL, QUERY, SCOPE, TOOL, Step, failed
from streamproc.model.expansion import parsed

ERROR_STATUS: Final = 2
SERVER_KIND: Final = 2  # the other side of a call that its client records, too
NS_PER_MS: Final = 1_000_000
CUT_LENGTHS: Final = frozenset(
    {2**power for power in range(7, 17)} | {1_000, 2_000, 4_000, 4_095, 5_000, 8_000, 10_000, 12_000, 32_000, 50_000}
)
"""Limits that SDKs and collectors set on attributes. A text of exactly such a length has been cut: two of them are
equal as far as they go, which is no evidence."""


class SpanEvent(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Mapping[str, Any]
    body: Any = None  # of a log record that belongs to the span


@dataclass(slots=True)
class SpanRecord:
    """A decoded span: ids in hex, times in nanoseconds since 1970, attributes as Python values."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    kind: int = 0  # as OTLP numbers them: 2 is a server's
    start_ns: int = 0
    end_ns: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    resource: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""  # the library that recorded it
    status: int = 0  # 2 is an error
    status_message: str = ""
    events: Sequence[SpanEvent] = ()
    links: Sequence[str] = ()  # trace ids
    number: int = 0  # its place in the log


def step_of(span: SpanRecord, run_by: Sequence[str] = ("conversation", "session")) -> Step:
    """Return a span as a step. `run_by` names what the run is, in order of preference: `conversation`, `session`; a
    trace that has neither is a run itself. The attribute `streamproc.run.id` comes before both."""
    attributes = span.attributes
    kind = kind_of(span)
    conversation, session = _text(attributes, names.CONVERSATION), _text(attributes, names.SESSION)
    by = {"conversation": conversation, "session": session}
    step = Step(kind, span.trace_id, span.span_id, span.parent_id, number=span.number, source=span.scope)
    step.start, step.end = span.start_ns // NS_PER_MS, span.end_ns // NS_PER_MS
    step.run = _text(attributes, names.RUN) or next((by[name] for name in run_by if by.get(name)), "")
    step.session = conversation if step.run != conversation and conversation else session
    scope = {**span.resource, **attributes}
    step.user, step.tenant = _text(scope, names.USER), _text(scope, names.TENANT)
    step.workflow = _text(scope, names.WORKFLOW)
    step.service = step.home = _named(_text(span.resource, (names.SERVICE,)))
    step.node = _text(attributes, names.ACTOR_NAME)
    if span.links and not span.parent_id:
        step.parent_run = next((link for link in span.links if link != span.trace_id), "")
    step.name = span.name
    if kind == AGENT:
        step.name = _text(attributes, names.AGENT_NAME) or _text(attributes, (names.ENTITY_NAME,))
        if not step.name and names.AI_OPERATION not in attributes:
            step.name = agent_name(span.name)
    elif kind == TOOL:
        _read_tool(step, span)
    elif kind == MODEL:
        _read_model(step, span)
    elif kind == QUERY:
        step.args = _text(attributes, names.QUERY) or None
    if span.status == ERROR_STATUS or (kind in (TOOL, MODEL) and _text(attributes, (names.ERROR_KIND,))):
        _read_failure(step, span)
    return step


def kind_of(span: SpanRecord) -> str:
    """Return what a span is: a model call, a tool call, a retrieval, an agent, or structure."""
    kind = kind_by_attributes(span.attributes, span.name)
    return SCOPE if span.kind == SERVER_KIND and kind in (MODEL, TOOL) else kind


def kind_by_attributes(attributes: Mapping[str, Any], name: str) -> str:
    """Return what attributes, or else the name of a span, say that it is."""
    operation = attributes.get(names.OPERATION)
    if isinstance(operation, str) and operation:
        return names.OPERATION_KINDS.get(operation, SCOPE)
    if attributes.get(names.MCP_METHOD) == "tools/call":
        return TOOL
    kind = string(attributes.get(names.OPENINFERENCE_KIND)).upper()
    if kind:
        return names.OPENINFERENCE_KINDS.get(kind, SCOPE)
    ai_operation = string(attributes.get(names.AI_OPERATION))
    if ai_operation or name.startswith("ai."):
        return _kind_of_ai_sdk(ai_operation or name)
    if names.TRACELOOP_KIND in attributes:
        return names.TRACELOOP_KINDS.get(string(attributes[names.TRACELOOP_KIND]), SCOPE)
    if _value(attributes, names.TOOL_NAME[:2]) is not None or name.startswith(("running tool:", "execute_tool ")):
        return TOOL
    if "agent_name" in attributes or name.startswith("invoke_agent"):
        return AGENT
    if string(attributes.get(names.REQUEST_KIND)) in names.REQUEST_KINDS:
        return MODEL
    return MODEL if _value(attributes, names.INPUT_TOKENS[:3]) is not None else SCOPE


def _kind_of_ai_sdk(operation: str) -> str:
    if operation == "ai.toolCall":
        return TOOL
    if operation in names.AI_AGENTS:
        return AGENT
    return MODEL if operation.endswith(names.AI_MODEL_ENDS) else SCOPE


def agent_name(span_name: str) -> str:
    """Return the name of an agent in that of its span."""
    return span_name.removeprefix("invoke_agent ").removesuffix(" run")


def is_known(span: SpanRecord) -> bool:
    """Whether a span belongs to an agent, even if it is only structure; HTTP and database calls do not."""
    return any(name.startswith(names.KNOWN_PREFIXES) for name in span.attributes) or any(
        event.name.startswith("gen_ai.") for event in span.events
    )


# Tools


def _read_tool(step: Step, span: SpanRecord) -> None:
    attributes = span.attributes
    named = _text(attributes, names.TOOL_NAME)
    step.name = named or span.name.removeprefix("execute_tool ").removeprefix("running tool: ")
    step.call_id = as_id(_value(attributes, names.CALL_ID))
    args = _value(attributes, names.ARGUMENTS)
    if not _is_cut(args):
        step.args = unwrapped_args(arguments(args))
    result = _value(attributes, names.RESULT)
    for event in span.events:
        if event.name in names.TOOL_EVENTS and result is None:
            result = event.attributes.get("content", mapping(event.body).get("content"))
    if result is None or _is_cut(result) or names.DEFERRED in attributes:
        return
    step.returns(_unwrapped_result(result))


def unwrapped_args(value: Any) -> Any:
    """Return the arguments that OpenLLMetry wraps in those of LangChain's callback, whose metadata vary."""
    found = mapping(value)
    if "input_str" in found and {"tags", "metadata", "inputs", "kwargs"} & found.keys():
        return found["inputs"] if found.get("inputs") is not None else arguments(found["input_str"])
    if found.keys() == {"parameters"} or found.keys() == {"input"}:
        return arguments(next(iter(found.values())))
    return value


def _unwrapped_result(value: Any) -> Any:
    """Return the result that is wrapped with arguments of a callback, or alone in `output`."""
    found = mapping(parsed(value))
    if "output" in found and found.keys() <= {"output", "kwargs"}:
        return found["output"]
    return found or value


# Models


def _read_model(step: Step, span: SpanRecord) -> None:
    attributes = span.attributes
    step.model, step.provider = _text(attributes, names.MODEL), _text(attributes, names.PROVIDER)
    step.response = _text(attributes, names.RESPONSE)
    ended = parsed(_value(attributes, names.ENDED))
    step.ended = string(ended[0] if isinstance(ended, list) and ended else ended)
    step.usage = usage_of(attributes)
    step.talks(_heard(span), _answer(span))


def usage_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage of a model call; cached tokens are among its input tokens."""
    found: dict[str, Any] = {name: count(_value(attributes, wanted)) for name, wanted in names.USAGE.items()}
    if found["cached_tokens"] > found["input_tokens"] > 0:  # counted beside the others, as Anthropic's API does
        found["input_tokens"] += found["cached_tokens"] + found["cache_write_tokens"]
    return found | {"cost_usd": _value(attributes, names.COST)}


def _answer(span: SpanRecord) -> ModelAnswer:
    """Return what the model said, from the first place that has it."""
    attributes = span.attributes
    for place in (*_answers(span), *(attributes.get(name) for name in names.PLAIN_OUTPUTS)):
        if place in (None, "", []) or _is_cut(place) or _is_broken(place):
            continue
        found = model_answer(place)
        if found.text or found.calls:
            return found
    return ModelAnswer("", [])


def _answers(span: SpanRecord) -> list[Any]:
    attributes = span.attributes
    places = _recorded(span, names.OUTPUT_MESSAGES, names.FLAT_OUTPUTS)
    calls = items(parsed(attributes.get(names.AI_CALLS)))
    if calls or names.AI_TEXT in attributes:
        places.append([{"role": "assistant", "content": attributes.get(names.AI_TEXT, ""), "tool_calls": calls}])
    places.append(attributes.get(names.AI_OBJECT))
    choices = [_content(event) for event in span.events if event.name in names.CHOICE_EVENTS]
    choices += [
        one for one in items(parsed(attributes.get(names.LOGFIRE_EVENTS))) if _event_name(one) in names.CHOICE_EVENTS
    ]
    return [*places, choices]


def _heard(span: SpanRecord) -> ModelInput:
    """Return what the model was told since its last answer."""
    attributes = span.attributes
    places = _recorded(span, names.INPUT_MESSAGES, names.FLAT_INPUTS)
    places += [attributes.get(name) for name in names.AI_PROMPT]
    messages = [_as_message(event.name, _content(event)) for event in span.events]
    messages += [
        _as_message(_event_name(one), mapping(one)) for one in items(parsed(attributes.get(names.LOGFIRE_EVENTS)))
    ]
    places.append([message for message in messages if message])
    for place in places:
        if place and not _is_broken(place):
            return model_input(place)
    return ModelInput({}, by_person=False)


def _recorded(span: SpanRecord, wanted: Sequence[str], prefixes: Sequence[str]) -> list[Any]:
    """Return the messages of attributes, of an event in place of these, and of attributes with numbers in names."""
    events = (event for event in span.events if event.name in names.DETAIL_EVENTS)
    places = [span.attributes, *({**event.attributes, **mapping(event.body)} for event in events)]
    return [*(_value(one, wanted) for one in places), *(unflattened(span.attributes, one) for one in prefixes)]


def _as_message(name: str, content: Any) -> dict[str, Any]:
    for kinds, role in (
        (names.TOOL_EVENTS, "tool"), (names.USER_EVENTS, "user"), (names.ANSWER_EVENTS, "assistant"),
    ):  # fmt: skip
        if name in kinds:
            return {**mapping(content), "role": role}
    return {}


def _event_name(event: Any) -> str:
    return string(mapping(event).get("event.name"))


def _content(event: SpanEvent) -> Any:
    """Return the content of an event: its attributes, some of which are JSON texts, or the body of its record."""
    found = {**{name: parsed(value) for name, value in event.attributes.items()}, **mapping(event.body)}
    return found.get("gen_ai.completion") or found.get("gen_ai.event.content") or found


# Failures


def _read_failure(step: Step, span: SpanRecord) -> None:
    if names.DEFERRED in span.attributes:
        return
    message, kind = span.status_message, _text(span.attributes, (names.ERROR_KIND,))
    for event in span.events:
        if event.name == "exception":
            message = message or string(event.attributes.get("exception.message"))
            kind = kind or string(event.attributes.get("exception.type"))
            if CONTROL_FLOW.match(string(event.attributes.get("exception.type"))):
                return
    failed(step, message, kind)


# Values


def _value(attributes: Mapping[str, Any], wanted: Sequence[str]) -> Any:
    for name in wanted:
        found = attributes.get(name)
        if found is not None and found not in ("", names.REDACTED):
            return found
    return None


def _text(attributes: Mapping[str, Any], wanted: Sequence[str]) -> str:
    found = _value(attributes, wanted)
    return found if isinstance(found, str) else ""


def _named(service: str) -> str:
    return "" if service.startswith(names.UNNAMED_SERVICE) else service


def _is_cut(value: Any) -> bool:
    """Whether an attribute was cut at a limit: a text of exactly that length that is no whole JSON value."""
    if not isinstance(value, str) or len(value) not in CUT_LENGTHS:
        return False
    return isinstance(parsed(value), str)


def _is_broken(messages: Any) -> bool:
    """Whether messages in JSON were cut anywhere."""
    return isinstance(messages, str) and messages.startswith(('[{"', '{"')) and isinstance(parsed(messages), str)
