"""Plain lists of chat messages: what a home-made loop, a LangChain dump or a benchmark writes.

One list, messages line by line, or one conversation a line. Such logs have no ids of runs and mostly no times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streamproc.fingerprint.reviews import stop_reason
from streamproc.importers import mini_swe_agent
from streamproc.importers.content import at_path, first_text, items, mapping, string, text_of
from streamproc.importers.event_limits import name, seconds
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.pairing import Pairing
from streamproc.importers.raw_turns import usage_of
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
NAME: Final = "messages"
UNIT: Final = "message"
LISTS: Final = ("messages", "traj", "conversation", "conversations")  # where a conversation keeps its messages
ENDED: Final = ("stop_reason", "finish_reason", "stopReason")  # where a message says why it ended
LOOKED_AT: Final = 5  # messages of a conversation by which it is recognised
NO_TOOLS: Final = "no tool calls in these messages: only repeated answers and their order can be judged"
NO_RESULTS: Final = "no tool results in these messages: repeated calls are seen late, by their number alone"


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
    ended = first_text(row, *(f"{place}{word}" for place in ("", "response_metadata.") for word in ENDED))
    message.fields["stop_reason"] = stop_reason(ended, is_empty=not message.text and not message.calls)
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
        {
            "name": block.get("name"),
            "id": first_text(block, "id", "tool_call_id"),
            "args": block.get("input"),
            **_kept_result(mapping(block.get("result"))),
        }
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


def _kept_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result that the block of a call holds itself; an empty output is one that was not kept."""
    text = text_of(result.get("output"))
    if result.get("status") == "error":
        return {"error": text or True}
    return {"result": text} if text else {}


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
    at = next((row[key] for key in ("timestamp", "created_at", "created", "ts") if key in row), None)
    return {
        "at": at if isinstance(at, str) else seconds(at),
        "node": string(row.get("name")) if row.get("role", "ai") in ("assistant", "ai") else "",
        "model": first_text(row, "model", "response_metadata.model_name", "response_metadata.model"),
        "provider": first_text(row, "response_metadata.model_provider"),
        "usage": {**usage_of(row.get("usage_metadata") or row.get("usage")), "cost_usd": row.get("cost_usd")},
    }


def matches(sample: Sample) -> bool:
    """Whether the log is a list of messages, or of conversations, which are objects that hold such a list; and not one
    that mini-SWE-agent wrote."""
    rows = [row for row in sample.rows if isinstance(row, dict)]
    if not rows or len(rows) < len(sample.rows) or mini_swe_agent.matches(sample):
        return False
    if isinstance(sample.document, dict):
        return _conversation(sample.document) is not None
    if any(_conversation(row) is not None for row in rows):
        return True
    return sum(map(looks_like_message, rows)) * 2 > len(rows)


def _conversation(row: dict[str, Any]) -> list[Any] | None:
    """Return the messages that a row holds; None if it holds none."""
    for key in LISTS:
        messages = row.get(key)
        if isinstance(messages, list) and any(map(looks_like_message, messages[:LOOKED_AT])):
            return messages
    return None


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each answer of a model, paired with the results of its calls. The file's name is the run's; in a
    file of several conversations, each has the number of its row, too."""
    file_run = reading.run_name(log)
    tally = reading.tally(NAME)
    content: Counter[str] = Counter()  # what the file holds, to say what cannot be seen
    flat: _Conversation | None = None
    for row in log.rows():
        messages = _conversation(row.data) if isinstance(row.data, dict) else None
        if messages is None:
            flat = flat or _Conversation(file_run, {}, tally, content)
            yield from flat.take(row.data, row.number, "line" if log.document() is None else UNIT)
            continue
        run_id = file_run if isinstance(log.document(), dict) else f"{file_run}/{row.number}"
        conversation = _Conversation(run_id, _scope(row.data), tally, content)
        for number, message in enumerate(messages, start=1):
            yield from conversation.take(message, number, UNIT)
        yield from conversation.end()
    if flat is not None:
        yield from flat.end()
    if content["turns"] and not content["calls"]:
        tally.notes[NO_TOOLS] = None
    elif content["calls"] and not content["answers"]:
        tally.notes[NO_RESULTS] = None


def _scope(row: dict[str, Any]) -> dict[str, Any]:
    return {"model": string(row.get("model")), "session_id": name(row.get("session_id") or row.get("thread_id"))}


class _Conversation:
    """The messages of one run."""

    def __init__(self, run_id: str, base: dict[str, Any], tally: ImportTally, content: Counter[str]) -> None:
        self._base = {"run_id": run_id, "node": "assistant", **base}
        self._pairing = Pairing()
        self._tally = tally
        self._is_item = False  # whether the newest turn is of the Responses API, whose next item may belong to it
        self._content = content

    def take(self, row: Any, number: int, unit: str) -> Iterator[Imported]:
        """Read a message; yield the events that are complete."""
        if not isinstance(row, dict):
            self._tally.ignore(type(row).__name__)
            return
        message = read_message(row)
        if message.role == ASSISTANT:
            self._add_turn(message, number, unit)
        elif message.role == USER and not message.results and message.text:
            # Anthropic sends results in the user's role, so what stands beside them is not known to be a person's.
            self._pairing.add_person(self._base["run_id"], number, unit)
        elif message.role not in (USER, TOOL, SILENT):
            self._tally.ignore(row.get("role") or row.get("type"))
        self._is_item = message.is_item or (self._is_item and message.role == SILENT)
        for result in message.results:
            at = message.fields.get("at")
            if self._pairing.answer(result.call_id, result.text, failed=result.failed, at=at, name=result.name):
                self._content["answers"] += 1
            else:
                self._tally.ignore("result without a call")
        yield from self._pairing.complete()

    def _add_turn(self, message: ChatMessage, number: int, unit: str) -> None:
        self._content["calls"] += len(message.calls)
        self._content["answers"] += sum("result" in call or "error" in call for call in message.calls)
        if message.is_item and message.calls and self._is_item and self._pairing.newest is not None:
            for call in message.calls:
                self._pairing.add_call(call)
            return
        turn = {**self._base, **{key: value for key, value in message.fields.items() if value}}
        turn |= {"output": message.text, "tool_calls": message.calls}
        turn["event_id"] = f"{self._base['run_id']}/{number}"  # ids of messages may repeat
        self._content["turns"] += 1
        self._pairing.add(turn, number, unit)

    def end(self) -> Iterator[Imported]:
        """Yield what is left."""
        return self._pairing.rest()


FORMAT: Final = Format(NAME, "chat messages of OpenAI, Anthropic or LangChain", matches, read)
