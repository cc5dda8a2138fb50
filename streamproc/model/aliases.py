"""Names that other tools use for the fields of a turn, so you can send their records unchanged.

The canonical name always wins. An alias with the same value as the canonical field is dropped, as nothing is lost. An
alias that cannot be used stays in the event as an unknown field: the canonical field has another value, or the alias's
own value does not fit. Such a field is counted and shown (`streamproc.model.unknown_fields`); only strict mode refuses
it. If two aliases of one field are given, the first in the table wins by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from streamproc.model.budgets import INTEGER_MAX, usd_micro
from streamproc.model.nesting import CONTAINERS_MAX, DEPTH_MAX, containers_exceed, depth_exceeds

PARTS_MAX: Final = 1_000  # of a message, or fields of a function; a longer list is left as it is, and refused

UNFIT: Final = object()
"""Returned by `Alias.read` for a value that cannot be the field's."""


class Alias(NamedTuple):
    """Another name of a field: how its value is read, and which tools use the name."""

    name: str
    field: str
    read: Callable[[Any], Any]
    source: str


def _unchanged(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else UNFIT


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool) else UNFIT


def _tokens(value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if number and 0 <= value <= INTEGER_MAX and value == int(value) else UNFIT


def _whole(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else UNFIT


def _share(value: Any) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1 else UNFIT


def _usd(value: Any) -> Any:
    try:
        usd_micro(value)
    except ValueError:
        return UNFIT
    return value


def _arguments(value: Any) -> Any:
    """Read a text that holds a JSON object, as OpenAI sends arguments. Return any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("{") or containers_exceed(value, CONTAINERS_MAX):
        return value
    try:
        parsed = orjson.loads(value)
    except ValueError:
        return value
    return value if depth_exceeds(parsed, DEPTH_MAX - 2) else parsed


def _object(value: Any) -> Any:
    return value if isinstance(value, Mapping) else UNFIT


def _calls(value: Any) -> Any:
    """Accept a list whose items all name a tool."""
    if not isinstance(value, (list, tuple)):
        return UNFIT
    named = all(isinstance(item, Mapping) and not CALL_NAMES.isdisjoint(item) for item in value)
    return value if named else UNFIT


CALL_NAMES: Final = frozenset({"name", "toolName", "tool_name", "tool", "function"})

TURN_ALIASES: Final = (
    Alias("content", "output", _text, "OpenAI, Anthropic, LangChain messages: a text, or a list of parts"),
    Alias("toolCalls", "tool_calls", _calls, "Vercel AI SDK"),
    Alias("usage_metadata", "usage", _object, "LangChain, Gemini SDK"),
    Alias("usageMetadata", "usage", _object, "Gemini REST"),
    Alias("round_number", "round", _whole, "states of LangGraph deliberations"),
    Alias("convergence_score", "convergence", _share, "states of LangGraph deliberations"),
    Alias("subscription_tier", "tier", _text, "states of LangGraph deliberations"),
    Alias("finish_reason", "stop_reason", _text, "OpenAI Chat Completions, LiteLLM, Mistral"),
    Alias("finishReason", "stop_reason", _text, "Gemini, Vercel AI SDK"),
    Alias("stopReason", "stop_reason", _text, "Bedrock"),
)

COMPACTION_ALIASES: Final = (
    Alias("preTokens", "before_tokens", _tokens, "Claude Code"),
    Alias("postTokens", "after_tokens", _tokens, "Claude Code"),
    Alias("pre_tokens", "before_tokens", _tokens, "Claude Agent SDK"),
    Alias("post_tokens", "after_tokens", _tokens, "Claude Agent SDK"),
)

STARTED_ALIASES: Final = (Alias("subscription_tier", "tier", _text, "states of LangGraph deliberations"),)

TOOL_CALL_ALIASES: Final = (
    Alias("function.name", "name", _text, "OpenAI Chat Completions"),
    Alias("tool_name", "name", _text, "OpenInference, Pydantic AI"),
    Alias("toolName", "name", _text, "Vercel AI SDK"),
    Alias("tool", "name", _text, "LangChain AgentAction"),
    Alias("function", "name", _text, "Inspect"),
    Alias("arguments", "args", _arguments, "OpenAI Responses, MCP, Inspect"),
    Alias("function.arguments", "args", _arguments, "OpenAI Chat Completions"),
    Alias("input", "args", _unchanged, "Anthropic, Vercel AI SDK 5"),
    Alias("parameters", "args", _unchanged, "Cohere, Llama"),
    Alias("output", "result", _unchanged, "OpenAI Responses, Vercel AI SDK 5"),
    Alias("function.output", "result", _unchanged, "OpenAI Assistants"),
    Alias("content", "result", _unchanged, "OpenAI tool messages, Anthropic tool_result, MCP"),
    Alias("is_error", "error", _flag, "Anthropic"),
    Alias("isError", "error", _flag, "MCP"),
    Alias("call_id", "id", _text, "OpenAI Responses"),
    Alias("tool_call_id", "id", _text, "OpenAI tool messages, LangChain"),
    Alias("tool_use_id", "id", _text, "Anthropic"),
    Alias("toolCallId", "id", _text, "Vercel AI SDK"),
)

ERROR_ALIASES: Final = (
    Alias("type", "class", _text, "OpenAI, Anthropic"),
    Alias("error_type", "class", _text, "OpenTelemetry error.type"),
    Alias("error_class", "class", _text, "Ruby and Java loggers"),
)

USAGE_ALIASES: Final = (
    Alias("prompt_tokens", "input_tokens", _tokens, "OpenAI Chat Completions, LiteLLM, LangSmith"),
    Alias("completion_tokens", "output_tokens", _tokens, "OpenAI Chat Completions, LiteLLM, LangSmith"),
    Alias("inputTokens", "input_tokens", _tokens, "Bedrock, Vercel AI SDK 5"),
    Alias("outputTokens", "output_tokens", _tokens, "Bedrock, Vercel AI SDK 5"),
    Alias("totalTokens", "total_tokens", _tokens, "Bedrock, Vercel AI SDK"),
    Alias("promptTokens", "input_tokens", _tokens, "Vercel AI SDK 4"),
    Alias("completionTokens", "output_tokens", _tokens, "Vercel AI SDK 4"),
    Alias("prompt_token_count", "input_tokens", _tokens, "Gemini SDK"),
    Alias("candidates_token_count", "output_tokens", _tokens, "Gemini SDK"),
    Alias("total_token_count", "total_tokens", _tokens, "Gemini SDK"),
    Alias("promptTokenCount", "input_tokens", _tokens, "Gemini REST"),
    Alias("candidatesTokenCount", "output_tokens", _tokens, "Gemini REST"),
    Alias("totalTokenCount", "total_tokens", _tokens, "Gemini REST"),
    Alias("input", "input_tokens", _tokens, "Langfuse"),
    Alias("output", "output_tokens", _tokens, "Langfuse"),
    Alias("total", "total_tokens", _tokens, "Langfuse"),
    Alias("cache_read_input_tokens", "cached_tokens", _tokens, "Anthropic"),
    Alias("cacheReadInputTokens", "cached_tokens", _tokens, "Bedrock"),
    Alias("cache_creation_input_tokens", "cache_write_tokens", _tokens, "Anthropic"),
    Alias("cacheWriteInputTokens", "cache_write_tokens", _tokens, "Bedrock"),
    Alias("input_token_details.cache_creation", "cache_write_tokens", _tokens, "LangChain"),
    Alias("prompt_tokens_details.cached_tokens", "cached_tokens", _tokens, "OpenAI Chat Completions"),
    Alias("input_tokens_details.cached_tokens", "cached_tokens", _tokens, "OpenAI Responses"),
    Alias("input_token_details.cache_read", "cached_tokens", _tokens, "LangChain"),
    Alias("cached_input_tokens", "cached_tokens", _tokens, "Codex"),
    Alias("cachedInputTokens", "cached_tokens", _tokens, "Vercel AI SDK 5"),
    Alias("cached_content_token_count", "cached_tokens", _tokens, "Gemini SDK"),
    Alias("cachedContentTokenCount", "cached_tokens", _tokens, "Gemini REST"),
    Alias("total_cost_usd", "cost_usd", _usd, "Claude Code"),
    Alias("total_cost", "cost_usd", _usd, "LangSmith, LangChain's OpenAI callback: USD by their documentation"),
)

CALL_KINDS: Final = frozenset({"function", "function_call", "tool_call", "tool-call", "tool_use"})
"""Values of a tool call's ``type`` that say only that it is a tool call."""

TEXT_PARTS: Final = frozenset({"text", "output_text"})

BREAKDOWNS: Final = (
    "prompt_tokens_details", "completion_tokens_details", "input_tokens_details", "output_tokens_details",
    "input_token_details", "output_token_details",
)  # fmt: skip
"""Objects that split up token counts of the same usage. Only their cached tokens are read."""

NOT_MEASURED: Final = frozenset({"service_tier", "server_tool_use", "cache_creation"})
"""Fields of Anthropic's usage that no rule measures."""

CACHE_PARTS: Final = (
    ("input_tokens", ("cache_read_input_tokens", "cache_creation_input_tokens")),
    ("inputTokens", ("cacheReadInputTokens", "cacheWriteInputTokens")),
)
"""Anthropic and Bedrock do not include tokens read from or written to the cache in their input tokens."""


TOKENS: Final = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")


def rename(data: Mapping[Any, Any], aliases: tuple[Alias, ...]) -> dict[Any, Any]:
    """Return the fields under their canonical names. An alias that cannot be used keeps its name."""
    found = dict(data)
    for alias in aliases:
        if alias.name not in found:
            continue
        value = alias.read(found[alias.name])
        if value is UNFIT:
            continue
        # pydantic accepts `class_`, the Python name of `class`, as well
        given = next((name for name in (alias.field, f"{alias.field}_") if name in found), None)
        if given is None:
            found[alias.field] = value
        elif not _same(found[given], value):
            continue
        del found[alias.name]
    return found


def rename_turn(data: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a turn's fields under their canonical names; the text parts of ``content`` are joined.

    Parts of other types, such as ``tool_use``, become unknown fields, such as ``content.tool_use``.
    """
    found = dict(data)
    content = found.get("content")
    parts = list(content) if isinstance(content, (list, tuple)) and len(content) <= PARTS_MAX else []
    kinds = [_part_kind(part) for part in parts]
    if parts and None not in kinds:
        del found["content"]
        texts = [part if isinstance(part, str) else part["text"] for part, kind in zip(parts, kinds, strict=True)
                 if kind in TEXT_PARTS]  # fmt: skip
        if texts:
            found["content"] = "\n".join(texts)
        found.update({f"content.{kind}": True for kind in kinds if kind not in TEXT_PARTS})
    return rename(found, TURN_ALIASES)


def _part_kind(part: Any) -> str | None:
    """Return the type of a content part; None if the value is not a content part."""
    if isinstance(part, str):
        return "text"
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or (kind in TEXT_PARTS and not isinstance(part.get("text"), str)):
        return None
    return kind


def rename_tool_call(data: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a tool call's fields under their canonical names, including those in OpenAI's nested ``function``."""
    found = dict(data)
    kind = found.get("type")
    if isinstance(kind, str) and kind in CALL_KINDS:
        del found["type"]
    function = found.get("function")
    if isinstance(function, Mapping) and len(function) <= PARTS_MAX:
        del found["function"]
        found |= {f"function.{name}": value for name, value in function.items() if value is not None}
    if found.get("error"):
        for flag in ("is_error", "isError"):
            if found.get(flag) is True:
                del found[flag]  # `error` has this information
    return rename(found, TOOL_CALL_ALIASES)


def rename_usage(data: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a usage's fields under their canonical names; ``input_tokens`` then includes the cached ones."""
    found = {name: value for name, value in data.items() if name not in NOT_MEASURED}
    for name in BREAKDOWNS:
        if isinstance(found.get(name), Mapping):
            inner = found.pop(name)
            found |= {
                f"{name}.{part}": inner[part]
                for part in ("cached_tokens", "cache_read", "cache_creation")
                if inner.get(part) is not None
            }
    for total, parts in CACHE_PARTS:
        counts = [_tokens(found[name]) for name in (total, *parts) if name in found]
        if total in found and UNFIT not in counts and sum(counts) <= INTEGER_MAX:
            found[total] = sum(counts)
    return rename(found, USAGE_ALIASES)


def as_error(item: Any) -> Any:
    """Return an error as an object. One that gives only its class has that for its message."""
    if isinstance(item, str):
        return {"message": item}
    if not isinstance(item, Mapping) or item.get("message") is not None:
        return item
    given = (item.get(name) for name in ("class", "class_", *(alias.name for alias in ERROR_ALIASES)))
    return next(({**item, "message": name} for name in given if isinstance(name, str) and name), item)


def tokens_in(usage: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the numbers of tokens of a usage under their canonical names, without those that are 0, which may stand
    beside another name for the same."""
    told = {name: value for name, value in usage.items() if value}
    if "prompt_tokens" not in told and not told.keys().isdisjoint(CACHE_PARTS[0][1]):
        told.setdefault("input_tokens", 0)  # Anthropic leaves out those of the cache
    found = rename_usage(told)
    return {name: found[name] for name in TOKENS if found.get(name)}


def _same(one: Any, other: Any) -> bool:
    try:
        return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # Python objects in one process: not JSON
        return one is other
