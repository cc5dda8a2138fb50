"""What a model said and was told, in the shapes in which traces hold messages.

Read are the message parts of the GenAI conventions, Chat Completions and Responses of OpenAI, content blocks of
Anthropic, contents of Gemini, messages of LangChain, and attributes that are flattened into names with numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from streamproc.fingerprint.requests import request_of
from streamproc.importers.content import at_path, items, mapping, string, text_of
from streamproc.model.expansion import parsed

DEPTH_MAX: Final = 12  # levels of messages in messages; deeper ones are not read
LITERAL_CHARACTERS_MAX: Final = 100_000  # of Python source that is parsed as a value
# What a value consists of, as Python shows it. Sums and calls are none, and a parser takes 50 ms for a long one.
LITERAL: Final = re.compile(
    r"""(?s)(?:[\s,:\[\](){}]++|[bBrRuU]{0,2}(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
    r"""|(?<![\w.)'"])-?+\d[\w.]*+(?:[+-]\d[\w.]*+){0,3}|True|False|None)++"""
)
FLAT_LEVELS_MAX: Final = 12

# Parts and items that are neither text of the model nor calls that the program executes.
SILENT_KINDS: Final = frozenset({
    "blob", "file", "function_call_output", "image", "image_url", "input_image", "reasoning", "redacted_thinking",
    "server_tool_call", "server_tool_call_response", "server_tool_use", "thinking", "tool_call_response",
    "tool_result", "uri", "web_search_tool_result",
})  # fmt: skip
CALL_KINDS: Final = frozenset({"function_call", "tool_call", "tool-call", "tool_use"})
ANSWER_KINDS: Final = frozenset({"function_call_output", "tool", "tool_call_response", "tool-result", "tool_result"})
MESSAGE_RESULTS: Final = ("content", "output")
PART_RESULTS: Final = ("response", "result", "content", "output")
OTHER_ROLES: Final = frozenset({"developer", "function", "human", "system", "tool", "user"})
TEXT_KINDS: Final = ("text", "input_text")
SYSTEM_ROLES: Final = frozenset({"developer", "system"})
ASKING_ROLES: Final = frozenset({"human", "user"})
SPEAKING_ROLES: Final = frozenset({"ai", "assistant", "model"})
# In this order: a wrapper is opened before what is beside it.
WRAPPERS: Final = (
    "kwargs", "message", "message_content", "generations", "choices", "candidates", "messages", "response",
    "output", "contents", "content", "parts", "text",
)  # fmt: skip
MESSAGE_KEYS: Final = frozenset({*WRAPPERS, "role", "tool_calls", "toolCalls", "additional_kwargs", "function_call"})


class ModelAnswer(NamedTuple):
    """What a model answered."""

    text: str
    calls: list[dict[str, Any]]  # name, args, id


class ModelInput(NamedTuple):
    """What came after the model's last answer in its input."""

    answers: dict[str, Any]  # results by the id of their call
    by_person: bool  # whether the last message is a person's
    request: str = ""  # digest of the last message of a person or program; without any, of the system prompt
    prompt: str = ""  # that message, if it is a text


def model_answer(value: Any) -> ModelAnswer:
    """Return the text and the calls of a model's answer, in any of the known shapes."""
    value = parsed(value)
    texts: list[str] = []
    calls: dict[str, dict[str, Any]] = {}
    _collect(value, texts, calls, 0)
    text = "\n".join(part for part in texts if part)
    if not text and not calls and isinstance(value, dict) and value and not MESSAGE_KEYS & value.keys():
        text = text_of([value])  # structured output
    return ModelAnswer(text, list(calls.values()))


def _collect(value: Any, texts: list[str], calls: dict[str, dict[str, Any]], depth: int) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif depth < DEPTH_MAX and isinstance(value, list):
        for item in value:
            _collect(item, texts, calls, depth + 1)
    elif depth < DEPTH_MAX and isinstance(value, dict):
        _collect_message(value, texts, calls, depth + 1)


def _collect_message(value: dict[str, Any], texts: list[str], calls: dict[str, dict[str, Any]], depth: int) -> None:
    kind, role = string(value.get("type")), string(value.get("role"))
    if kind in SILENT_KINDS or role in OTHER_ROLES or kind in OTHER_ROLES:
        return
    call = call_of(value)
    if call is not None:
        calls.setdefault(call["id"] or f"#{len(calls)}", call)
        return
    listed = value.get("tool_calls") or value.get("toolCalls") or at_path(value, "additional_kwargs.tool_calls")
    for one in items(listed):
        found = call_of(mapping(at_path(one, "tool_call")) or mapping(one))
        if found is not None:
            calls.setdefault(found["id"] or f"#{len(calls)}", found)
    for key in WRAPPERS:
        inner = value.get(key)
        if not isinstance(inner, (str, list, dict)) or not inner:
            continue
        if key == "messages" and isinstance(inner, list):
            inner = inner[-1:]
        _collect(inner, texts, calls, depth)
        if texts or calls or key in ("content", "contents", "parts"):
            break  # `text` beside `message`, as LangChain writes it, says the same again


def call_of(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the name, arguments and id of a call; None for what is no call."""
    for key in ("function_call", "functionCall", "toolUse"):
        if isinstance(value.get(key), dict):
            value = {**value[key], "type": "function_call"}
            break
    function = mapping(value.get("function"))
    kind = value.get("type")
    name = function.get("name") or value.get("toolName") or value.get("name")
    plain = kind is None and "name" in value and bool({"args", "arguments"} & value.keys())
    marked = string(kind) in CALL_KINDS or function or "toolName" in value or plain
    if not marked or not isinstance(name, str) or not name:
        return None
    places = ((source, key) for source in (function, value) for key in ("arguments", "args", "input"))
    args = next((source[key] for source, key in places if source.get(key) is not None), None)
    call_id = value.get("call_id") or value.get("toolCallId") or value.get("toolUseId") or value.get("id")
    return {"name": name, "args": arguments(args), "id": as_id(call_id)}


def as_id(value: Any) -> str:
    """Return an id as text: some frameworks give a list, others a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "/".join(map(as_id, value))
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def arguments(value: Any) -> Any:
    """Return arguments as a value: they come as JSON text, as a Python literal, or as they are."""
    found = parsed(value)
    if not isinstance(found, str) or found[:1] not in ("{", "[", "(") or len(found) > LITERAL_CHARACTERS_MAX:
        return found
    if not LITERAL.fullmatch(found):
        return found
    try:
        literal = ast.literal_eval(found)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return found
    return _as_json(literal, 0)


def _as_json(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        return str(type(value).__name__)
    if isinstance(value, dict):
        return {str(key): _as_json(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(inner, depth + 1) for inner in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else repr(value)


def model_input(value: Any) -> ModelInput:
    """Return the results of tools after the model's last answer, and whether a person wrote the last message."""
    messages = parsed(value)
    if isinstance(messages, dict):
        messages = messages.get("messages") or messages.get("input") or messages.get("contents") or [messages]
    messages = items(messages)
    if len(messages) == 1 and isinstance(messages[0], list):
        messages = messages[0]  # LangChain: a list of prompts
    answers: dict[str, Any] = {}
    by_person: bool | None = None
    asked: Any = None
    system = ""
    is_new = True
    for message in reversed(messages):
        found = _unwrapped(message)
        role = string(found.get("role")) or string(found.get("type"))
        if role in SPEAKING_ROLES or (role in CALL_KINDS and call_of(found) is not None):
            is_new = False  # the model has answered since
        results = list(_answers(found))
        if is_new:
            for call_id, result in reversed(results):
                answers.setdefault(call_id, result)
            if by_person is None:
                by_person = role in ASKING_ROLES and not results
        if role in ASKING_ROLES and not results and asked is None:
            asked = _plain(found.get("content") or found.get("parts"))
        elif role in SYSTEM_ROLES:
            system = text_of(found.get("content") or found.get("parts")) or system
    if asked is None:
        asked = system  # beside a question it may keep notes, which are others at each step
    prompt = asked if isinstance(asked, str) else ""
    return ModelInput(answers, bool(by_person), request_of(asked) or "", prompt)


def _plain(content: Any) -> Any:
    """Return content that is nothing but text as a text, however an instrumentation writes it."""
    blocks = items(content)
    return text_of(blocks) if blocks and all(mapping(one).get("type") in TEXT_KINDS for one in blocks) else content


def _unwrapped(message: Any) -> dict[str, Any]:
    """Return a message without what is around it: LangChain writes it as `kwargs` of its class, or as `data`."""
    found = mapping(message)
    inner = mapping(found.get("message")) or mapping(found.get("kwargs"))
    if not inner and found.keys() == {"type", "data"}:
        inner = mapping(found["data"])
    if not inner:
        return found
    kind = items(found.get("id"))[-1:]  # LangChain: the path of the message's class
    role = str(kind[0]).removesuffix("Chunk").removesuffix("Message").lower() if kind else None
    return {"role": role, **inner} if "role" not in inner and "type" not in inner else inner


def _answers(message: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    role = string(message.get("role")) or string(message.get("type"))
    call_id = as_id(message.get("tool_call_id") or message.get("call_id") or message.get("id"))
    answers = role in ("tool", "function", "function_call_output") and not items(message.get("parts"))
    if answers and call_id and _is_told(message, MESSAGE_RESULTS):
        yield call_id, result_of(_first(message, MESSAGE_RESULTS))
    for part in [*items(message.get("parts")), *items(message.get("content"))]:
        if isinstance(part, dict) and string(part.get("type")) in ANSWER_KINDS:
            part_id = as_id(
                part.get("id") or part.get("tool_call_id") or part.get("tool_use_id") or part.get("toolCallId")
            )
            if part_id and _is_told(part, PART_RESULTS):
                yield part_id, result_of(_first(part, PART_RESULTS))


def _is_told(found: Mapping[str, Any], keys: Iterable[str]) -> bool:
    """Whether a message or part has a result: where content is not recorded, the ids of calls still are, and all of
    them would look alike. Only Anthropic leaves out the content of a tool that returned nothing."""
    return found.get("type") == "tool_result" or any(key in found for key in keys)


def _first(found: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((found[key] for key in keys if found.get(key) is not None), "")


def result_of(value: Any) -> Any:
    """Return a result for comparison: content blocks as text, and JSON text as its value, so that equal results are
    equal however an instrumentation writes them. The text of a tool that returned nothing is empty."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        value = parsed(value)
    if isinstance(value, list) and value and all(_is_block(item) for item in value):
        return text_of(value)
    return "" if value is None else value


def _is_block(item: Any) -> bool:
    return (
        isinstance(item, dict) and isinstance(item.get("type"), str) and bool({"text", "source", "data"} & item.keys())
    )


def unflattened(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the list that attributes such as `gen_ai.completion.0.content` hold under a prefix such as
    `gen_ai.completion.`; empty if there are none."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        *path, last = name[len(prefix) :].split(".", FLAT_LEVELS_MAX)
        node = tree
        for part in path:
            inner = node.get(part)
            if not isinstance(inner, dict):
                inner = node[part] = {}
            node = inner
        node.setdefault(last, value)
    return items(_listed(tree)) if tree else []


def _listed(node: Any) -> Any:
    """Return a tree with lists in place of mappings whose names are all numbers."""
    if not isinstance(node, dict):
        return node
    found = {name: _listed(inner) for name, inner in node.items()}
    if found and all(name.isascii() and name.isdigit() for name in found):
        return [found[name] for name in sorted(found, key=int)]
    return found


def call_id_in(message: Any) -> str:
    """Return the id of the call that a tool's message answers; empty if it has none."""
    return as_id(_unwrapped(message).get("tool_call_id"))


def tool_message(value: Any) -> tuple[Any, bool]:
    """Return the content of a tool's message (LangChain, MCP) and whether it reports a failure; other values as they
    are."""
    found = _unwrapped(value)
    if "isError" in found or ("content" in found and (found.get("type") == "tool" or "tool_call_id" in found)):
        failed = found.get("isError") is True or string(found.get("status")) == "error"
        return result_of(found.get("content")), failed
    return result_of(value), False
