"""OpenAI Agents SDK: a model of its own, without network."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunHooks,
    Runner,
    SQLiteSession,
    ToolOutputImage,
    Usage,
    function_tool,
    handoff,
    set_trace_processors,
)
from agents.testing import assistant_message, function_call
from pydantic import BaseModel

from streamproc import Halted, Watch
from streamproc.integrations.openai_agents import Breaker
from tests.conformance import driver
from tests.conformance.driver import INPUT_TOKENS, MODEL, OUTPUT_TOKENS, Driver, Job, Say
from tests.conformance.suite import Conformance

TURNS_MAX = 100
calls = itertools.count()


class Grade(BaseModel):
    grade: str


class Played(Model):
    """A model that a function plays."""

    def __init__(self, play: driver.Model) -> None:
        self.play = play
        self.model = MODEL

    async def get_response(self, *_: Any, **given: Any) -> ModelResponse:
        asked, results = "", []
        for item in given["input"]:
            if item.get("role") == "user":
                asked, results = item["content"], []
            elif item.get("type") == "function_call_output":
                results.append(str(item["output"]))
        said = self.play(asked, results)
        output: list[Any] = [function_call(name, args, call_id=f"c{next(calls)}") for name, args in said.calls]
        if said.text:
            form = given["output_schema"]
            is_plain = form is None or form.is_plain_text()
            output.append(assistant_message(said.text if is_plain else Grade(grade=said.text).model_dump_json()))
        usage = Usage(requests=1, input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


class OpenAIAgents(Driver):
    name = "openai-agents"

    def image(self, data: bytes) -> Any:
        return ToolOutputImage(image_url=f"data:image/png;base64,{base64.b64encode(data).decode()}")

    without: ClassVar = {
        "stuck_output_retries": "the SDK asks no model again: an output that it refuses ends the run",
        "cancelled_while_a_tool_runs": "no hook is called for a cancellation",
    }

    def agent(self, job: Job, name: str = "agent") -> Agent[Any]:
        return Agent(
            name=name,
            model=Played(job.model),
            tools=[function_tool(tool, description_override=tool.__name__) for tool in job.tools],
            output_type=Grade if job.grades else None,
        )

    def hooks(self, job: Job) -> RunHooks[Any] | None:
        hooks: list[RunHooks[Any]] = []
        for _ in range(job.times if job.watch else 0):
            hooks = [Breaker(job.watch, run_id=job.run_id, also=hooks)]
        return hooks[0] if hooks else None

    async def run(self, job: Job) -> list[str]:
        agent, hooks = self.agent(job), self.hooks(job)
        session = SQLiteSession("s") if job.way == "chat" else None

        async def ask(prompt: str) -> str:
            result = await Runner.run(agent, prompt, hooks=hooks, session=session, max_turns=TURNS_MAX)
            return result.final_output.grade if job.grades else str(result.final_output)

        if job.way == "beside":
            return list(await asyncio.gather(*map(ask, job.prompts)))
        if job.way == "chat":
            return [await ask(prompt) for prompt in job.prompts]
        found = []

        async def ask_each() -> str:
            """Ask the other agent about each item."""
            found.extend([await ask(prompt) for prompt in job.prompts])
            return "asked"

        def once(asked: str, results: list[str]) -> Say:
            return Say("Done.") if results else Say(calls=(("ask_each", {}),))

        await Runner.run(self.agent(Job(once, [], [ask_each]), "outer"), "Ask about each.", hooks=hooks)
        return found

    async def hand_over(self, watch: Watch) -> int:
        """Two agents, of which each thinks that it is the other's turn."""
        lead, coder = (
            self.agent(Job(lambda asked, results, other=other: Say(calls=((f"transfer_to_{other}", {}),)), []), name)
            for name, other in (("lead", "coder"), ("coder", "lead"))
        )
        lead.handoffs, coder.handoffs = [handoff(coder)], [handoff(lead)]
        result = await Runner.run(lead, "Fix it.", hooks=Breaker(watch, run_id="r1"), max_turns=TURNS_MAX)
        return len(result.raw_responses)

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        agent, hooks, session = self.agent(job), self.hooks(job), SQLiteSession("s")
        try:
            await Runner.run(agent, job.prompts[0], hooks=hooks, session=session, max_turns=TURNS_MAX)
        except Halted:
            go_on()
        return [(await Runner.run(agent, [], hooks=hooks, session=session, max_turns=TURNS_MAX)).final_output]


class TestOpenAIAgents(Conformance):
    driver = OpenAIAgents()

    @pytest.fixture(autouse=True)
    def _no_trace_leaves_this_process(self) -> None:
        set_trace_processors([])
