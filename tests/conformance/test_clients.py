"""Plain loops around the clients of OpenAI and Anthropic: the real clients, and their APIs in memory."""

from __future__ import annotations

import asyncio
import base64
import json
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import anthropic
import openai

from streamproc import Halted
from streamproc.integrations.anthropic import watched as watched_anthropic
from streamproc.integrations.openai import watched as watched_openai
from tests.conformance.driver import MODEL, Driver, Job, image_part, result_of, told
from tests.conformance.model_server import served
from tests.conformance.sessions import AS_TEXT
from tests.conformance.suite import Conformance

Messages = list[dict[str, Any]]


class PlainLoop(Driver):
    """The loop that people write around a client."""

    without: ClassVar[dict[str, str]] = {
        "stuck_output_retries": "a client has no output retries",
        "stuck_hand_overs": "a client has no hand-overs",
        "cancelled_while_a_tool_runs": "no request tells of tools that are cancelled",
    }
    decides = AS_TEXT

    def client(self, job: Job) -> Any:
        plain = self.plain(job)
        for _ in range(job.times if job.watch else 0):
            plain = self.watched(plain, run_id=job.run_id, watch=job.watch)
        return plain

    async def run(self, job: Job) -> list[str]:
        if job.way == "beside":  # each loop has a client of its own
            return await asyncio.gather(*(self.loop(self.client(job), job, [], prompt) for prompt in job.prompts))
        client, messages = self.client(job), []
        found = []
        for prompt in job.prompts:
            if job.way == "map":
                messages = []
            found.append(await self.loop(client, job, messages, prompt))
        return found

    async def loop(self, client: Any, job: Job, messages: Messages, prompt: str) -> str:
        """Ask, and run tools until the model answers with a text."""
        messages.append({"role": "user", "content": prompt})
        return await self.goes_on(client, job, messages)

    async def goes_on(self, client: Any, job: Job, messages: Messages) -> str:
        tools = {tool.__name__: tool for tool in job.tools}
        while True:
            text, calls = await self.send(client, job, messages)
            if not calls:
                messages.append({"role": "assistant", "content": text})
                return json.loads(text)["grade"] if job.grades else text
            done = []
            for call_id, name, args in calls:
                try:
                    done.append((call_id, told(await result_of(tools[name](**args))), False))
                except ValueError as error:
                    done.append((call_id, str(error), True))
            self.returned(messages, done)

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        client, messages = self.client(job), [{"role": "user", "content": job.prompts[0]}]
        try:
            await self.goes_on(client, job, messages)
        except Halted:
            go_on()
        return [await self.goes_on(client, job, messages)]

    @abstractmethod
    def plain(self, job: Job) -> Any:
        """Return a client of a job's model."""

    @abstractmethod
    def watched(self, client: Any, **options: Any) -> Any:
        """Return the watched copy of a client."""

    @abstractmethod
    async def send(self, client: Any, job: Job, messages: Messages) -> tuple[str, list[tuple[str, str, Any]]]:
        """Send the messages, add calls to them, and return the text and the calls."""

    @abstractmethod
    def returned(self, messages: Messages, done: list[tuple[str, str, bool]]) -> None:
        """Add what tools returned."""


class OpenAIClient(PlainLoop):
    name = "OpenAI client"

    def image(self, data: bytes) -> Any:
        return image_part(data)

    def plain(self, job: Job) -> Any:
        return openai.AsyncOpenAI(api_key="x", http_client=served(job.model), max_retries=0)

    def watched(self, client: Any, **options: Any) -> Any:
        return watched_openai(client, **options)

    async def send(self, client: Any, job: Job, messages: Messages) -> tuple[str, list[tuple[str, str, Any]]]:
        form: Any = {"response_format": {"type": "json_object"}} if job.grades else {}
        response = await client.chat.completions.create(model=MODEL, messages=list(messages), **form)
        message = response.choices[0].message
        if message.tool_calls:
            messages.append(message.model_dump(exclude_none=True))
        calls = [(one.id, one.function.name, json.loads(one.function.arguments)) for one in message.tool_calls or ()]
        return message.content or "", calls

    def returned(self, messages: Messages, done: list[tuple[str, str, bool]]) -> None:
        messages += [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text, _ in done]


class AnthropicClient(PlainLoop):
    name = "Anthropic client"

    def image(self, data: bytes) -> Any:
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
        return [{"type": "image", "source": source}]

    def plain(self, job: Job) -> Any:
        return anthropic.AsyncAnthropic(api_key="x", http_client=served(job.model), max_retries=0)

    def watched(self, client: Any, **options: Any) -> Any:
        return watched_anthropic(client, **options)

    async def send(self, client: Any, job: Job, messages: Messages) -> tuple[str, list[tuple[str, str, Any]]]:
        system = "Grade. Answer as JSON." if job.grades else "Work."
        message = await client.messages.create(model=MODEL, max_tokens=100, system=system, messages=list(messages))
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
        if calls:
            messages.append({"role": "assistant", "content": [block.model_dump() for block in message.content]})
        return json.dumps({"grade": text}) if job.grades else text, calls

    def returned(self, messages: Messages, done: list[tuple[str, str, bool]]) -> None:
        results = [
            {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": failed}
            for call_id, text, failed in done
        ]
        messages.append({"role": "user", "content": results})


class TestOpenAIClient(Conformance):
    driver = OpenAIClient()


class TestAnthropicClient(Conformance):
    driver = AnthropicClient()
