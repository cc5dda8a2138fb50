"""Loops around LiteLLM's SDK, and what a watch is fed of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import litellm

from streamproc import Watch
from streamproc.integrations.litellm import Breaker
from tests.integrations.fed import recorded
from tests.integrations.model_api import ModelAPI
from tests.integrations.model_server import serving
from tests.waiting import wait_until

STUCK = "2 failed: test_login, test_logout"
PROMPT = {"role": "user", "content": "fix the tests"}
WAYS = [
    f"{first}{second}{api}"
    for first in ("", "async ")
    for second in ("", "streamed ")
    for api in ("openai", "anthropic", "responses")
]


class Agent:
    """A plain loop around LiteLLM: synchronous or not, streamed or not, of three kinds of API."""

    def __init__(
        self, way: str, result: Callable[[int], str] = lambda number: STUCK, *, times: int = 1000, parallel: int = 1,
        **options: Any,
    ) -> None:  # fmt: skip
        self.api, self.way, self.result, self.options = ModelAPI(times, parallel), way, result, options
        self.tool_calls = 0
        self.messages: list[Any] = [PROMPT]

    def run(self) -> Any:
        with serving(self.api) as address:
            return asyncio.run(self._arun(address)) if "async" in self.way else self._run(address)

    def _run(self, address: str) -> Any:
        while (said := self._heard(self._whole(self._call(address)))) is None:
            time.sleep(0.05)  # an answer is logged on a thread
        return said

    async def _arun(self, address: str) -> Any:
        while (said := self._heard(await self._awhole(await self._call(address)))) is None:
            await asyncio.sleep(0.05)  # an answer is logged by a task
        await asyncio.sleep(0.2)
        return said

    def _call(self, address: str) -> Any:
        assert len(self.api.requests) < 50
        stream = {"stream": True} if "streamed" in self.way else {}
        more: dict[str, Any] = {"api_key": "x", "max_retries": 0, **stream, **self.options}
        named = more.pop("model", None)
        first = "a" if "async" in self.way else ""
        if "responses" in self.way:
            return getattr(litellm, f"{first}responses")(
                model="openai/gpt", input=self.messages, api_base=address, **more
            )
        model, base = ("openai/gpt", f"{address}/v1") if "openai" in self.way else ("anthropic/claude", address)
        model = named or model
        if stream and "openai" in self.way:
            more["stream_options"] = {"include_usage": True}
        return getattr(litellm, f"{first}completion")(model=model, messages=self.messages, api_base=base, **more)

    def _whole(self, answer: Any) -> Any:
        return self._built(list(answer)) if "streamed" in self.way else answer

    async def _awhole(self, answer: Any) -> Any:
        return self._built([chunk async for chunk in answer]) if "streamed" in self.way else answer

    def _built(self, chunks: list[Any]) -> Any:
        return chunks[-1].response if "responses" in self.way else litellm.stream_chunk_builder(chunks)

    def _heard(self, answer: Any) -> Any:
        if "responses" in self.way:
            items = [item.model_dump() if hasattr(item, "model_dump") else item for item in answer.output]
            calls = [item["call_id"] for item in items if item["type"] == "function_call"]
            said = None if calls else items[0]["content"][0]["text"]
            self.messages += items
            made = [{"type": "function_call_output", "call_id": call} for call in calls]
            name = "output"
        else:
            message = answer.choices[0].message
            calls = [call.id for call in message.tool_calls or ()]
            said = None if calls else message.content
            self.messages.append(message)
            made, name = [{"role": "tool", "tool_call_id": call} for call in calls], "content"
        for one in made:
            self.tool_calls += 1
            self.messages.append({**one, name: self.result(self.tool_calls)})
        return said


def watching(watch: Watch, **options: Any) -> list[dict[str, Any]]:
    """Add the adapter to LiteLLM; return a list of the events that the watch will be fed."""
    litellm.callbacks = [Breaker(watch, **options)]
    return recorded(watch)


def heard(fed: list[dict[str, Any]], name: str) -> None:
    """Wait until the last turn has a field, as answers are logged by tasks and threads."""
    wait_until(lambda: name in fed[-1], what=name)
