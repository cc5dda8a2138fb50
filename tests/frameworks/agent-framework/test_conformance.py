"""Microsoft Agent Framework: agents with a scripted client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from agent_framework import (
    Agent,
    AgentExecutor,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    WorkflowBuilder,
    tool,
)
from pydantic import BaseModel

from streamproc import Halted, Watch
from streamproc.integrations.agent_framework import Breaker
from tests.conformance.driver import INPUT_TOKENS, MODEL, OUTPUT_TOKENS, Driver, Job, Model, Say
from tests.conformance.sessions import AS_TEXT
from tests.conformance.suite import Conformance

USAGE = {"input_token_count": INPUT_TOKENS, "output_token_count": OUTPUT_TOKENS}


class Grade(BaseModel):
    grade: str


class Played(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.function_invocation_configuration["max_iterations"] = 60
        self.played = model
        self.answers = 0

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> ChatResponse:
        asked, results = "", []
        for message in messages:
            if message.role == "user":
                asked, results = message.text, []
            results += [str(content.result) for content in message.contents if content.type == "function_result"]
        said = self.played(asked, results)
        self.answers += 1
        text = json.dumps({"grade": said.text}) if options.get("response_format") else said.text
        contents = [Content.from_text(text)] if said.text else []
        for number, (name, args) in enumerate(said.calls):
            call_id = f"c{self.answers}-{number}"
            contents.append(Content.from_function_call(call_id=call_id, name=name, arguments=json.dumps(args)))
        return ChatResponse(messages=[Message("assistant", contents)], usage_details=USAGE, model=MODEL)


class AgentFramework(Driver):
    name = "Agent Framework"
    decides = AS_TEXT

    def image(self, data: bytes) -> Any:
        return Content.from_data(data, "image/png")

    def agent(self, job: Job, name: str = "agent") -> Agent:
        return Agent(
            Played(job.model),
            name=name,
            tools=[tool(approval_mode="never_require")(one) for one in job.tools],
            middleware=[Breaker(job.watch, run_id=job.run_id) for _ in range(job.times)] if job.watch else [],
            default_options={"response_format": Grade} if job.grades else None,
        )

    async def run(self, job: Job) -> list[str]:
        agent = self.agent(job)
        if job.way == "beside":
            return [reply.text for reply in await asyncio.gather(*map(agent.run, job.prompts))]
        session = AgentSession() if job.way == "chat" else None
        return [(await agent.run(prompt, session=session)).text for prompt in job.prompts]

    async def hand_over(self, watch: Watch) -> int:
        def passes(asked: str, results: list[str]) -> Say:
            return Say("That is for the other one to do.")

        agents = [self.agent(Job(passes, [], watch=watch), name) for name in ("lead", "coder")]
        lead, coder = [AgentExecutor(agent, id=agent.name) for agent in agents]
        workflow = WorkflowBuilder(start_executor=lead, max_iterations=60).add_edge(lead, coder).add_edge(coder, lead)
        await workflow.build().run("Fix it.")
        return sum(agent.client.answers for agent in agents)

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        agent, session = self.agent(job), AgentSession()
        try:
            await agent.run(job.prompts[0], session=session)
        except Halted:
            go_on()
        return [(await agent.run([], session=session)).text]


class TestAgentFramework(Conformance):
    driver = AgentFramework()
