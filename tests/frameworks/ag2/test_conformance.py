"""AG2: agents whose model is played."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ag2 import Agent, MemoryStream
from ag2.events import (
    BaseEvent,
    ImageInput,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResultsEvent,
    Usage,
)
from ag2.testing import TestConfig
from ag2.tools import tool
from pydantic import BaseModel

from streamproc import Halted, Watch
from streamproc.integrations.ag2 import Breaker
from tests.conformance.driver import INPUT_TOKENS, MODEL, OUTPUT_TOKENS, Driver, Job, Model, Say
from tests.conformance.suite import Conformance


class Grade(BaseModel):
    grade: str


class Played(TestConfig):
    def __init__(self, model: Model, *, grades: bool = False) -> None:
        super().__init__()
        self.played = model
        self.grades = grades
        self.answers = 0

    def create(self) -> Any:
        async def client(messages: Sequence[BaseEvent], context: Any, **_: Any) -> ModelResponse:
            asked, results = "", []
            for event in messages:
                if isinstance(event, ModelRequest):
                    asked, results = event.parts[0].content, []
                elif isinstance(event, ToolResultsEvent):
                    results += [str(result.result) for result in event.results]
            said = self.played(asked, results)
            self.answers += 1
            text = json.dumps({"grade": said.text}) if self.grades and said.text else said.text
            calls = [ToolCallEvent(name, arguments=json.dumps(args)) for name, args in said.calls]
            return ModelResponse(
                ModelMessage(text) if text else None,
                tool_calls=ToolCallsEvent(calls),
                usage=Usage(prompt_tokens=INPUT_TOKENS, completion_tokens=OUTPUT_TOKENS),
                model=MODEL,
                provider="openai",
            )

        return client


class AG2(Driver):
    name = "AG2"

    def image(self, data: bytes) -> Any:
        return ImageInput(data=data, media_type="image/png")

    without: ClassVar[dict[str, str]] = {
        "stuck_hand_overs": "agents hand over in AG2's network, which reports a turn that fails, and goes on"
    }

    def agent(self, job: Job, name: str = "agent") -> Agent[Any]:
        return Agent(
            name,
            config=Played(job.model, grades=job.grades),
            tools=[tool(one) for one in job.tools],
            middleware=[Breaker(job.watch, run_id=job.run_id) for _ in range(job.times)] if job.watch else [],
            response_schema=Grade if job.grades else None,
        )

    async def run(self, job: Job) -> list[str]:
        agent, found = self.agent(job), []
        if job.way == "beside":
            return [str(reply.body) for reply in await asyncio.gather(*map(agent.ask, job.prompts))]
        if job.way == "map":
            return [str((await agent.ask(prompt)).body) for prompt in job.prompts]
        reply: Any = agent
        for prompt in job.prompts:
            reply = await reply.ask(prompt)
            found.append(str(reply.body))
        return found

    async def retry(self, watch: Watch) -> int:
        agent = self.agent(Job(lambda asked, results: Say("bad"), [], watch=watch))
        reply = await agent.ask("Grade it.", response_schema=Grade)
        await reply.content(retries=30)
        return 31

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        agent, stream = self.agent(job), MemoryStream()
        try:
            await agent.ask(job.prompts[0], stream=stream)
        except Halted:
            go_on()
        reply = await agent.resume(*await stream.history.get_events(), stream=stream)
        return [str(reply.body)]


class TestAG2(Conformance):
    driver = AG2()
