"""The APIs of OpenAI and Anthropic as a transport in memory, behind which a `Model` answers."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import httpx2

from tests.conformance.driver import INPUT_TOKENS, MODEL, OUTPUT_TOKENS, Model, Say

_ids = itertools.count()


def served(model: Model) -> httpx2.AsyncClient:
    """Return a connection to a model."""

    async def answer(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0.002)  # agents that work beside each other take turns
        return httpx2.Response(200, json=answered(model, request.url.path, json.loads(request.content)))

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def answered(model: Model, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what an API answers to a request."""
    asked, results = heard(body["messages"])
    return (_message if path.endswith("messages") else _chat)(model(asked, results), body)


def heard(messages: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """Return what was asked last, and the results of tools since."""
    asked, results = "", []
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        found = [str(block["content"]) for block in blocks if block.get("type") == "tool_result"]
        if message["role"] == "tool":
            results.append(str(content))
        elif found:
            results += found
        elif message["role"] == "user":
            asked, results = str(content), []
    return asked, results


def _text(said: Say, body: dict[str, Any]) -> str:
    return json.dumps({"grade": said.text}) if "response_format" in body else said.text


def _chat(said: Say, body: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {"id": f"c{next(_ids)}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for name, args in said.calls
    ]
    message = {"role": "assistant", "content": _text(said, body) or None} | ({"tool_calls": calls} if calls else {})
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": 110}
    choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": f"{MODEL}-2024-07-18", "choices": [choice],
        "usage": usage,
    }  # fmt: skip


def _message(said: Say, body: dict[str, Any]) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": f"c{next(_ids)}", "name": name, "input": args} for name, args in said.calls]
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    text = [{"type": "text", "text": _text(said, body)}] if said.text else []
    return {
        "id": "m", "type": "message", "role": "assistant", "model": MODEL, "usage": usage, "stop_sequence": None,
        "stop_reason": "tool_use" if calls else "end_turn", "content": [*text, *calls],
    }  # fmt: skip
