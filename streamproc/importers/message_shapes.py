"""Chat messages of OpenAI (Chat Completions, Responses), Anthropic and LangChain, brought to one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streamproc.importers.content import at_path, count, first_text, items, mapping, string, text_of
from streamproc.importers.fitting import seconds
from streamproc.model.expansion import parsed

ASSISTANT: Final = "assistant"
USER: Final = "user"
TOOL: Final = "tool"
SILENT: Final = "system"  # messages that are part of no turn

ROLES: Final = {
    "assistant": ASSISTANT, "ai": ASSISTANT, "AIMessageChunk": ASSISTANT, "model": ASSISTANT,
    "user": USER, "human": USER, "HumanMessageChunk": USER,
    "tool": TOOL, "function": TOOL, "ToolMessageChunk": TOOL, "FunctionMessageChunk": TOOL,
    "system": SILENT, "developer": SILENT, "SystemMessageChunk": SILENT, "remove": SILENT,
}  # fmt: skip
LANGCHAIN_CLASSES: Final = {
    "AIMessage": ASSISTANT, "AIMessageChunk": ASSISTANT, "HumanMessage": USER, "HumanMessageChunk": USER,
    "ToolMessage": TOOL, "ToolMessageChunk": TOOL, "FunctionMessage": TOOL, "FunctionMessageChunk": TOOL,
    "SystemMessage": SILENT, "SystemMessageChunk": SILENT, "RemoveMessage": SILENT,
}  # fmt: skip
CALL_ITEMS: Final = ("function_call", "custom_tool_call")  # of OpenAI's Responses API
RESULT_ITEMS: Final = ("function_call_output", "custom_tool_call_output")
SILENT_ITEMS: Final = ("reasoning", "item_reference")
# Blocks in which OpenAI, Anthropic and LangChain repeat calls, or show reasoning: no part of the text.
UNSPOKEN: Final = ("thinking", "redacted_thinking", "reasoning", "tool_use", "tool_call", "function_call")


@dataclass(slots=True)
class Result:
    """What a tool returned."""

    call_id: str
    text: str
    failed: bool = False
    name: str = ""


@dataclass(slots=True)
class ChatMessage:
    """A message, whichever library wrote it."""

    role: str  # ASSISTANT, USER, TOOL, SILENT; "" if it is unknown
    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    is_item: bool = False  # one of several items that are one response (Responses API)
    fields: dict[str, Any] = field(default_factory=dict)  # of the turn: at, model, node, usage


def looks_like_message(row: Any) -> bool:
    """Whether a row is a chat message of any of the shapes."""
    if not isinstance(row, dict):
        return False
    if isinstance(row.get("role"), str) and row["role"] in ROLES:
        return any(key in row for key in ("content", "tool_calls", "function_call"))
    kind = row.get("type")
    if kind == "constructor":
        return _constructed_role(row) != ""
    if kind in CALL_ITEMS or kind in RESULT_ITEMS:
        return "call_id" in row
    if not isinstance(kind, str) or "sessionId" in row:  # records of Claude Code have such types, too
        return False
    return kind in ROLES and ("content" in row or "content" in mapping(row.get("data")))


def read_message(row: dict[str, Any]) -> ChatMessage:
    """Return a row as a message. Its role is empty if it is none."""
    kind = row.get("type")
    if kind == "constructor":
        return _read(mapping(row.get("kwargs")), _constructed_role(row))
    if kind in CALL_ITEMS:
        arguments = row.get("arguments") if "arguments" in row else row.get("input")
        call = {"name": row.get("name"), "id": string(row.get("call_id")), "args": parsed(arguments)}
        return ChatMessage(ASSISTANT, calls=[call], is_item=True)
    if kind in RESULT_ITEMS:
        return ChatMessage(TOOL, results=[Result(string(row.get("call_id")), text_of(row.get("output")))])
    if kind in SILENT_ITEMS:
        return ChatMessage(SILENT)
    if isinstance(row.get("role"), str):
        message = _read(row, ROLES.get(row["role"], ""))
        # A whole response of Anthropic has this type, too, and its reason to stop.
        message.is_item = kind == "message" and message.role == ASSISTANT and "stop_reason" not in row
        return message
    inner = row["data"] if isinstance(row.get("data"), dict) else row
    return _read(inner, ROLES.get(string(kind), ""))


def _constructed_role(row: dict[str, Any]) -> str:
    path = row.get("id")
    return LANGCHAIN_CLASSES.get(string(path[-1]), "") if isinstance(path, list) and path else ""


def _read(row: dict[str, Any], role: str) -> ChatMessage:
    if role not in (ASSISTANT, USER, TOOL):
        return ChatMessage(role)
    blocks = [block for block in items(row.get("content")) if isinstance(block, dict)]
    message = ChatMessage(role, _text(row.get("content")), fields=_fields(row))
    if role == TOOL:
        failed = row.get("status") == "error" or row.get("is_error") is True
        call_id = string(row.get("tool_call_id"))
        message.results.append(Result(call_id, message.text, failed, string(row.get("name"))))
        return message
    message.calls = _calls(row, blocks) if role == ASSISTANT else []
    message.results = [_result(block) for block in blocks if _is(block, "tool_result")]
    if role == ASSISTANT and not message.text:
        message.text = string(row.get("refusal"))
    return message


def _is(block: dict[str, Any], kind: str) -> bool:
    """Whether a block is of a kind, or one of Anthropic's own tools: `server_tool_use`, `web_search_tool_result`."""
    return string(block.get("type")).endswith(kind)


def _text(content: Any) -> str:
    if not isinstance(content, list):
        return text_of(content)
    spoken = [
        block
        for block in content
        if not isinstance(block, dict)
        or not (block.get("type") in UNSPOKEN or _is(block, "tool_result") or _is(block, "tool_use"))
    ]
    return text_of(spoken)


def _calls(row: dict[str, Any], blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of a message. LangChain keeps them three times: `tool_calls`, blocks, `additional_kwargs`."""
    made = [*items(row.get("tool_calls")), *items(row.get("invalid_tool_calls"))]
    listed = [_call(call) for call in made if isinstance(call, dict)]
    in_blocks = [
        {"name": block.get("name"), "id": string(block.get("id")), "args": block.get("input")}
        for block in blocks
        if _is(block, "tool_use")
    ]
    # Calls that the model's own service answers stand only in blocks.
    ids = {call["id"] for call in listed}
    found = listed + [call for call in in_blocks if not listed or call["id"] not in ids]
    if found:
        return found
    if isinstance(row.get("function_call"), dict):  # the older form of OpenAI
        return [_call(row["function_call"])]
    return [_call(call) for call in items(at_path(row, "additional_kwargs.tool_calls")) if isinstance(call, dict)]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = mapping(call.get("function")) or mapping(call.get("custom")) or call
    args = next((function[key] for key in ("arguments", "args", "input", "parameters") if key in function), None)
    return {"name": function.get("name"), "id": string(call.get("id")), "args": parsed(args)}


def _result(block: dict[str, Any]) -> Result:
    content = block.get("content")
    if isinstance(content, list):  # found pages have a title and an address, and their text encrypted
        content = [
            f"{string(part.get('title'))} {string(part.get('url'))}" if "url" in mapping(part) else part
            for part in content
        ]
    failed = block.get("is_error") is True or "error_code" in mapping(content)
    return Result(string(block.get("tool_use_id")), text_of(content), failed)


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    at = next((row[key] for key in ("timestamp", "created_at", "created") if key in row), None)
    return {
        "at": at if isinstance(at, str) else seconds(at),
        "node": string(row.get("name")) if row.get("role", "ai") in ("assistant", "ai") else "",
        "model": first_text(row, "model", "response_metadata.model_name", "response_metadata.model"),
        "provider": first_text(row, "response_metadata.model_provider"),
        "usage": _usage(mapping(row.get("usage_metadata")) or mapping(row.get("usage")), row),
    }


def _usage(usage: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return what a response spent. Anthropic counts input tokens without those of the cache."""
    details = [
        mapping(usage.get(key)) for key in ("prompt_tokens_details", "input_tokens_details", "input_token_details")
    ]
    cached, written = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    beside = cached + written if "prompt_tokens" not in usage else 0
    return {
        "input_tokens": count(usage.get("prompt_tokens") or usage.get("input_tokens")) + beside,
        "output_tokens": count(usage.get("completion_tokens") or usage.get("output_tokens")),
        "cached_tokens": cached or max(count(one.get("cached_tokens") or one.get("cache_read")) for one in details),
        "cache_write_tokens": written,
        "cost_usd": row.get("cost_usd"),
    }
