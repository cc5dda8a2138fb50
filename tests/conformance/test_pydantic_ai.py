"""pydantic-ai: function models, without network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from streamproc import Halted, Watch
from streamproc.integrations.pydantic_ai import Breaker
from tests.conformance.driver import INPUT_TOKENS, MODEL, OUTPUT_TOKENS, Driver, Job, Model, Say
from tests.conformance.suite import Conformance


class Grade(BaseModel):
    grade: str


def played(model: Model) -> FunctionModel:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked, results = "", []
        for part in [part for message in messages for part in message.parts]:
            if isinstance(part, UserPromptPart):
                asked, results = str(part.content), []
            elif isinstance(part, ToolReturnPart | RetryPromptPart):
                results.append(str(part.content))
        said = model(asked, results)
        parts: list[Any] = [ToolCallPart(name, args) for name, args in said.calls]
        if said.text:
            output = info.output_tools
            parts.insert(0, ToolCallPart(output[0].name, {"grade": said.text}) if output else TextPart(said.text))
        usage = RequestUsage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        return ModelResponse(parts=parts, usage=usage)

    return FunctionModel(answer, model_name=MODEL)


class PydanticAI(Driver):
    name = "pydantic-ai"
    problem = ModelRetry
    without: ClassVar[dict[str, str]] = dict.fromkeys(
        ("equal ValueError", "different ValueError", "equal objects with an address"),
        "pydantic-ai itself refuses results that pydantic cannot write as JSON",
    )

    def image(self, data: bytes) -> Any:
        return BinaryContent(data, media_type="image/png")

    def agent(self, job: Job) -> Agent[None, Any]:
        breakers = [Breaker(job.watch, run_id=job.run_id) for _ in range(job.times)] if job.watch else []
        output: Any = Grade if job.grades else str
        return Agent(
            played(job.model),
            name="agent",
            tools=list(job.tools),
            capabilities=breakers,
            output_type=output,
            retries=50,
        )

    async def run(self, job: Job) -> list[str]:
        agent = self.agent(job)
        if job.way == "chat":
            found, history = [], None
            for prompt in job.prompts:
                result = await agent.run(prompt, message_history=history)
                found.append(_text(result.output))
                history = result.all_messages()
            return found
        if job.way == "beside":
            return [_text(one.output) for one in await asyncio.gather(*map(agent.run, job.prompts))]
        found = []

        async def ask_each() -> str:
            """Ask the other agent about each item."""
            for prompt in job.prompts:
                found.append(_text((await agent.run(prompt)).output))
            return "asked"

        def once(asked: str, results: list[str]) -> Say:
            return Say("Done.") if results else Say(calls=(("ask_each", {}),))

        outer = self.agent(Job(once, [], [ask_each], watch=job.watch, run_id=job.run_id))
        outer.name = "outer"
        await outer.run("Ask about each.")
        return found

    def fails(self, message: str) -> Callable[..., Any]:
        def run(cmd: str) -> str:
            raise ModelRetry(message)

        return run

    async def retry(self, watch: Watch) -> int:
        agent = self.agent(Job(lambda asked, results: Say("bad"), [], watch=watch, grades=True))

        @agent.output_validator
        def refuse(output: Grade) -> Grade:
            raise ModelRetry("The grade must be a number.")

        return len((await agent.run("Grade it.")).all_messages())

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        from pydantic_ai import capture_run_messages

        agent = self.agent(job)
        with capture_run_messages() as messages:
            try:
                await agent.run(job.prompts[0])
            except Halted:
                go_on()
        return [(await agent.run(message_history=messages)).output]


def _text(output: Any) -> str:
    return output.grade if isinstance(output, Grade) else str(output)


class TestPydanticAI(Conformance):
    driver = PydanticAI()
