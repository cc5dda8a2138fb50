"""The Claude Agent SDK: its own CLI, which asks a function on loopback in place of a model."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from unittest import mock

import claude_agent_sdk as sdk
import pytest

from examples.integrations import messages_api
from examples.integrations.messages_api import serving, text, use
from streamproc import Halted, Watch
from streamproc.integrations.claude_agent_sdk import Breaker
from tests.conformance.driver import INPUT_TOKENS, OUTPUT_TOKENS, Driver, Job, Say, result_of
from tests.conformance.sessions import AS_TEXT
from tests.conformance.suite import Conformance

AT_ONCE = 4  # processes of the CLI
AGENTS = {"coder": sdk.AgentDefinition(description="Fixes.", prompt="You fix.", tools=[])}
SCHEMA = {"type": "object", "properties": {"grade": {"type": "string"}}, "required": ["grade"]}
USAGE = {
    "input_tokens": INPUT_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
    "cache_read_input_tokens": 0,
    "cache_creation_input_tokens": 0,
}


def tool_of(function: Callable[..., Any]) -> Any:
    [argument] = inspect.signature(function).parameters

    async def run(args: dict[str, Any]) -> dict[str, Any]:
        result = await result_of(function(**args))
        if isinstance(result, dict) and "type" in result:
            return {"content": [result]}
        return {"content": [] if result is None else [{"type": "text", "text": str(result)}]}

    return sdk.tool(function.__name__, "A tool.", {argument: str})(run)


class ClaudeAgentSDK(Driver):
    name = "Claude Agent SDK"
    without: ClassVar[dict[str, str]] = {
        "money": "the CLI tells the USD of a query with its result, by prices of its own",
        "cancelled_while_a_tool_runs": "the CLI ends with its tools, before it tells what they returned",
    }
    decides = AS_TEXT

    def image(self, data: bytes) -> Any:
        return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}

    def blocks(self, job: Job, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The answer of a job's model to a request of the CLI."""
        asked, results = "", []
        for message in request["messages"]:
            content = message["content"]
            for block in [text(content)] if isinstance(content, str) else content:
                if block["type"] == "text" and message["role"] == "user" and not block["text"].startswith("<"):
                    asked = block["text"]
                elif block["type"] == "tool_result":
                    results.append(json.dumps(block["content"]))
        if job.grades and results:
            return [text("Done.")]
        said = job.model(asked, results)
        if job.grades:
            return [use("StructuredOutput", f"toolu_{uuid.uuid4().hex}", grade=said.text)]
        names = {tool.__name__: f"mcp__t__{tool.__name__}" for tool in job.tools}
        calls = [use(names.get(name, name), f"toolu_{uuid.uuid4().hex}", **args) for name, args in said.calls]
        return [*([text(said.text)] if said.text else []), *calls]

    @contextmanager
    def options(self, job: Job, **more: Any) -> Iterator[sdk.ClaudeAgentOptions]:
        """Options of an agent with a job's tools and model."""
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
            mock.patch.dict(messages_api.USAGE, USAGE),
            serving(lambda request: self.blocks(job, request)) as url,
        ):
            env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "HOME": home, "CLAUDE_CONFIG_DIR": home}
            env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
            options = sdk.ClaudeAgentOptions(
                cwd=home,
                env=env,
                mcp_servers={"t": sdk.create_sdk_mcp_server("t", tools=[tool_of(tool) for tool in job.tools])},
                allowed_tools=[f"mcp__t__{tool.__name__}" for tool in job.tools],
                tools=[],
                setting_sources=[],
                model="claude-sonnet-4-5",
                output_format={"type": "json_schema", "schema": SCHEMA} if job.grades else None,
            )
            for _ in range(job.times - 1 if job.watch else 0):
                options = Breaker(job.watch, run_id=job.run_id).options(options)
            yield replace(options, **more)

    async def run(self, job: Job) -> list[str]:
        with self.options(job) as options:
            if job.way == "beside":
                return await asyncio.gather(*(self.ask(job, options, prompt) for prompt in job.prompts))
            breaker = Breaker(job.watch, run_id=job.run_id) if job.watch else None
            found = []
            async with breaker.client(options) if breaker else sdk.ClaudeSDKClient(options) as client:
                for number, prompt in enumerate(job.prompts):
                    if job.way == "map" and number:
                        await client.query("/clear")  # the next prompt begins a session
                        await answer(client.receive_response())
                    await client.query(prompt)
                    found.append(await answer(client.receive_response()))
            return [json.loads(one)["grade"] for one in found] if job.grades else found

    async def ask(self, job: Job, options: sdk.ClaudeAgentOptions, prompt: str) -> str:
        query = Breaker(job.watch, run_id=job.run_id).query if job.watch else sdk.query
        async with aclosing(query(prompt=prompt, options=options)) as messages:
            return await answer(messages)

    async def retry(self, watch: Watch) -> int:
        answers = 0

        def model(asked: str, results: list[str]) -> Say:
            nonlocal answers
            answers += 1
            return Say(calls=(("StructuredOutput", {"grade": 7}),))

        job = Job(model, [], watch=watch)
        with self.options(job, output_format={"type": "json_schema", "schema": SCHEMA}) as options:
            await self.ask(job, options, "Grade it.")
        return answers

    async def hand_over(self, watch: Watch) -> int:
        answers = 0
        order = {"description": "fix", "prompt": "Fix it.", "subagent_type": "coder", "run_in_background": False}

        def model(asked: str, results: list[str]) -> Say:
            nonlocal answers
            answers += 1
            is_coder = asked == "Fix it."
            return Say("That is for the lead to do.") if is_coder else Say(calls=(("Agent", order),))

        job = Job(model, [], watch=watch)
        with self.options(job, tools=["Agent"], allowed_tools=["Agent"], agents=AGENTS) as options:
            await self.ask(job, replace(options, max_turns=40), "Lead.")
        return answers

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        session = str(uuid.uuid4())
        with self.options(job) as options:
            try:
                await self.ask(job, replace(options, session_id=session), job.prompts[0])
            except Halted:
                go_on()
            return [await self.ask(job, replace(options, resume=session), "Go on.")]

    async def all(self, jobs: Sequence[Job]) -> list[Any]:
        places = asyncio.Semaphore(AT_ONCE)

        async def one(job: Job) -> Any:
            async with places:
                return await self.caught(job)

        return await asyncio.gather(*map(one, jobs))


async def answer(messages: AsyncIterator[Any]) -> str:
    return str([message.result async for message in messages if isinstance(message, sdk.ResultMessage)][-1])


class TestClaudeAgentSDK(Conformance):
    driver = ClaudeAgentSDK()

    @pytest.fixture(autouse=True)
    def _without_settings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor does the CLI see settings for it."""
        for name in os.environ:
            if name.startswith(("ANTHROPIC_", "CLAUDE")) or name.lower().endswith("_proxy"):
                monkeypatch.delenv(name)
