"""What requests to a model say about tools, and what its answers say: OpenAI Chat and Responses, Anthropic Messages.
Of AutoGen it reads requests.

A request carries the results of the last tool calls and, but for stored conversations, the calls that they answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from streamproc.fingerprint.reviews import stop_reason
from streamproc.model.aliases import tokens_in

TEXTS = ("text", "input_text", "output_text", "refusal")


class RequestedCall(NamedTuple):
    """A tool call: the arguments as JSON text or as an object."""

    id: str
    name: str
    args: Any


class CallResult(NamedTuple):
    """What a tool returned; `call` is what it answers, if the request has it, and `said` the text beside that call. A
    result is `new` if the model has not answered since."""

    call_id: str
    content: Any
    failed: bool
    call: RequestedCall | None
    new: bool = True
    said: str = ""


SILENT: Final = frozenset({"text", "thinking", "redacted_thinking"})  # parts of an answer that may be empty


class Reply(NamedTuple):
    """What a model answered."""

    text: str
    calls: list[RequestedCall]
    usage: dict[str, int]
    model: str
    ended: str = ""  # why it ended, if not as usual (`streamproc.model.wire`)

    def fields(self) -> dict[str, str]:
        """Return the field of its turn that says why it ended."""
        return {"stop_reason": self.ended} if self.ended else {}


def as_dict(item: Any) -> Mapping[str, Any]:
    """Return a part of a message, which is a mapping or one of the SDK's models, as a mapping."""
    if isinstance(item, Mapping):
        return item
    dumped = item.model_dump(exclude_none=True) if hasattr(item, "model_dump") else {}
    return dumped if isinstance(dumped, Mapping) else {}


def parts(content: Any) -> list[Mapping[str, Any]]:
    """Return the parts of a message's content; a text has none."""
    return [] if isinstance(content, str) or not isinstance(content, Iterable) else [as_dict(one) for one in content]


def text_of(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get(part["type"], part.get("text")) or "") for part in parts(content) if _is_text(part))


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") in TEXTS and ("text" in part or "refusal" in part)


def asked_of(request: Mapping[str, Any]) -> tuple[Any, str]:
    """Return what a request asks: the content of the last message of a person or program, and the system prompt."""
    last: Any = None
    told = [text_of(request.get("system")), text_of(request.get("instructions"))]
    messages = request.get("messages", request.get("input"))
    for message in [{"role": "user", "content": messages}] if isinstance(messages, str) else parts(messages):
        role, content = message.get("role") or message.get("type"), message.get("content")
        if role in ("system", "developer", "SystemMessage"):
            told.append(text_of(content))
        elif role in ("user", "UserMessage") and not any(part.get("type") == "tool_result" for part in parts(content)):
            last = content if isinstance(content, str) else parts(content)
    return last, "\n".join(filter(None, told))


def results(request: Mapping[str, Any]) -> list[CallResult]:
    """Return every tool result of a request, in order."""
    calls: dict[str, RequestedCall] = {}
    said: dict[str, str] = {}
    found: list[CallResult] = []
    for message in parts(request.get("messages", request.get("input"))):
        asked = {call.id: call for call in calls_of(message)}
        if asked or message.get("role") == "assistant" or message.get("type") == "AssistantMessage":
            found = [result._replace(new=False) for result in found]
        calls |= asked
        said |= dict.fromkeys(asked, text_of(message.get("content")))
        found += [
            result._replace(call=calls.get(result.call_id), said=said.get(result.call_id, ""))
            for result in _results_of(message)
        ]
    return found


def _results_of(message: Mapping[str, Any]) -> Iterator[CallResult]:
    if message.get("role") == "tool":
        yield CallResult(str(message.get("tool_call_id")), _content(message.get("content")), False, None)
    elif str(message.get("type", "")).endswith("_output"):  # Responses: of functions, custom tools, shells …
        call_id = str(message.get("call_id") or message.get("id"))
        yield CallResult(call_id, _content(message.get("output")), message.get("status") == "failed", None)
    for part in parts(message.get("content")):
        if message.get("type") == "FunctionExecutionResultMessage":  # AutoGen
            yield CallResult(str(part.get("call_id")), part.get("content"), bool(part.get("is_error")), None)
        elif part.get("type") == "tool_result":
            yield CallResult(
                str(part.get("tool_use_id")), _content(part.get("content")), bool(part.get("is_error")), None
            )


def calls_of(message: Mapping[str, Any]) -> Iterator[RequestedCall]:
    """Yield the tool calls of a message or item. Those that the API executes itself have their results in it."""
    for part in parts(message.get("tool_calls")):
        tool = part.get("function") or part.get("custom") or {}
        yield RequestedCall(str(part.get("id")), str(tool.get("name") or "?"), tool.get("arguments", tool.get("input")))
    kind = str(message.get("type", ""))
    if kind.endswith("_call") and message.get("call_id"):
        args = message.get("arguments", message.get("input", message.get("action")))
        yield RequestedCall(str(message["call_id"]), str(message.get("name") or kind.removesuffix("_call")), args)
    for part in parts(message.get("content")):
        if kind == "AssistantMessage":  # AutoGen
            yield RequestedCall(str(part.get("id")), str(part.get("name") or "?"), part.get("arguments"))
        elif part.get("type") == "tool_use":
            yield RequestedCall(str(part.get("id")), str(part.get("name") or "?"), part.get("input"))


def _content(content: Any) -> Any:
    """Return the content of a result: its text, if it is nothing but text; else its parts."""
    if isinstance(content, str) or content is None:
        return content
    if all(_is_text(part) for part in parts(content)):
        return text_of(content)
    return [dict(part) for part in parts(content)]


def reply(response: Any) -> Reply | None:
    """Return what a response of one of the three APIs says; None for anything else."""
    found = as_dict(response)
    usage, model = usage_of(found.get("usage")), str(found.get("model") or "")
    if "choices" in found:
        choice = next(iter(parts(found["choices"])), {})
        message = as_dict(choice.get("message") or {})
        said, calls = text_of(message.get("content") or ""), list(calls_of(message))
        other = any(message.get(name) for name in ("content", "refusal", "audio", "images", "function_call"))
        ended = stop_reason(str(choice.get("finish_reason") or ""), is_empty=not calls and not said and not other)
        return Reply(said, calls, usage, model, ended)
    if "output" in found:
        items = parts(found["output"])
        said = "".join(text_of(item.get("content")) for item in items if item.get("type") == "message")
        word = as_dict(found.get("incomplete_details") or {}).get("reason") or found.get("status") or ""
        is_empty = not said and all(item.get("type") in ("reasoning", "message") for item in items)
        ended = stop_reason(str(word), is_empty=is_empty)
        return Reply(said, [call for item in items for call in calls_of(item)], usage, model, ended)
    if "content" in found:
        is_empty = not text_of(found["content"]) and {part.get("type") for part in parts(found["content"])} <= SILENT
        ended = stop_reason(str(found.get("stop_reason") or ""), is_empty=is_empty)
        return Reply(text_of(found["content"]), list(calls_of(found)), usage, model, ended)
    return None


def usage_of(found: Any) -> dict[str, int]:
    """Return tokens as we count them: what a cache held is a part of the input, as at OpenAI and not at Anthropic."""
    return tokens_in(as_dict(found))


def told(request: Mapping[str, Any], sentence: str) -> dict[str, Any]:
    """Return a request that also tells the model a sentence. The caller's messages stay as they are."""
    name = "messages" if "messages" in request else "input"
    found = request.get(name)
    if isinstance(found, str):
        return {**request, name: [{"role": "user", "content": found}, {"role": "user", "content": sentence}]}
    messages = list(found or ())
    last = as_dict(messages[-1]) if messages else {}
    if any(part.get("type") == "tool_result" for part in parts(last.get("content"))):  # Anthropic: roles take turns
        content = [*last["content"], {"type": "text", "text": sentence}]
        return {**request, name: [*messages[:-1], {**last, "content": content}]}
    end = len(messages) - (last.get("role") == "assistant")  # an answer that the model shall continue stays the last
    return {**request, name: [*messages[:end], {"role": "user", "content": sentence}, *messages[end:]]}
