"""The APIs of OpenAI and Anthropic as a transport in memory: a model that calls a tool again and again."""

from __future__ import annotations

import json
from typing import Any

import httpx2


class ModelAPI:
    """Answers `times` requests with `parallel` tool calls each, and then with a text."""

    def __init__(self, times: int = 1000, parallel: int = 1) -> None:
        self.times, self.parallel = times, parallel
        self.requests: list[dict[str, Any]] = []

    def client(self) -> httpx2.Client:
        return httpx2.Client(transport=httpx2.MockTransport(self._answer))

    def async_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        number = len(self.requests)
        body = json.loads(request.content)
        self.requests.append(body)
        ids = [f"c{number}-{i}" for i in range(self.parallel)] if number < self.times else []
        make = {"completions": chat, "responses": response, "messages": message}[request.url.path.rpartition("/")[2]]
        whole = make(ids)
        if not body.get("stream"):
            return httpx2.Response(200, json=whole)
        events = {chat: chat_events, response: response_events, message: message_events}[make](whole)
        lines = "".join(f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in events)
        return httpx2.Response(
            200, text=lines + "data: [DONE]\n\n" * (make is chat), headers={"content-type": "text/event-stream"}
        )


def chat(ids: list[str]) -> dict[str, Any]:
    function = {"name": "run", "arguments": '{"cmd": "pytest"}'}
    calls = [{"id": one, "type": "function", "function": function} for one in ids]
    said = {"role": "assistant", "content": None if ids else "All tests pass."} | ({"tool_calls": calls} if ids else {})
    choice = {"index": 0, "finish_reason": "tool_calls" if ids else "stop", "message": said}
    usage = {
        "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4},
    }  # fmt: skip
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice], "usage": usage
    }  # fmt: skip


def chat_events(whole: dict[str, Any]) -> list[dict[str, Any]]:
    said = whole["choices"][0]["message"]
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for index, call in enumerate(said.get("tool_calls", ())):
        deltas.append({"tool_calls": [{**call, "index": index, "function": {"name": "run", "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in ('{"cmd"', ': "pytest"}')
        ]
    deltas += [{"content": piece} for piece in ("All tests ", "pass.") if said["content"]]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": whole["choices"][0]["finish_reason"]}
    return [*chunks, {**head, "choices": [end]}, {**head, "choices": [], "usage": whole["usage"]}]


def response(ids: list[str]) -> dict[str, Any]:
    output: list[dict[str, Any]] = [
        {"type": "function_call", "id": f"f{one}", "call_id": one, "name": "run", "arguments": '{"cmd": "pytest"}'}
        for one in ids
    ]
    if not ids:
        text = {"type": "output_text", "text": "All tests pass.", "annotations": []}
        output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}]
    usage = {
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": "resp", "object": "response", "created_at": 1, "model": "gpt", "status": "completed", "output": output,
        "usage": usage, "tools": [], "parallel_tool_calls": True, "tool_choice": "auto",
    }  # fmt: skip


def response_events(whole: dict[str, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**whole, "output": [], "usage": None}}]
    for index, item in enumerate(whole["output"]):
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def message(ids: list[str]) -> dict[str, Any]:
    text = {"type": "text", "text": "All tests pass."}
    content = [{"type": "tool_use", "id": one, "name": "run", "input": {"cmd": "pytest"}} for one in ids]
    usage = {"input_tokens": 6, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": 5}
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "claude", "usage": usage, "stop_sequence": None,
        "stop_reason": "tool_use" if ids else "end_turn", "content": content or [text],
    }  # fmt: skip


def message_events(whole: dict[str, Any]) -> list[dict[str, Any]]:
    start = {**whole, "content": [], "usage": {**whole["usage"], "output_tokens": 1}, "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(whole["content"]):
        empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        deltas: list[dict[str, Any]] = (
            [{"type": "text_delta", "text": piece} for piece in ("All tests ", "pass.")]
            if block["type"] == "text"
            else [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"cmd"', ': "pytest"}')]
        )
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    return [
        *events, {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}, {"type": "message_stop"}
    ]  # fmt: skip
